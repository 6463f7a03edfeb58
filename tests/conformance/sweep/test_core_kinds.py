"""The embedded server answers the generated requests to kinds of the core group as the real one did, but for known differences."""

from __future__ import annotations

import pytest

from tests.conformance.sweep.known import judge
from tests.conformance.sweep.recording import FOLDER, recordings
from tests.conformance.wire import Server

CORE = [file.name.removesuffix(".json.gz") for file in recordings() if file.name.startswith("v1-")]


@pytest.mark.embedded
@pytest.mark.parametrize("name", CORE)
def test_every_answer_is_the_real_servers(swept_server: Server, name: str) -> None:
    judged = judge(swept_server, FOLDER / f"{name}.json.gz")
    assert judged.surprises == []
    assert judged.unknown == {}
    assert judged.fixed == set(), "these no longer differ; run: python -m tests.conformance.sweep --update"
