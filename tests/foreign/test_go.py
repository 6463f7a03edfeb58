"""client-go's typed clients (protobuf, their default), shared informers, dynamic and metadata clients.

What it prints is what it prints against a real kube-apiserver."""

from __future__ import annotations

import pytest

from tests.foreign.conftest import Chapters

# The first test builds the program.
pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "chapter",
    [
        pytest.param("typed", id="an object's life through the typed client"),
        pytest.param("workloads", id="pods and deployments with their status and scale"),
        pytest.param("kinds", id="kinds of eight groups, with bytes, microseconds and numbers that may be texts"),
        pytest.param("paging", id="lists by pages and by selectors"),
        pytest.param("watch", id="watches from a version, with the initial state, for a second"),
        pytest.param("informers", id="shared informers of two kinds"),
        pytest.param("dynamic", id="a kind defined on the way, without types"),
        pytest.param("metadata", id="metadata only, by list and informer"),
        pytest.param("apply", id="server-side apply: ownership, conflicts, force"),
        pytest.param("openapi", id="OpenAPI 2 and 3, also in protobuf"),
        pytest.param("discovery", id="what there is, in the forms that Go asks for"),
    ],
)
def test_a_go_program_finds_what_it_finds_on_a_real_server(chapters: Chapters, chapter: str) -> None:
    assert chapters.differences("go", chapter) == []
