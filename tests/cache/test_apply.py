"""The effect of deltas on a store, and the events of handlers. Each name is the rule; numbers are those of its behaviours."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import ByLabel, DeltaFifo, DeltaQueue, InformerEvent, InformerFactory, Sorted
from kubeloop.cache.deltas import Delta, Removed, Replaced, Resync, Sync, Upserted, VersionBookmark
from kubeloop.cache.pipeline import apply
from kubeloop.cache.store.store import Store
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import parse_label_selector
from kubeloop.timing import FakeClock
from tests.cache.heads import head, store
from tests.cache.source import Source, until

Delivery = tuple[str, str, str | None, bool]


def applied(into: Store, *deltas: Delta) -> list[Delivery]:
    """Kind, name@version, version before, tombstone."""
    delivered: list[Delivery] = []
    for delta in deltas:
        for change in apply(into, delta):
            now, old = change.head, change.old
            shown = into.get(now.namespace, now.name)
            assert shown is None if change.type == "DELETED" else shown is not None, "the store shows a change before it is delivered [E58]"
            before = None if old is None else old.resource_version
            delivered.append((change.type.value, f"{now.name}@{now.resource_version}", before, change.tombstone))
    return delivered


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        pytest.param([Upserted(head("a", 1))], [("ADDED", "a@1", None, False)], id="what the store lacks is added [E59]"),
        pytest.param(
            [Upserted(head("a", 1)), Upserted(head("a", 2))], [("MODIFIED", "a@2", "1", False)], id="what it has is updated [E59]"
        ),
        pytest.param(
            [Upserted(head("a", 1)), Upserted(head("a", 1))], [("ADDED", "a@1", None, False)], id="a state seen twice is delivered once"
        ),
        pytest.param([Removed(head("ghost", 4))], [("DELETED", "ghost@4", None, False)], id="an unexpected deletion is delivered [D45]"),
        pytest.param([Upserted(head("a", 1)), Removed(head("a", 2))], [("DELETED", "a@2", "1", False)], id="a deletion has both states"),
        pytest.param(
            [Upserted(head("a", 1)), Removed(head("a", 1), tombstone=True)],
            [("DELETED", "a@1", "1", True)],
            id="a deletion that was not seen is delivered as a tombstone with the last state known [E63]",
        ),
        pytest.param(
            [Upserted(head("a", 1)), Removed(head("a", 2)), Replaced((), "3")],
            [("DELETED", "a@2", "1", False)],
            id="after a deletion a list makes no second one [D48]",
        ),
        pytest.param(
            [Replaced((head("a", 1),), "1"), Replaced((head("a", 1),), "9")],
            [("ADDED", "a@1", None, False)],
            id="an object that a relist shows unchanged is no event; who wants all of them asks for a resync [E60]",
        ),
        pytest.param([Resync("h")], [], id="a resync changes nothing"),
        pytest.param([Sync(head("a", 1), "h")], [("RESYNC", "a@1", "1", False)], id="a resync has the same state twice [D49]"),
        pytest.param([VersionBookmark("4")], [], id="a bookmark is delivered to no handler"),
    ],
)
def test_of_the_last_delta(deltas: list[Delta], expected: list[Delivery]) -> None:
    into = store()
    if any(isinstance(each, Sync) for each in deltas):
        into.put(head("a", 1))
    assert applied(into, *deltas)[-1:] == expected[-1:]


def test_of_a_relist_the_deletions_come_first_then_the_list_in_its_order() -> None:
    """[D47, E60]"""
    into = store()
    applied(into, Replaced((head("a", 1), head("b", 2), head("c", 3)), "3"))
    delivered = applied(into, Replaced((head("d", 9), head("c", 8), head("b", 2)), "9"))
    assert delivered == [("DELETED", "a@1", "1", True), ("ADDED", "d@9", None, False), ("MODIFIED", "c@8", "3", False)]
    assert into.version == "9"


def test_a_relist_is_done_in_the_store_before_the_first_handler_hears_of_it() -> None:
    """One transaction: a handler that gets one object sees all of the list. [D50, E58, E65]"""
    into = store()
    applied(into, Replaced((head("a", 1), head("b", 1)), "1"))
    changes = apply(into, Replaced((head("b", 2), head("c", 2)), "2"))
    assert [each.name for each in into.heads()] == ["b", "c"]
    assert len(list(changes)) == 3


def test_a_relist_of_one_namespace_leaves_the_others_as_they_are() -> None:
    into = store()
    applied(into, Replaced((head("a", 1), head("b", 2, namespace="other")), "2"))
    delivered = applied(into, Replaced((head("c", 3), head("stray", 3, namespace="other")), "5", scope="ns"))
    assert delivered == [("DELETED", "a@1", "1", True), ("ADDED", "c@3", None, False)]
    assert [(each.namespace, each.name) for each in into.heads()] == [("other", "b"), ("ns", "c")]
    assert applied(into, Replaced((), "6", scope="empty")) == []


def test_an_object_deleted_and_made_again_between_two_lists_is_one_update() -> None:
    """[X1]"""
    into = store()
    applied(into, Replaced((head("a", 1),), "1"))
    assert applied(into, Replaced((head("a", 5, uid="another"),), "5")) == [("MODIFIED", "a@5", "1", False)]


def test_objects_without_versions_always_count_as_changed() -> None:
    delivered = applied(store(), Upserted(head("a", "")), Upserted(head("a", "")))
    assert [kind for kind, *_ in delivered] == ["ADDED", "MODIFIED"]


def test_the_store_knows_the_version_it_is_at() -> None:
    """[E66]"""
    into = store()
    seen = []
    for delta in (Replaced((head("a", 1),), "5"), Upserted(head("a", 6)), Removed(head("a", 7)), VersionBookmark("8"), VersionBookmark("")):
        applied(into, delta)
        seen.append(into.version)
    assert seen == ["5", "6", "7", "8", "8"]


# ---------------------------------------------------------------------------------------------------------- through an informer


@pytest.mark.parametrize("queue", [pytest.param(None, id="in order"), pytest.param(DeltaFifo, id="by object")])
async def test_an_informer_with_either_queue(source: Source, api: Client, clock: FakeClock, queue: type[DeltaFifo] | None) -> None:
    """... decides added or updated by its store [E59], relists as it must [E60], and calls only the first list initial [D52, E62]."""
    lines: list[str] = []

    def seen(event: InformerEvent[ConfigMap]) -> None:
        lines.append(f"{'initial ' * event.initial}{event.type.value} {event.head.name}{' tombstone' * event.tombstone}")

    source.put("a")
    source.put("b")
    async with InformerFactory(api, clock=clock) as informers:
        maps = (
            informers.for_kind(ConfigMap, queue=queue, namespace=ALL_NAMESPACES)
            if queue
            else informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        )
        handler = maps.on_event(added=seen, updated=seen, deleted=seen)
        assert (maps.synced, handler.synced) == (False, False), "before the first list nothing is synced [D51]"
        await handler.wait_synced()
        await until(lambda: source.watches == 1)
        source.send({"type": "ADDED", "object": source.put("a", n="1", hide=True)})
        source.send({"type": "MODIFIED", "object": source.put("c", hide=True)})
        source.delete("b")
        await until(lambda: len(lines) == 5)
        assert lines == ["initial ADDED a", "initial ADDED b", "MODIFIED a", "ADDED c", "DELETED b"]
        assert maps.resource_version == str(source.version)
        lines.clear()
        source.delete("a", hide=True)
        source.put("d", hide=True)
        source.put("c", hide=True, n="2")
        source.compact()
        source.error_event({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired", "message": "gone"})
        async with asyncio.timeout(5):
            while len(lines) < 3:  # it may back off before it lists again
                await clock.advance(0.05)
                await asyncio.sleep(0.001)
        assert lines == ["DELETED a tombstone", "MODIFIED c", "ADDED d"]
        assert {head.name for head in maps.lister.heads()} == {"c", "d"}
        assert maps.resource_version == str(source.version)


@pytest.mark.parametrize("queue", [pytest.param(DeltaQueue, id="in order"), pytest.param(DeltaFifo, id="by object")])
async def test_an_empty_first_list_syncs_at_once(
    source: Source, api: Client, clock: FakeClock, queue: type[DeltaQueue | DeltaFifo]
) -> None:
    """[D51]"""
    async with InformerFactory(api, clock=clock) as informers:
        maps = informers.for_kind(ConfigMap, queue=queue, namespace=ALL_NAMESPACES)
        handler = maps.on_event(added=lambda event: None)
        await handler.wait_synced()
        assert (maps.synced, len(maps.lister), maps.resource_version) == (True, 0, str(source.version))


async def test_by_object_too_a_resync_reaches_the_handler_that_asked_for_it(source: Source, api: Client, clock: FakeClock) -> None:
    resynced, others = list[str](), list[str]()
    source.put("a")
    async with InformerFactory(api, clock=clock) as informers:
        maps = informers.for_kind(ConfigMap, queue=DeltaFifo, namespace=ALL_NAMESPACES)
        maps.on_event(updated=lambda event: resynced.append(f"{event.type.value} {event.head.name}"), resync=30)
        maps.on_event(updated=lambda event: others.append(event.head.name))
        await informers.wait_synced()
        await clock.advance(30)
        await until(lambda: resynced == ["RESYNC a"])
    assert others == []


async def test_an_informer_keeps_label_and_sorted_indexes(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a", label_team="red", rank="2")
    async with InformerFactory(api, clock=clock) as informers:
        size = Sorted[ConfigMap](lambda each: len(each.data))
        maps = informers.for_kind(
            ConfigMap, indexes={"rank": Sorted("data.rank"), "team": ByLabel("team"), "size": size}, namespace=ALL_NAMESPACES
        )
        assert (
            informers.for_kind(ConfigMap, indexes={"team": ByLabel("team"), "rank": Sorted("data.rank")}, namespace=ALL_NAMESPACES) is maps
        ), "the same indexes"
        with pytest.raises(ValueError, match='index "team" exists already, over ByLabel'):
            informers.for_kind(ConfigMap, indexes={"team": ByLabel("squad")}, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        source.put("b", label_team="red", rank="1", more="x")
        await until(lambda: len(maps.lister) == 2)
        assert [each.metadata.name for each in maps.lister.range("rank")] == ["b", "a"]
        assert [each.metadata.name for each in maps.lister.range("size", reverse=True, limit=1)] == ["b"]
        assert [head.name for head in maps.lister.heads_by_index("team", "red")] == ["a", "b"]


async def test_an_informer_with_another_queue_is_another_informer(api: Client, clock: FakeClock) -> None:
    informers = InformerFactory(api, clock=clock)
    assert informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES) is not informers.for_kind(
        ConfigMap, queue=DeltaFifo, namespace=ALL_NAMESPACES
    )
    assert informers.for_kind(ConfigMap, queue=DeltaFifo, namespace=ALL_NAMESPACES) is informers.for_kind(
        ConfigMap, queue=DeltaFifo, namespace=ALL_NAMESPACES
    )


async def test_of_everything_nothing_and_some_a_list_by_selector_gives_just_these(source: Source, api: Client, clock: FakeClock) -> None:
    """[G95]"""
    source.put("a", label_app="web", label_tier="1")
    source.put("b", label_app="db")
    async with InformerFactory(api, clock=clock) as informers:
        lister = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES).lister
        await informers.wait_synced()
        for labels, names in (
            (parse_label_selector(""), ["a", "b"]),
            (parse_label_selector("app,!app"), []),
            ("app=web", ["a"]),
            ("tier", ["a"]),
            ("app in (web,db),!tier", ["b"]),
            ({"app": "db"}, ["b"]),
        ):
            assert [head.name for head in lister.heads(label_selector=labels)] == names
            assert [head.name for head in lister.heads("default", labels)] == names
            assert lister.heads("elsewhere", labels) == []
