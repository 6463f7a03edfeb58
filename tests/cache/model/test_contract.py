"""The contract checker finds each kind of wrong event and accepts right ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from kubeloop.cache import EventType, InformerEvent
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


def delivery(
    type_: EventType, head: State, old: State | None = None, *, initial: bool = False, tombstone: bool = False
) -> InformerEvent[Any]:
    return InformerEvent(type_, cast("Any", head), cast("Any", old), cast("Any", None), initial=initial, tombstone=tombstone)


KEY = ("default", "n")
ONE, TWO, THREE, AGAIN = State(1), State(2), State(3), State(9, "v")


@pytest.mark.parametrize(
    ("events", "end"),
    [
        pytest.param([delivery(ADDED, ONE), delivery(MODIFIED, TWO, ONE), delivery(DELETED, THREE, TWO)], {}, id="a life"),
        pytest.param(
            [delivery(ADDED, ONE, initial=True), delivery(RESYNC, ONE, ONE)], {KEY: Seen("u", 1)}, id="a resync of the last state"
        ),
        pytest.param(
            [delivery(ADDED, ONE), delivery(DELETED, ONE, ONE, tombstone=True), delivery(ADDED, AGAIN)],
            {KEY: Seen("v", 9)},
            id="a tombstone and a new life",
        ),
        pytest.param(
            [delivery(ADDED, ONE), delivery(MODIFIED, AGAIN, ONE)], {KEY: Seen("v", 9)}, id="a missed deletion, seen as another uid"
        ),
    ],
)
def test_nothing_is_found_in(events: list[InformerEvent[Any]], end: dict[tuple[str, str], Seen]) -> None:
    checker = ContractChecker("handler")
    for event in events:
        checker(event)
    checker.finish(end)
    assert checker.violations == []


@pytest.mark.parametrize(
    ("events", "message"),
    [
        pytest.param([delivery(ADDED, ONE), delivery(ADDED, TWO)], "is there", id="a present object is added"),
        pytest.param([delivery(ADDED, ONE, ONE)], "ADDED with an old state", id="an addition has an old state"),
        pytest.param([delivery(MODIFIED, TWO, ONE)], "it was never added", id="what was never added is updated"),
        pytest.param([delivery(DELETED, TWO, ONE)], "it was never added", id="what was never added is deleted"),
        pytest.param([delivery(ADDED, TWO), delivery(MODIFIED, ONE, TWO)], "versions must rise", id="a version falls"),
        pytest.param([delivery(ADDED, TWO), delivery(MODIFIED, TWO, TWO)], "versions must rise", id="a state is delivered twice"),
        pytest.param(
            [delivery(ADDED, ONE), delivery(MODIFIED, THREE, TWO)], "the last delivered state is", id="an old state was never delivered"
        ),
        pytest.param(
            [delivery(ADDED, ONE), delivery(RESYNC, TWO, TWO)], "resync shows", id="a resync shows a state that was not delivered"
        ),
        pytest.param(
            [delivery(ADDED, ONE), delivery(DELETED, TWO, ONE, tombstone=True)], "tombstone", id="a tombstone is not the last state"
        ),
        pytest.param(
            [delivery(ADDED, THREE), delivery(DELETED, TWO, THREE)], "is newer", id="a deletion is older than the delivered state"
        ),
        pytest.param([delivery(ADDED, ONE), delivery(MODIFIED, TWO, ONE, initial=True)], "said to be initial", id="an update is initial"),
        pytest.param([delivery(ADDED, ONE)], "is there", id="the end is another"),
    ],
)
def test_a_violation_is_found_when(events: list[InformerEvent[Any]], message: str) -> None:
    checker = ContractChecker("handler")
    for event in events:
        checker(event)
    checker.finish({("default", "n"): Seen("u", 4)})
    assert any(message in violation for violation in checker.violations), checker.violations


def test_silence_is_owed_to_a_handler_that_was_removed() -> None:
    checker = ContractChecker("handler")
    checker.removed()
    checker(delivery(ADDED, ONE))
    assert "after the handler was removed" in checker.violations[0]


def test_a_server_that_forgot_may_begin_with_lower_versions_but_not_for_the_same_object() -> None:
    checker = ContractChecker("handler")
    checker.server_forgets = True
    for event in (delivery(ADDED, AGAIN), delivery(MODIFIED, TWO, AGAIN), delivery(MODIFIED, ONE, TWO)):
        checker(event)
    assert len(checker.violations) == 1
    assert "versions must rise" in checker.violations[0]


def test_a_coalescing_handler_may_be_spared_the_last_state_before_a_tombstone() -> None:
    for coalescing in (False, True):
        checker = ContractChecker("handler", coalescing=coalescing)
        checker(delivery(ADDED, ONE))
        checker(delivery(DELETED, TWO, TWO, tombstone=True))
        assert bool(checker.violations) is not coalescing
