"""The embedded server answers the generated requests to kinds of the named groups as the real one did, but for known differences."""

from __future__ import annotations

import pytest

from tests.conformance.recordings import files, load, name_of, path_of
from tests.conformance.sweep.known import LEAST_EQUAL, UNEXPLAINED, judge, known_differences, share
from tests.conformance.sweep.script import resources, title
from tests.conformance.wire import Server

OTHERS = [name_of(file) for file in files("sweep") if not file.name.startswith("v1-")]


@pytest.mark.embedded
@pytest.mark.parametrize("name", OTHERS)
def test_every_answer_is_the_real_servers(swept_server: Server, name: str) -> None:
    judged = judge(swept_server, path_of("sweep", name))
    assert judged.surprises == []
    assert judged.unknown == {}
    assert judged.fixed == set(), "these no longer differ; run: python -m tests.conformance.sweep --update"


def test_every_resource_of_a_default_server_is_recorded() -> None:
    assert {name_of(file) for file in files("sweep")} == {title(resource) for resource in resources()}


def test_each_known_difference_is_of_a_step_and_has_a_reason() -> None:
    counts = {name_of(file): len(load(file)["steps"]) for file in files("sweep")}
    known = known_differences()
    assert [name for name, reasons in known.items() if UNEXPLAINED in reasons] == []
    assert [(name, step) for name, by in known.items() for steps in by.values() for step in steps if step > counts[name]] == []


def test_enough_steps_are_equal() -> None:
    assert share() >= LEAST_EQUAL


def test_the_recordings_are_small() -> None:
    assert sum(file.stat().st_size for file in files("sweep")) < 3_000_000
