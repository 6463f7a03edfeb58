"""The contract checker finds each way in which a handler can be told wrong, and nothing in what is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from kubeloop.cache import Event, EventType
from tests.cache.model.contract import ContractChecker, Seen

ADDED, MODIFIED, DELETED, RESYNC = EventType.ADDED, EventType.MODIFIED, EventType.DELETED, EventType.RESYNC


@dataclass(frozen=True)
class State:
    """What the checker reads of a head."""

    version: int
    uid: str = "u"
    name: str = "n"
    namespace: str = "default"

    @property
    def resource_version(self) -> str:
        return str(self.version)


def told(type_: EventType, head: State, old: State | None = None, *, initial: bool = False, tombstone: bool = False) -> Event[Any]:
    return Event(type_, cast("Any", head), cast("Any", old), cast("Any", None), initial=initial, tombstone=tombstone)


KEY = ("default", "n")
ONE, TWO, THREE, AGAIN = State(1), State(2), State(3), State(9, "v")


@pytest.mark.parametrize(
    ("events", "end"),
    [
        pytest.param([told(ADDED, ONE), told(MODIFIED, TWO, ONE), told(DELETED, THREE, TWO)], {}, id="a life"),
        pytest.param([told(ADDED, ONE, initial=True), told(RESYNC, ONE, ONE)], {KEY: Seen("u", 1)}, id="a resync of the last state"),
        pytest.param(
            [told(ADDED, ONE), told(DELETED, ONE, ONE, tombstone=True), told(ADDED, AGAIN)],
            {KEY: Seen("v", 9)},
            id="a tombstone and a new life",
        ),
        pytest.param([told(ADDED, ONE), told(MODIFIED, AGAIN, ONE)], {KEY: Seen("v", 9)}, id="a missed deletion, seen as another uid"),
    ],
)
def test_nothing_is_found_in(events: list[Event[Any]], end: dict[tuple[str, str], Seen]) -> None:
    checker = ContractChecker("handler")
    for event in events:
        checker(event)
    checker.finish(end)
    assert checker.violations == []


@pytest.mark.parametrize(
    ("events", "what"),
    [
        pytest.param([told(ADDED, ONE), told(ADDED, TWO)], "is there", id="what is there is added"),
        pytest.param([told(ADDED, ONE, ONE)], "ADDED with an old state", id="an addition has an old state"),
        pytest.param([told(MODIFIED, TWO, ONE)], "it was never added", id="what was never added is updated"),
        pytest.param([told(DELETED, TWO, ONE)], "it was never added", id="what was never added is deleted"),
        pytest.param([told(ADDED, TWO), told(MODIFIED, ONE, TWO)], "versions must rise", id="a version falls"),
        pytest.param([told(ADDED, TWO), told(MODIFIED, TWO, TWO)], "versions must rise", id="a state is told twice"),
        pytest.param([told(ADDED, ONE), told(MODIFIED, THREE, TWO)], "the last state told is", id="an old state was never told"),
        pytest.param([told(ADDED, ONE), told(RESYNC, TWO, TWO)], "resync shows", id="a resync shows what was not told"),
        pytest.param([told(ADDED, ONE), told(DELETED, TWO, ONE, tombstone=True)], "tombstone", id="a tombstone is not the last state"),
        pytest.param([told(ADDED, THREE), told(DELETED, TWO, THREE)], "is newer", id="a deletion is older than what was told"),
        pytest.param([told(ADDED, ONE), told(MODIFIED, TWO, ONE, initial=True)], "said to be initial", id="an update is initial"),
        pytest.param([told(ADDED, ONE)], "is there", id="the end is another"),
    ],
)
def test_a_violation_is_found_when(events: list[Event[Any]], what: str) -> None:
    checker = ContractChecker("handler")
    for event in events:
        checker(event)
    checker.finish({("default", "n"): Seen("u", 4)})
    assert any(what in violation for violation in checker.violations), checker.violations


def test_silence_is_owed_to_a_handler_that_was_removed() -> None:
    checker = ContractChecker("handler")
    checker.removed()
    checker(told(ADDED, ONE))
    assert "after the handler was removed" in checker.violations[0]


def test_a_server_that_forgot_may_begin_with_lower_versions_but_not_for_the_same_object() -> None:
    checker = ContractChecker("handler")
    checker.server_forgets = True
    for event in (told(ADDED, AGAIN), told(MODIFIED, TWO, AGAIN), told(MODIFIED, ONE, TWO)):
        checker(event)
    assert len(checker.violations) == 1
    assert "versions must rise" in checker.violations[0]


def test_a_coalescing_handler_may_be_spared_the_last_state_before_a_tombstone() -> None:
    for coalescing in (False, True):
        checker = ContractChecker("handler", coalescing=coalescing)
        checker(told(ADDED, ONE))
        checker(told(DELETED, TWO, TWO, tombstone=True))
        assert bool(checker.violations) is not coalescing
