"""The embedded server answers scenarios as the real one did, but for the steps that differences.yaml lists with a reason.

``make test-proxy`` and ``make test-proxy-real`` run the scenarios through a proxy, which must change nothing but what through_rules.py
lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import recordings
from tests.conformance.counted import (
    DOCUMENT,
    LEAST_IN_ALL,
    LEAST_OF_EACH,
    LEAST_STEPS,
    Differences,
    counted,
    coverage,
    document,
    known_differences,
)
from tests.conformance.normalise import ADDRESS
from tests.conformance.replay import COUNTED, all_scenarios, replay
from tests.conformance.servers import fresh_server
from tests.conformance.through_rules import THROUGH_RULES, through_rules
from tests.conformance.wire import Server
from tests.proxy.in_front import caching_proxy_is_wanted
from tests.servers import proxy_is_wanted, real_is_wanted

#: The recordings are those of a real server.
KNOWN: Differences = {} if real_is_wanted() else known_differences()
#: Steps whose answers depend on the time.
TIMED: Differences = {}
if real_is_wanted():
    TIMED["crd-versions"] = {14: "429 is the answer only while a new watch cache of the real server is not filled."}
if caching_proxy_is_wanted():
    TIMED["rbac-escalation"] = {47: "The cache remembers a refusal for 10 s, with the reason that it had at first."}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with fresh_server(tmp_path_factory.mktemp("conformance"), proxy=proxy_is_wanted()) as server:
        yield server


@pytest.mark.parametrize("name", COUNTED)
def test_every_answer_is_the_real_servers(started: Server, name: str, tmp_path: Path) -> None:
    by_design = through_rules(name)
    timed = TIMED.get(name, {})
    known = {**KNOWN.get(name, {}), **by_design, **timed}
    found = replay(started, name, known)
    if found.shown and ADDRESS.search(str(all_scenarios()[name])):
        # A cluster IP is drawn at random: it may equal an address that the script uses for another purpose.
        with fresh_server(tmp_path, proxy=proxy_is_wanted()) as server:
            found = replay(server, name, known)
    assert not found.shown, "\n".join(found.shown[:12])
    equal = sorted(found.equal - set(timed))
    assert not equal, f"{equal} of {name} no longer differ: take them out of differences.yaml or through_rules.py"
    assert {step: unexpected for step, why in by_design.items() if (unexpected := why.unexpected(found.known[step]))} == {}
    if not known:
        assert found.surprises == []


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
    listed = [(name, step) for table in (known_differences(), THROUGH_RULES) for name, known in table.items() for step in known]
    assert [(name, step) for name, step in listed if step not in steps.get(name, {})] == []
