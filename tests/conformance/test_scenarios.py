"""The embedded server answers scenarios as the real one did, but for the steps that differences.yaml lists with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from kubeloop.testing import LocalCluster
from tests.conformance import recordings
from tests.conformance.__main__ import COMPACT, HERE
from tests.conformance.compare import compare
from tests.conformance.counted import (
    DOCUMENT,
    LEAST_IN_ALL,
    LEAST_OF_EACH,
    LEAST_STEPS,
    counted,
    coverage,
    document,
    known_differences,
)
from tests.conformance.normalise import ADDRESS
from tests.conformance.scenario import Run, Step, scenario_names, scenarios, write_tokens
from tests.conformance.wire import Server

FOLDER = HERE / "scenarios" / "plain"
#: In the order of a whole run: a few recordings show what scenarios before them left behind.
COUNTED = scenario_names(FOLDER)
KNOWN = known_differences()


@cache
def all_scenarios() -> dict[str, Step]:
    return dict(scenarios(FOLDER))


@contextmanager
def _started(folder: Path) -> Iterator[Server]:
    tokens = folder / "tokens.csv"
    write_tokens(tokens)
    with LocalCluster(controllers=False, token_auth_file=tokens, disable_admission_plugins=()) as cluster:
        server = Server(cluster.url, str(cluster.ca_file), tokens, COMPACT)
        yield server
        server.close()


@pytest.fixture(scope="module")
def fresh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with _started(tmp_path_factory.mktemp("conformance")) as server:
        yield server


@pytest.mark.embedded
@pytest.mark.parametrize("name", COUNTED)
def test_every_answer_is_the_real_servers(fresh_server: Server, name: str, tmp_path: Path) -> None:
    shown, fixed, surprises = _replay(fresh_server, name)
    if shown and ADDRESS.search(str(all_scenarios()[name])):
        # A cluster IP is drawn at random: it may equal an address that the script uses for another purpose.
        with _started(tmp_path) as server:
            shown, fixed, surprises = _replay(server, name)
    assert not shown, "\n".join(shown[:12])
    assert not fixed, f"{sorted(fixed)} of {name} no longer differ: take them out of differences.yaml"
    if not KNOWN.get(name):
        assert surprises == []


def _replay(server: Server, name: str) -> tuple[list[str], set[int], list[str]]:
    """Differences that are not known, known ones that are none, and surprises."""
    run = Run(server, all_scenarios()[name], name)
    actual = run.run()
    expected = recordings.load(recordings.path_of("plain", name))
    known, met, shown = set(KNOWN.get(name, {})), set(), []
    for step, differences in compare(expected, actual).differences.items():
        number = re.match(r"step (\d+) ", step)
        if number is not None and int(number[1]) in known:
            met.add(int(number[1]))
        else:
            shown += [f"{step}: {difference}" for difference in differences[:3]]
    return shown, known - met, run.surprises


def test_the_document_lists_what_differs() -> None:
    assert DOCUMENT.read_text() == document(), "run: python -m tests.conformance --document"


def test_enough_steps_are_equal() -> None:
    rows = counted()
    assert sum(row.exact for row in rows) >= LEAST_IN_ALL * sum(row.steps for row in rows)
    assert [row.name for row in rows if row.exact < LEAST_OF_EACH * row.steps] == []


def test_what_the_server_is_for_is_held_by_enough_steps() -> None:
    steps = {row.name: row.steps for row in counted()}
    shown = {what: sum(steps[name] for name in names) for what, names in coverage().items()}
    assert {what: number for what, number in shown.items() if number < LEAST_STEPS} == {}


def test_each_scenario_is_recorded_and_each_difference_is_of_a_step() -> None:
    assert {recordings.name_of(file) for file in recordings.files("plain")} == set(all_scenarios())
    assert list(all_scenarios()) == COUNTED
    steps = {row.name: row.requests for row in counted()}
    assert [(name, step) for name, known in KNOWN.items() for step in known if step not in steps.get(name, {})] == []
