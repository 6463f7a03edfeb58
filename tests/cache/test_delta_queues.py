"""Both queues under one contract, and where they differ: by their sentences, and against each other under any history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import Head, HeadReader, StringInterner
from kubeloop.cache.deltas import (
    Delta,
    DeltaFifo,
    DeltaQueue,
    InformerQueue,
    Known,
    Removed,
    Replaced,
    Resync,
    Upserted,
    VersionBookmark,
)
from kubeloop.cache.handlers.event import EventType
from kubeloop.cache.pipeline import StoreChange, apply
from kubeloop.cache.store.store import Store

READER = HeadReader("v1", "Pod", (), BlobStore(), StringInterner())
BOTH = pytest.mark.parametrize("queue", [pytest.param(DeltaQueue, id="in order"), pytest.param(DeltaFifo, id="by object")])
Make = Callable[[Known], InformerQueue]
Delivery = tuple[str, str, bool]


def head(name: str, version: int, namespace: str = "ns") -> Head:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(version)}
    document = msgspec.json.encode({"kind": "Pod", "apiVersion": "v1", "metadata": metadata})
    return READER.head(READER.projection.object(document), memoryview(document), None)


class Line:
    """A queue before a store, and the events that handlers got."""

    def __init__(self, make: Make) -> None:
        self.store = Store()
        self.queue = make(self.store)
        self.delivered: list[Delivery] = []
        self.resynced: list[object] = []

    def push(self, *deltas: Delta) -> Line:
        for delta in deltas:
            self.queue.push(delta)
        return self

    def drain(self) -> list[Delivery]:
        """Apply all waiting deltas; return the events delivered meanwhile."""
        before = len(self.delivered)
        while self.queue:
            self.apply(self.queue.pop())
        return self.delivered[before:]

    def apply(self, delta: Delta) -> None:
        """As the pipeline does: a resync is a replay of the store."""
        if isinstance(delta, Resync):
            for each in self.store.snapshot():
                self.see(StoreChange(EventType.RESYNC, each, each, False, delta.handler))
        for change in apply(self.store, delta):
            self.see(change)

    def see(self, change: StoreChange) -> None:
        kind, now = change.type, change.head
        shown = self.store.get(now.namespace, now.name)
        seen = (
            shown is None if kind == "DELETED" else shown is not None and int(shown.resource_version or 0) >= int(now.resource_version or 0)
        )
        assert seen, "the store shows that state or a later one before it is delivered [E58]"
        if kind == "RESYNC":
            self.resynced.append(change.handler)
        self.delivered.append((kind.value, f"{now.name}@{now.resource_version}", change.tombstone))

    @property
    def names(self) -> set[str]:
        return {f"{each.name}@{each.resource_version}" for each in self.store.heads()}


# ------------------------------------------------------------------------------------------------------- what both promise


@BOTH
@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        pytest.param(
            (),
            [Upserted(head("a", 1)), Upserted(head("a", 2)), Removed(head("a", 3))],
            ["ADDED a@1", "MODIFIED a@2", "DELETED a@3"],
            id="add, update and delete of one object are three deltas, none merged [D44]",
        ),
        pytest.param(
            ("a@1",),
            [Removed(head("a", 2)), Upserted(head("a", 3))],
            ["DELETED a@2", "ADDED a@3"],
            id="an object made again after its deletion is both",
        ),
        pytest.param(
            ("a@1", "b@2"),
            [Replaced((head("b", 2),), "5")],
            ["DELETED a@1 tombstone"],
            id="a list deletes what the store has and it lacks, with the state of the store [D46]",
        ),
        pytest.param(
            (),
            [Upserted(head("a", 1)), Upserted(head("a", 2)), Replaced((), "5")],
            ["ADDED a@1", "MODIFIED a@2", "DELETED a@2 tombstone"],
            id="a list deletes what only waited in the queue, with its newest state [D46]",
        ),
        pytest.param(
            ("a@1", "b@2", "c@3"),
            [Replaced((head("d", 9), head("c", 8), head("b", 2)), "9")],
            ["DELETED a@1 tombstone", "ADDED d@9", "MODIFIED c@8"],
            id="of a list the deletions come first, then its objects in its order [D47, E60]",
        ),
        pytest.param(
            ("a@1",),
            [Removed(head("a", 4)), Replaced((), "5")],
            ["DELETED a@4"],
            id="a deleted object gets no second deletion from a list [D48]",
        ),
        pytest.param(("a@1", "b@2"), [Resync("h")], ["RESYNC a@1", "RESYNC b@2"], id="a resync tells of each object in the store [D49]"),
        pytest.param((), [Resync("h")], [], id="a resync of an empty store tells of nothing [D49]"),
        pytest.param(
            ("a@1", "b@2"),
            [Replaced((), "7", scope="other"), Replaced((head("c", 8, "other"), head("d", 8)), "8", scope="other")],
            ["ADDED c@8"],
            id="a list of one namespace touches no other",
        ),
        pytest.param((), [Replaced((), "3")], [], id="an empty list is a list: it sets the version"),
        pytest.param(
            (),
            [Upserted(head("a", 1)), Replaced((head("a", 2), head("a", 3)), "5")],
            ["ADDED a@1", "MODIFIED a@2", "MODIFIED a@3"],
            id="an object that a list names twice has its last state",
        ),
    ],
)
def test_both_queues(queue: Make, first: tuple[str, ...], then: list[Delta], expected: list[str]) -> None:
    line = Line(queue)
    line.push(Replaced(tuple(head(each[0], int(each[2:])) for each in first), "1")).drain()
    found = line.push(*then).drain()
    assert [f"{kind} {name}{' tombstone' * tombstone}" for kind, name, tombstone in found] == expected
    assert len(line.queue) == 0
    with pytest.raises(IndexError):
        line.queue.pop()


@BOTH
def test_the_store_is_at_the_version_of_what_came_last_be_it_list_event_or_bookmark(queue: Make) -> None:
    """[E66]"""
    line = Line(queue)
    versions: list[str] = []
    for delta in (
        Replaced((head("a", 1),), "5"),
        Upserted(head("a", 6)),
        Removed(head("a", 7)),
        VersionBookmark("8"),
        VersionBookmark(""),
        Removed(head("ghost", 9)),
        Resync(None),
    ):
        line.push(delta).drain()
        versions.append(line.store.version)
    assert versions == ["5", "6", "7", "8", "8", "9", "9"]


@BOTH
def test_an_object_without_a_version_leaves_the_version_of_the_store_as_it_is(queue: Make) -> None:
    """[E66]"""
    line = Line(queue)
    line.push(Replaced((), "5"), Upserted(msgspec.structs.replace(head("a", 1), resource_version=""))).drain()
    assert line.store.version == "5"
    assert len(line.store) == 1


@BOTH
def test_a_tombstone_does_not_take_the_version_back(queue: Make) -> None:
    line = Line(queue)
    line.push(Replaced((head("a", 1),), "5")).drain()
    line.push(Removed(head("a", 1), tombstone=True)).drain()
    assert (line.store.version, line.delivered[-1]) == ("5", ("DELETED", "a@1", True))


@BOTH
def test_an_empty_queue_returns_at_once_without_a_waiter_that_has_to_be_unblocked_at_the_end(queue: Make) -> None:
    """client-go's queue blocks its consumer in a thread, and close must wake it; here the one who fills it empties it. [D55]"""
    with pytest.raises(IndexError):
        queue(Store()).pop()


@BOTH
def test_of_every_delta_that_waits_len_knows(queue: Make) -> None:
    line = Line(queue).push(Upserted(head("a", 1)), Upserted(head("b", 2)), Removed(head("b", 3)), VersionBookmark("4"))
    popped = 0
    while left := len(line.queue):
        line.queue.pop()
        popped += 1
        assert len(line.queue) < left
    assert popped == 4


# ------------------------------------------------------------------------------------------------------ what only one does


def test_in_order_nothing_overtakes_over_all_objects() -> None:
    """[D44]"""
    line = Line(DeltaQueue).push(Upserted(head("a", 1)), Upserted(head("b", 2)), Upserted(head("a", 3)), Removed(head("a", 4)))
    assert [name for _, name, _ in line.drain()] == ["a@1", "b@2", "a@3", "a@4"]


def test_in_order_a_deletion_of_an_unknown_object_is_delivered() -> None:
    """[D45]"""
    assert Line(DeltaQueue).push(Removed(head("ghost", 4))).drain() == [("DELETED", "ghost@4", False)]


def test_in_order_a_list_a_resync_and_a_bookmark_are_one_delta_each() -> None:
    """Each is popped alone: there are no batches that would have to be bounded or kept apart. [D50, D53]"""
    deltas: list[Delta] = [Replaced((head("a", 1), head("b", 2)), "3"), Resync(None), VersionBookmark("4")]
    line = Line(DeltaQueue).push(*deltas)
    assert [line.queue.pop() for _ in range(3)] == deltas


def test_in_order_the_version_follows_each_delta() -> None:
    line = Line(DeltaQueue).push(Upserted(head("a", 1)), Upserted(head("b", 2)))
    line.apply(line.queue.pop())
    assert line.store.version == "1"


def test_by_object_a_burst_on_one_key_is_kept_together_and_comes_out_at_once() -> None:
    """Row 87 of the reference table. [D57]"""
    fifo = DeltaFifo(Store())
    for delta in (Upserted(head("a", 1)), Upserted(head("b", 2)), Upserted(head("a", 3)), Removed(head("a", 4))):
        fifo.push(delta)
    assert [delta.head.resource_version for delta in fifo.waiting("ns", "a") if isinstance(delta, Upserted | Removed)] == ["1", "3", "4"]
    popped = [fifo.pop() for _ in range(4)]
    assert [delta.head.resource_version for delta in popped if isinstance(delta, Upserted | Removed)] == ["1", "3", "4", "2"]
    assert fifo.pop() == VersionBookmark("4")


def test_by_object_a_deletion_of_an_unknown_object_is_dropped() -> None:
    """[D57]"""
    line = Line(DeltaFifo).push(Removed(head("ghost", 4)))
    assert line.drain() == []
    assert line.store.version == "4", "it happened all the same"


@pytest.mark.parametrize(
    ("deletions", "left"),
    [
        pytest.param([(4, False), (5, False)], (4, False), id="two deletions in a row are one, the first that was seen [D57]"),
        pytest.param([(4, True), (5, False)], (5, False), id="the seen deletion is kept rather than the tombstone before it [D57]"),
        pytest.param([(4, False), (5, True)], (4, False), id="the seen deletion is kept rather than the tombstone after it [D57]"),
    ],
)
def test_by_object_duplicate_deletions(deletions: list[tuple[int, bool]], left: tuple[int, bool]) -> None:
    fifo = DeltaFifo(Store())
    fifo.push(Upserted(head("a", 1)))
    for version, tombstone in deletions:
        fifo.push(Removed(head("a", version), tombstone))
    last = fifo.waiting("ns", "a")[-1]
    assert isinstance(last, Removed)
    assert (int(last.head.resource_version), last.tombstone, len(fifo.waiting("ns", "a"))) == (*left, 2)


def test_by_object_a_resync_leaves_out_what_has_news_waiting() -> None:
    """[D57]"""
    line = Line(DeltaFifo)
    line.push(Replaced((head("a", 1), head("b", 2)), "2")).drain()
    delivered = line.push(Upserted(head("a", 3)), Resync("handler")).drain()
    assert delivered == [("MODIFIED", "a@3", False), ("RESYNC", "b@2", False)]
    assert line.resynced == ["handler"]


def test_by_object_waiting_deltas_are_known() -> None:
    """Between two pops the store shows less than was popped and pushed."""
    line = Line(DeltaFifo).push(Upserted(head("a", 1)), Upserted(head("a", 2)))
    first = line.queue.pop()
    line.push(Replaced((), "5"))
    line.apply(first)
    assert line.drain() == [("MODIFIED", "a@2", False), ("DELETED", "a@2", True)]
    line.push(Upserted(head("a", 6)), Removed(head("a", 7)))
    line.apply(line.queue.pop())
    assert line.push(Replaced((), "8")).drain() == [("DELETED", "a@7", False)], "its deletion is on its way: no second one"


@pytest.mark.parametrize("last", [Removed(head("a", 4)), Upserted(head("a", 4))])
def test_by_object_a_resync_leaves_out_objects_with_a_waiting_delta(last: Delta) -> None:
    line = Line(DeltaFifo)
    line.push(Upserted(head("a", 3)), last)
    line.apply(line.queue.pop())
    assert [kind for kind, _, _ in line.push(Resync(None)).drain()] == ["DELETED" if isinstance(last, Removed) else "MODIFIED"]


def test_by_object_the_version_comes_when_nothing_is_left_behind_it() -> None:
    line = Line(DeltaFifo).push(Upserted(head("a", 1)), Upserted(head("b", 2)), Upserted(head("a", 9)))
    for _ in range(3):
        line.apply(line.queue.pop())
        assert line.store.version == ""
    line.drain()
    assert line.store.version == "9"


# ------------------------------------------------------------------------------------------------------ under any history

NAMES = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just("change"), NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("replace"), st.lists(NAMES, max_size=3, unique=True)),
    st.tuples(st.just("RESYNC"), st.none()),
    st.tuples(st.just("bookmark"), st.none()),
    st.tuples(st.just("drain"), st.integers(min_value=1, max_value=6)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_whatever_happens_both_end_with_the_same_store_and_tell_each_object_a_history_that_can_be(steps: list[tuple[str, Any]]) -> None:
    """[E61, E68]"""
    lines = [Line(DeltaQueue), Line(DeltaFifo)]
    model: dict[str, int] = {}
    version = 0
    for version, (what, argument) in enumerate(steps, start=1):
        if what == "drain":
            for line in lines:
                for _ in range(min(argument, len(line.queue))):
                    line.apply(line.queue.pop())
            continue
        delta: Delta
        if what == "change":
            model[argument] = version
            delta = Upserted(head(argument, version))
        elif what == "remove":
            # A server sends deletions of what it had.
            if argument not in model:
                continue
            del model[argument]
            delta = Removed(head(argument, version))
        elif what == "replace":
            model = dict.fromkeys(argument, version)
            delta = Replaced(tuple(head(name, version) for name in argument), str(version))
        else:
            delta = Resync(None) if what == "RESYNC" else VersionBookmark(str(version))
        for line in lines:
            line.push(delta)
    for line in lines:
        line.push(VersionBookmark(str(version + 1))).drain()
        assert line.names == {f"{name}@{at}" for name, at in model.items()}
        assert line.store.version == str(version + 1)
        alive: dict[str, int] = {}
        for kind, text, _ in line.delivered:
            name, _, at = text.partition("@")
            if kind == "ADDED":
                assert name not in alive
            else:
                assert name in alive, f"{kind} of what was never added"
                assert alive[name] <= int(at)
            if kind == "DELETED":
                del alive[name]
            else:
                alive[name] = int(at)
        assert alive == model


LISTS = st.lists(st.lists(st.tuples(NAMES, st.integers(min_value=1, max_value=3)), max_size=4, unique_by=lambda each: each[0]), max_size=6)


@settings(max_examples=150, deadline=None)
@given(LISTS)
def test_a_list_gives_the_same_events_and_the_same_store_as_one_delta_and_as_many(lists: list[list[tuple[str, int]]]) -> None:
    """[E61] Which events: deletions in the store's order, then adds and updates in the order of the list."""
    lines = [Line(DeltaQueue), Line(DeltaFifo)]
    stored: dict[str, int] = {}
    for version, shown in enumerate(lists, start=10):
        expected = [("DELETED", f"{name}@{at}", True) for name, at in stored.items() if name not in dict(shown)]
        for name, at in shown:
            if stored.get(name) != at:
                expected.append(("MODIFIED" if name in stored else "ADDED", f"{name}@{at}", False))
        stored = {name: at for name, at in stored.items() if name in dict(shown)} | dict(shown)
        for line in lines:
            assert line.push(Replaced(tuple(head(name, at) for name, at in shown), str(version))).drain() == expected
            assert line.names == {f"{name}@{at}" for name, at in stored.items()}
            assert line.store.version == str(version)


def test_a_sync_that_was_overtaken_by_a_list_shows_no_object_that_is_gone() -> None:
    line = Line(DeltaFifo)
    line.push(Replaced((head("a", 1),), "1")).drain()
    line.push(Resync("h"), Replaced((), "2"))
    assert line.drain() == [("RESYNC", "a@1", False), ("DELETED", "a@1", True)]
