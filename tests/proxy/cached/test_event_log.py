"""The ring of recent changes: bounded, and honest about what it no longer has."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.proxy.cached.event_log import FRAMES, CachedEvent, EventLog


class _Head:
    """As much of a head as the log reads."""

    def __init__(self, name: str, size: int) -> None:
        self.namespace, self.name, self.stored_bytes = "shop", name, size

    def document(self) -> bytes:
        return b"{}"


def event(version: int, *, size: int = 10, deleted: bool = False, name: str = "a") -> CachedEvent:
    head: Any = _Head(name, size)
    return CachedEvent(version, None, head, deleted=deleted)


def log_of(*versions: int, begin: int = 1, **limits: int) -> EventLog:
    log = EventLog(**limits)
    log.restart(begin)
    for version in versions:
        log.append(event(version))
    return log


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param(1, [3, 5, 8], id="a watch from the list's version gets all changes"),
        pytest.param(3, [5, 8], id="a watch from a change gets the changes after it"),
        pytest.param(4, [5, 8], id="a watch from a version between two changes gets the later one"),
        pytest.param(8, [], id="a watch from the newest version gets none"),
        pytest.param(20, [], id="a watch from a future version gets none"),
        pytest.param(0, None, id="a version before the list is too old"),
    ],
)
def test_after(version: int, expected: list[int] | None) -> None:
    log = log_of(3, 5, 8)
    position = log.after(version)
    assert (None if position is None else [each.version for each in log.since(position)]) == expected


def test_a_full_log_drops_the_oldest_changes_and_says_from_where_it_is_complete() -> None:
    log = log_of(*range(2, 102), max_events=16)
    assert log.after(log.oldest) == log.begin
    assert log.after(log.oldest - 1) is None
    assert [each.version for each in log.since(log.begin)] == list(range(log.oldest + 1, 102))
    assert 16 <= log.end - log.begin <= 19
    assert log.end == 100


def test_large_objects_fill_the_log_by_their_bytes() -> None:
    log = EventLog(max_bytes=1000)
    for version in range(1, 200):
        log.append(event(version, size=100))
    assert 1 <= log.end - log.begin <= 10


def test_one_object_larger_than_the_log_stays_in_it() -> None:
    log = EventLog(max_bytes=1000)
    log.append(event(1))
    log.append(event(2, size=5000))
    assert [each.version for each in log.since(log.begin)] == [2]


def test_a_restart_keeps_counting_positions() -> None:
    log = log_of(2, 3)
    log.restart(9)
    assert (log.begin, log.end, log.oldest) == (2, 2, 9)
    assert log.after(3) is None
    assert log.after(9) == 2


def test_frames_of_the_newest_changes_only_are_cached() -> None:
    log = log_of(*range(2, FRAMES + 3))
    old, new = log.since(log.begin)[0], log.since(log.end - 1)[0]
    assert new.frame("ADDED") is new.frame("ADDED")
    assert old.frame("ADDED") is not old.frame("ADDED")


def test_a_deletion_after_a_version_is_found() -> None:
    log = log_of(2)
    log.append(event(3, deleted=True, name="b"))
    assert log.deleted_after("shop", "b", 2)
    assert not log.deleted_after("shop", "b", 3)
    assert not log.deleted_after("shop", "a", 0)
