"""Snapshots stay at their moment, copy only what changes, and readers in other threads see whole changes."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from kubeloop.cache import ByLabel, Sorted
from kubeloop.cache.blobs.head import Head
from kubeloop.cache.deltas import Replaced
from kubeloop.cache.pipeline import apply
from kubeloop.cache.store.cow_map import PART, CowMap
from kubeloop.cache.store.index import Index
from tests.cache.heads import head, store


@pytest.mark.parametrize("namespace", [None, "ns"])
def test_a_snapshot_never_changes_while_events_arrive(namespace: str | None) -> None:
    """[X2]"""
    into = store()
    for number in range(2000):
        into.put(head(f"pod-{number}"))
    into.put(head("elsewhere", namespace="other"))
    into.version = "7"
    before = into.heads(namespace)
    snapshot = into.snapshot(namespace)
    walk = iter(snapshot)
    seen = [next(walk) for _ in range(500)]
    for number in range(1500):
        into.put(head(f"pod-{number}", 2))
        into.put(head(f"late-{number}"))
        into.remove("ns", f"pod-{number + 500}")
    into.version = "8"
    seen += walk
    assert set(seen) == set(before) == set(snapshot)
    assert (len(seen), len(snapshot), snapshot.version) == (len(before), len(before), "7")
    assert {each.name for each in into.snapshot("other")} == {"elsewhere"}
    assert (len(into.snapshot("nowhere")), list(into.snapshot("nowhere"))) == (0, [])


def test_a_list_once_answered_does_not_change_and_holds_no_key_twice() -> None:
    """[X2]"""
    into = store(node="spec.nodeName")
    into.put(head("a", 1, node="n1"))
    lists = [into.heads(), into.heads("ns"), into.by_index("node", "n1")]
    into.put(head("a", 2, node="n1"))
    into.put(head("b", 3, node="n1"))
    into.remove("ns", "a")
    assert [[each.resource_version for each in one] for one in lists] == [["1"]] * 3


def test_after_a_snapshot_a_part_is_copied_once_and_the_others_stay_shared() -> None:
    cow: CowMap[int] = CowMap()
    for number in range(5000):
        cow.put(str(number), number)
    first = cow.snapshot()
    assert len(first) > 5000 // PART
    cow.put("17", -1)
    cow.put("17", -2)
    second = cow.snapshot()
    assert sum(a is not b for a, b in zip(first, second, strict=True)) == 1
    assert (cow.get("17"), sum(part.get("17", 0) for part in first), sum(part.get("17", 0) for part in second)) == (-2, 17, -2)


@pytest.mark.parametrize("size", [pytest.param(1, id="one part"), pytest.param(5000, id="several parts")])
@pytest.mark.parametrize("change", ["put", "replace", "pop"])
def test_a_change_after_a_snapshot_does_not_show_in_the_snapshot(size: int, change: str) -> None:
    cow: CowMap[int] = CowMap()
    for number in range(size):
        cow.put(str(number), number)
    snapshot = cow.snapshot()
    if change == "put":
        cow.put("new", -1)
    elif change == "replace":
        cow.put("0", -1)
    else:
        cow.pop("0")
    assert dict(pair for part in snapshot for pair in part.items()) == {str(number): number for number in range(size)}


def test_a_part_that_the_map_owns_is_changed_in_place() -> None:
    cow: CowMap[int] = CowMap()
    for number in range(5000):
        cow.put(str(number), number)
    cow.snapshot()
    for number in range(5000):
        cow.put(str(number), -1)
    owned = [id(part) for part in cow._parts]
    for number in range(0, 5000, 7):
        cow.put(str(number), -2)
    cow.pop("17")
    assert [id(part) for part in cow._parts] == owned


def test_a_map_in_parts_equals_a_dict_and_shrinks_with_it() -> None:
    rng = random.Random(4)
    cow: CowMap[int] = CowMap()
    model: dict[str, int] = {}
    snapshots: list[tuple[tuple[dict[str, int], ...], dict[str, int]]] = []
    for step in range(30_000):
        key = str(rng.randrange(6000))
        if rng.random() < (0.2 if step < 15_000 else 0.8):
            assert cow.pop(key) == model.pop(key, None)
        else:
            assert cow.put(key, step) == model.get(key)
            model[key] = step
        if step % 5000 == 0:
            snapshots.append((cow.snapshot(), dict(model)))
    assert dict(pair for part in cow.snapshot() for pair in part.items()) == model
    assert (len(cow), sorted(cow.values()), bool(cow)) == (len(model), sorted(model.values()), True)
    assert all(cow.get(str(number)) == model.get(str(number)) for number in range(6000))
    for parts, then in snapshots:
        assert dict(pair for part in parts for pair in part.items()) == then
    for key in model:
        cow.pop(key)
    assert (len(cow), bool(cow), cow.pop("x"), cow.get("x")) == (0, False, None, None)
    assert len(cow.snapshot()) < 4


# -------------------------------------------------------------------------------------------------------------------- threads


@pytest.fixture
def many_switches() -> Iterator[None]:
    """The interpreter changes threads a thousand times as often as it would: a race has its chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("many_switches")
def test_threads_that_read_while_the_loop_writes_see_each_list_and_index_of_one_moment() -> None:
    """The documented promise of the store to other threads. [X2]

    Each generation replaces all objects at once; whatever a reader is given must be of a single generation, or nothing.
    """
    size, generations = 40, 60
    into = store(rank=Sorted("spec.rank"), team=ByLabel("team"), node="spec.nodeName", name=lambda pod: pod.metadata.name)
    lists = [
        tuple(
            head(f"pod-{number}", generation, labels={"team": f"t{generation}"}, node=f"n{generation}", rank=generation)
            for number in range(generation % 2, size + generation % 2)
        )
        for generation in range(1, generations)
    ]
    always = head("always", namespace="fixed")
    into.put(always)
    done = threading.Event()
    wrong: list[str] = []
    read, now = [0], [1]

    def one_moment(description: str, heads: list[Head], empty_allowed: bool = False) -> None:
        mine = [each for each in heads if each.namespace == "ns"]
        versions = {each.resource_version for each in mine}
        if len(versions) > 1 or (len(mine) != size and not (empty_allowed and not mine)) or len({each.name for each in mine}) != len(mine):
            wrong.append(f"{description}: {len(mine)} objects of generations {versions}")

    def reader() -> None:
        asks: list[Callable[[], object]] = [
            lambda: one_moment("heads", into.heads()),
            lambda: one_moment("namespace", into.heads("ns")),
            lambda: one_moment("snapshot", list(into.snapshot())),
            lambda: one_moment("range", into.range("rank")),
            lambda: one_moment("label", into.by_index("team", f"t{now[0]}"), empty_allowed=True),
            lambda: wrong.extend(f"value {each}" for each in [into.index_values("node")] if len(each) != 2),  # "" is the fixed one's
            lambda: wrong.append("get lost an object") if into.get("fixed", "always") is not always else None,
        ]
        while not done.is_set():
            for ask in asks:
                try:
                    ask()
                except Exception as error:  # noqa: BLE001 - a thread's exception must reach the test
                    wrong.append(repr(error))
                read[0] += 1

    apply(into, Replaced((always, *lists[0]), "0"))
    threads = [threading.Thread(target=reader) for _ in range(3)]
    for thread in threads:
        thread.start()
    for generation, heads in enumerate(lists, start=1):
        now[0] = generation
        apply(into, Replaced(heads, str(generation), scope="ns"))
        apply(into, Replaced(heads, str(generation), scope="ns"))
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert read[0] > 0


@pytest.mark.usefixtures("many_switches")
def test_a_get_in_another_thread_finds_what_was_there_all_along_while_parts_split_and_join() -> None:
    into = store()
    fixed = [head(f"fixed-{number}") for number in range(50)]
    for each in fixed:
        into.put(each)
    done = threading.Event()
    lost: list[str] = []

    def reader() -> None:
        while not done.is_set():
            lost.extend(each.name for each in fixed if into.get("ns", each.name) is not each)

    threads = [threading.Thread(target=reader) for _ in range(2)]
    for thread in threads:
        thread.start()
    passing = [head(f"passing-{number}") for number in range(4 * PART)]
    for each in passing:
        into.put(each)
    into.snapshot()
    for each in passing:
        into.remove("ns", each.name)
    done.set()
    for thread in threads:
        thread.join()
    assert (lost, len(into)) == ([], 50)


def test_who_changes_several_things_at_once_holds_the_lock_and_index_functions_may_read_inside_it() -> None:
    into = store()
    counted: list[int] = []

    def count(_: Head) -> tuple[str, ...]:
        counted.append(len(into.heads()))
        return ()

    into.add_index(Index("count", None, count))
    with into.lock:
        into.put(head("a"))
        into.put(head("b"))
    assert counted == [1, 2]
