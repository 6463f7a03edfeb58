"""What waits for a handler: replays, and changes that become one (``coalesce=True``)."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.api.core.v1 import Pod
from kubeloop.cache.blobs.head import Head
from kubeloop.cache.handlers.buffer import Buffer, Replay, merge
from kubeloop.cache.handlers.event import EventType, InformerEvent
from kubeloop.cache.lister.view import CacheView
from kubeloop.cache.store.store import Store
from tests.cache.heads import head

ADDED, MODIFIED, DELETED, RESYNC = EventType.ADDED, EventType.MODIFIED, EventType.DELETED, EventType.RESYNC
VIEW: CacheView[Pod] = CacheView(Store(), Pod, "test")
ONE, TWO, THREE, OTHER = head("a", 1), head("a", 2), head("a", 3), head("a", 4, uid="another")


def event(kind: EventType, new: Head, old: Head | None = None, received: float = 0.0) -> InformerEvent[Pod]:
    return InformerEvent(kind, new, old, VIEW, received=received)


def shown(events: tuple[InformerEvent[Pod], ...] | list[InformerEvent[Pod]]) -> list[str]:
    return [
        " ".join([one.type.value, *([one.old.resource_version] if one.old else []), one.head.resource_version, one.head.uid])
        for one in events
    ]


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        pytest.param((ADDED, ONE), (MODIFIED, TWO, ONE), ["ADDED 2 u"], id="added and updated is added, with the new state"),
        pytest.param((ADDED, ONE), (DELETED, TWO, ONE), [], id="added and deleted is nothing, as it was never seen"),
        pytest.param((ADDED, ONE), (RESYNC, ONE, ONE), ["ADDED 1 u"], id="a resync adds nothing to an event that still waits"),
        pytest.param(
            (MODIFIED, TWO, ONE),
            (MODIFIED, THREE, TWO),
            ["MODIFIED 1 3 u"],
            id="two updates are one, from first to last",
        ),
        pytest.param((MODIFIED, TWO, ONE), (DELETED, THREE, TWO), ["DELETED 1 3 u"], id="updated and deleted is deleted"),
        pytest.param((MODIFIED, TWO, ONE), (RESYNC, TWO, TWO), ["MODIFIED 1 2 u"], id="a resync gives way to an update before it"),
        pytest.param((RESYNC, ONE, ONE), (MODIFIED, TWO, ONE), ["MODIFIED 1 2 u"], id="a resync gives way to an update after it"),
        pytest.param((RESYNC, ONE, ONE), (DELETED, TWO, ONE), ["DELETED 1 2 u"], id="a resync gives way to a deletion"),
        pytest.param(
            (DELETED, TWO, ONE),
            (ADDED, OTHER),
            ["DELETED 1 2 u", "ADDED 4 another"],
            id="deleted and made again stays two",
        ),
        pytest.param(
            (DELETED, TWO, ONE), (ADDED, THREE), ["DELETED 1 2 u", "ADDED 3 u"], id="a deletion and a new creation stay two events"
        ),
        pytest.param(
            (MODIFIED, TWO, ONE),
            (MODIFIED, OTHER, TWO),
            ["MODIFIED 1 2 u", "MODIFIED 2 4 another"],
            id="updates of two objects of one name stay two [X1]",
        ),
    ],
)
def test_of_two_changes_of_one_object(first: tuple[EventType, Head], second: tuple[EventType, Head], left: list[str]) -> None:
    assert shown(merge(event(*first), event(*second))) == left


def test_a_merged_change_keeps_the_age_of_the_first() -> None:
    (merged,) = merge(event(MODIFIED, TWO, ONE, received=5.0), event(MODIFIED, THREE, TWO, received=9.0))
    assert merged.received == 5.0


def test_changes_of_other_objects_are_not_merged_and_keep_their_places() -> None:
    buffer: Buffer[Pod] = Buffer(merging=True)
    other = head("b", 5)
    for one in (event(ADDED, ONE), event(ADDED, other), event(MODIFIED, TWO, ONE)):
        buffer.put(one)
    assert (len(buffer), buffer.changes, buffer.merged) == (2, 2, 1)
    assert shown([_taken(buffer), _taken(buffer)]) == ["ADDED 2 u", "ADDED 5 u"]
    with pytest.raises(IndexError):
        buffer.take()


def test_what_came_to_nothing_is_not_counted_and_the_change_before_it_can_merge_again() -> None:
    buffer: Buffer[Pod] = Buffer(merging=True)
    for one in (event(DELETED, TWO, ONE), event(ADDED, OTHER), event(DELETED, OTHER, OTHER), event(RESYNC, ONE, ONE)):
        buffer.put(one)
    assert len(buffer) == 2
    assert shown([_taken(buffer), _taken(buffer)]) == ["DELETED 1 2 u", "RESYNC 1 1 u"]
    assert len(buffer) == 0


def test_changes_are_not_merged_across_a_replay_which_would_then_show_the_older_state_last() -> None:
    buffer: Buffer[Pod] = Buffer(merging=True)
    buffer.put(event(MODIFIED, TWO, ONE))
    buffer.replay(Replay(RESYNC, [TWO], VIEW, 0.0))
    buffer.put(event(MODIFIED, THREE, TWO))
    assert buffer.resyncing
    assert shown([_taken(buffer) for _ in range(3)]) == ["MODIFIED 1 2 u", "RESYNC 2 2 u", "MODIFIED 2 3 u"]
    assert not buffer.resyncing


def test_a_replay_makes_its_events_when_their_turn_comes_and_what_came_after_it_comes_after_it() -> None:
    heads = [head(name, number) for number, name in enumerate("abc")]
    buffer: Buffer[Pod] = Buffer()
    buffer.replay(Replay(ADDED, heads, VIEW, 3.0))
    buffer.put(event(MODIFIED, TWO, ONE, received=4.0))
    assert (len(buffer), buffer.changes, buffer.oldest()) == (4, 2, 3.0)
    first = _taken(buffer)
    assert (first.head, first.initial, first.old) == (heads[0], True, None)
    assert len(buffer) == 3
    assert [_taken(buffer).head for _ in range(3)] == [heads[1], heads[2], TWO]
    assert len(buffer) == 0
    assert buffer.oldest() is None


def _taken(buffer: Buffer[Pod]) -> InformerEvent[Pod]:
    taken = buffer.take()
    assert taken is not None
    return taken


# What happens to one name on a server, and when the handler takes an event.
STEPS = st.lists(st.sampled_from(["create", "update", "delete", "recreate unseen", "RESYNC", "RESYNC all", "take", "take"]), max_size=40)


@given(STEPS)
def test_whatever_happens_a_merging_buffer_tells_a_history_that_the_contract_allows_and_the_last_state(steps: list[str]) -> None:
    buffer: Buffer[Pod] = Buffer(merging=True)
    now: Head | None = None
    uid, most = 0, 0
    delivered: deque[InformerEvent[Pod]] = deque()
    for version, step in enumerate([*steps, *["take"] * 200], start=1):
        if step == "create" and now is None:
            uid += 1
            now = head("a", version, uid=str(uid))
            buffer.put(event(ADDED, now))
        elif step == "update" and now is not None:
            old, now = now, head("a", version, uid=str(uid))
            buffer.put(event(MODIFIED, now, old))
        elif step == "recreate unseen" and now is not None:
            uid += 1
            old, now = now, head("a", version, uid=str(uid))
            buffer.put(event(MODIFIED, now, old))
        elif step == "delete" and now is not None:
            buffer.put(event(DELETED, head("a", version, uid=str(uid)), now))
            now = None
        elif step == "RESYNC" and now is not None:
            buffer.put(event(RESYNC, now, now))
        elif step == "RESYNC all" and now is not None and not buffer.resyncing:
            buffer.replay(Replay(RESYNC, [now], VIEW, 0.0))
        elif step == "take" and len(buffer):
            delivered.append(_taken(buffer))
        if "recreate unseen" not in steps and "RESYNC all" not in steps:
            most = max(most, len(buffer))
    assert len(buffer) == 0
    assert most <= 2
    known: Head | None = None
    for one in delivered:
        if one.type is ADDED:
            assert known is None
            known = one.head
        elif one.type is DELETED:
            assert known is not None
            assert one.head.uid == known.uid
            known = None
        else:
            assert known is not None
            assert one.old is not None
            assert one.old.resource_version == known.resource_version
            assert int(one.head.resource_version) >= int(known.resource_version)
            known = one.head
    assert known is now or (known is not None and now is not None and known.resource_version == now.resource_version)
