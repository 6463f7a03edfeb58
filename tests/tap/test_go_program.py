"""client-go's informers and typed clients through a tap: they find what they find without it, and the tap decodes their protobuf."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kubeloop.tap.recording import HarEntry, read_recording
from kubeloop.tap.report.page import ReportTimeline
from kubeloop.types import JSONObject
from tests.foreign.building import program
from tests.servers import ServerUnderTest

# The first test builds the program.
pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]
EXPECTED = Path(__file__).parents[1] / "foreign" / "expected"


def tapped(server: ServerUnderTest, namespace: str, chapter: str, file: Path, *options: str) -> str:
    """What a chapter of the program prints."""
    environment = {"KUBECONFIG": str(server.kubeconfig), "HOME": str(file.parent), "PATH": os.environ.get("PATH", "")}
    command = [sys.executable, "-m", "kubeloop", "tap", "-q", *options, "--record", str(file), "--", str(program("go")), chapter, namespace]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("options", [(), ("--proxy-url",)], ids=["the tap is the server", "the tap is the proxy"])
@pytest.mark.parametrize("chapter", ["typed", "informers", "watch", "dynamic", "metadata"])
def test_a_go_program_finds_what_it_finds_without_the_tap(
    server: ServerUnderTest, namespace: str, tmp_path: Path, chapter: str, options: tuple[str, ...]
) -> None:
    assert tapped(server, namespace, chapter, tmp_path / "run.har", *options) == (EXPECTED / f"go-{chapter}.txt").read_text()


def parameters(entry: HarEntry) -> set[str]:
    return {one.name for one in entry.request.query_string}


def test_the_requests_and_events_of_an_informer_are_recorded(server: ServerUnderTest, namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "run.har"
    tapped(server, namespace, "informers", file)
    recording = read_recording(file)
    watch = next(entry for entry in recording.entries if (entry.verb, entry.resource) == ("WATCH", "configmaps"))
    assert {"allowWatchBookmarks", "sendInitialEvents", "resourceVersionMatch", "timeoutSeconds"} <= parameters(watch)
    assert "protobuf" in watch.response.content.mime_type
    assert [frame.type for frame in watch.frames or ()][:3] == ["ADDED", "BOOKMARK", "ADDED"]

    def data(before: JSONObject, after: JSONObject) -> list[list[Any]]:
        return [["data", {"value": before.get("data")}, {"value": after.get("data")}]]

    rows = ReportTimeline(recording, data).data()["rows"]
    changed = next(row for row in rows if row["k"] == "e" and row["v"] == "MODIFIED")
    assert (changed["s"], changed["df"]) == (f"{namespace}/second", [["data", {"value": {"step": "1"}}, {"value": {"step": "2"}}]])
