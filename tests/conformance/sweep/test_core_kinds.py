"""The embedded server answers the generated requests to kinds of the core group as the real one did, but for known differences."""

from __future__ import annotations

import pytest

from tests.conformance.recordings import files, name_of, path_of
from tests.conformance.sweep.known import judge
from tests.conformance.wire import Server

CORE = [name_of(file) for file in files("sweep") if file.name.startswith("v1-")]


@pytest.mark.embedded
@pytest.mark.parametrize("name", CORE)
def test_every_answer_is_the_real_servers(swept_server: Server, name: str) -> None:
    judged = judge(swept_server, path_of("sweep", name))
    assert judged.surprises == []
    assert judged.unknown == {}
    assert judged.fixed == set(), "these no longer differ; run: python -m tests.conformance.sweep --update"
