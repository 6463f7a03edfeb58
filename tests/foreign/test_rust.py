"""The kube crate's typed and dynamic clients, watcher and reflector. What it prints is what it prints against a real kube-apiserver."""

from __future__ import annotations

import pytest

from tests.foreign.conftest import Chapters

# The first test builds the program.
pytestmark = [pytest.mark.server, pytest.mark.upstream, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "chapter",
    [
        pytest.param("typed", id="an object's life through the typed client"),
        pytest.param("paging", id="lists by pages and by selectors"),
        pytest.param("workloads", id="pods and deployments with their status and scale"),
        pytest.param("watch", id="watches from a version, with the initial state, for a second"),
        pytest.param("reflector", id="a reflector by list and by stream"),
        pytest.param("dynamic", id="a kind defined and discovered on the way"),
        pytest.param("apply", id="server-side apply: ownership, conflicts, force"),
        pytest.param("discovery", id="aggregated and older discovery"),
    ],
)
def test_a_rust_program_finds_what_it_finds_on_a_real_server(chapters: Chapters, chapter: str) -> None:
    assert chapters.differences("rust", chapter) == []
