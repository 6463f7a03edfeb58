"""Handlers, their buffers, and the lister beside them."""

from __future__ import annotations

import asyncio
import random

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import Informer, InformerEvent, InformerFactory, InformerStopped, OutsideScope, UnknownIndex
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.timing import FakeClock
from tests.cache.source import Source, until


class Seen:
    def __init__(self) -> None:
        self.events: list[InformerEvent[ConfigMap]] = []

    def __call__(self, event: InformerEvent[ConfigMap]) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[str]:
        return [f"{'initial ' if event.initial else ''}{event.type.value} {event.key.name}" for event in self.events]


def informers_of(api: Client, clock: FakeClock) -> InformerFactory:
    return InformerFactory(api, clock=clock, rng=random.Random(1))


def everything(maps: Informer[ConfigMap]) -> Seen:
    seen = Seen()
    maps.on_event(added=seen, updated=seen, deleted=seen)
    return seen


async def test_when_a_handler_runs_the_lister_shows_that_state_or_a_later_one(source: Source, api: Client, clock: FakeClock) -> None:
    """[E58]"""
    stale: list[str] = []
    delivered = 0
    informers = informers_of(api, clock)
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)

    def compare(event: InformerEvent[ConfigMap]) -> None:
        nonlocal delivered
        delivered += 1
        head = maps.lister.head(event.key.name, event.key.namespace)
        if event.type == "DELETED":
            if head is not None and int(head.resource_version) < int(event.head.resource_version):
                stale.append(event.key.name)
        elif head is not None and int(head.resource_version) < int(event.head.resource_version):
            stale.append(event.key.name)

    maps.on_event(added=compare, updated=compare, deleted=compare)
    source.put("a")
    async with informers:
        await until(lambda: source.watches == 1)
        for round_ in range(20):
            source.put("a", n=str(round_))
            source.put("b", n=str(round_))
            source.delete("b")
        await until(lambda: delivered == 61)
    assert not stale


async def test_added_or_updated_is_decided_by_the_store_not_by_the_events_type(source: Source, api: Client, clock: FakeClock) -> None:
    """[E59]"""
    source.put("a")
    async with informers_of(api, clock) as informers:
        seen = everything(informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES))
        await until(lambda: source.watches == 1)
        source.send({"type": "ADDED", "object": source.put("a", n="1", hide=True)})
        source.send({"type": "MODIFIED", "object": source.put("b", hide=True)})
        await until(lambda: len(seen.events) == 3)
    assert seen.lines == ["initial ADDED a", "MODIFIED a", "ADDED b"]


async def test_handlers_get_a_deletion_also_of_an_object_that_was_not_known(source: Source, api: Client, clock: FakeClock) -> None:
    async with informers_of(api, clock) as informers:
        seen = everything(informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES))
        await until(lambda: source.watches == 1)
        source.put("ghost", hide=True)
        source.delete("ghost")
        await until(lambda: seen.events)
    assert seen.lines == ["DELETED ghost"]


async def test_a_late_handler_first_sees_everything_as_added_then_changes_without_a_gap(
    source: Source, api: Client, clock: FakeClock
) -> None:
    """[F74]"""
    source.put("a")
    source.put("b")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        await until(lambda: source.watches == 1)
        source.put("c")
        late = Seen()
        registration = maps.on_event(added=late, updated=late, deleted=late)
        assert not registration.synced
        await registration.wait_synced()
        source.put("a", n="1")
        await until(lambda: len(late.events) >= 4)
    assert sorted(late.lines[:2]) == ["initial ADDED a", "initial ADDED b"]
    assert late.lines[2:] == ["ADDED c", "MODIFIED a"]


async def test_a_handler_has_synced_only_when_it_has_returned_from_every_initial_event(
    source: Source, api: Client, clock: FakeClock
) -> None:
    """[F75]"""
    source.put("a")
    source.put("b")
    go = asyncio.Event()

    async def wait(event: InformerEvent[ConfigMap]) -> None:
        await go.wait()

    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        slow, fast = maps.on_event(added=wait), maps.on_event(added=lambda _: None)
        await informers.wait_synced()
        await fast.wait_synced()
        assert maps.synced
        assert not slow.synced
        go.set()
        await slow.wait_synced()


async def test_a_slow_handler_delays_no_other_handler(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """[F70] [T240] Ours, as client-go: a buffer without limit, never back-pressure on the watch."""
    from kubeloop.cache.handlers import registration as module

    go = asyncio.Event()
    handled = 0

    async def slow(event: InformerEvent[ConfigMap]) -> None:
        nonlocal handled
        await go.wait()
        handled += 1

    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        behind = maps.on_event(added=slow, updated=slow, name="slow-one")
        seen = everything(maps)
        await behind.wait_synced()
        await until(lambda: source.watches == 1)
        for number in range(300):
            source.put("a", n=str(number))
        await until(lambda: len(seen.events) == 300)
        assert (handled, behind.pending) == (0, 299)
        for _ in range(module.WARN_AT - 299):
            behind.offer(seen.events[0])
        assert caplog.text.count(f"handler slow-one is slow: {module.WARN_AT} events wait for it") == 1
        go.set()
        await until(lambda: handled == module.WARN_AT + 1)


async def test_a_handler_that_raises_is_logged_with_the_key_and_goes_on(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """[F83]"""
    names: list[str] = []

    def fragile(event: InformerEvent[ConfigMap]) -> None:
        names.append(event.key.name)
        if event.key.name.startswith("a"):
            raise RuntimeError("boom")

    source.put("a")
    source.put("a2")
    source.put("b")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        broken = maps.on_event(added=fragile, name="fragile")
        other = maps.on_event(added=lambda _: None)
        await other.wait_synced()
        await until(lambda: names == ["a", "a2", "b"])
        delivered = [
            (record.getMessage(), record.exc_info is not None) for record in caplog.records if "fragile failed" in record.getMessage()
        ]
        assert delivered == [
            ("handler fragile failed on ADDED default/a: RuntimeError: boom; going on with the next event", True),
            ("handler fragile failed on ADDED default/a2: RuntimeError: boom (failed 2 times); going on with the next event", False),
        ]
        assert not broken.synced


async def test_a_resync_tells_each_object_to_the_handlers_that_asked_each_in_its_own_period(
    source: Source, api: Client, clock: FakeClock
) -> None:
    """[F71]"""
    source.put("a")
    source.put("b")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        seen = [Seen() for _ in range(3)]
        for each, period in zip(seen, (0, 2, 3), strict=True):
            await maps.on_event(updated=each, resync=period).wait_synced()
        await clock.advance(6.5)
        assert [each.lines.count("RESYNC a") for each in seen] == [0, 3, 2]
        event = seen[1].events[0]
        assert event.old is event.head
        assert event.object.metadata.name == "a"


async def test_the_same_handler_registered_twice_gets_each_event_twice_and_removing_one_leaves_the_other(
    source: Source, api: Client, clock: FakeClock
) -> None:
    """[F76]"""
    seen = Seen()
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        first, second = maps.on_event(added=seen), maps.on_event(added=seen)
        await until(lambda: source.watches == 1)
        source.put("a")
        await until(lambda: len(seen.events) == 2)
        first.remove()
        first.remove()
        await first.wait_removed()
        source.put("b")
        await until(lambda: len(seen.events) == 3)
        await second.wait_synced()


async def test_at_stop_waiting_events_are_dropped_and_nothing_is_left_running(source: Source, api: Client, clock: FakeClock) -> None:
    """[F82] [X3]"""
    before = asyncio.all_tasks()
    cancelled = False
    calls = 0

    async def never(event: InformerEvent[ConfigMap]) -> None:
        nonlocal cancelled, calls
        calls += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise

    source.put("a")
    source.put("b")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        maps.on_event(added=never, resync=5)
        await until(lambda: calls == 1 and source.watches == 1)
    assert cancelled
    assert calls == 1
    await until(lambda: source.watches == 0)
    mine = {task for task in asyncio.all_tasks() - before if "kubeloop" in task.get_name()}
    assert not mine
    assert clock.waiting == 0
    assert len(maps.lister.list()) == 2, "the lister goes on answering"
    with pytest.raises(InformerStopped):
        maps.on_event(added=never)
    with pytest.raises(InformerStopped):
        informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)


async def test_an_error_in_the_block_leaves_it_as_it_is(api: Client, clock: FakeClock) -> None:
    async def block() -> None:
        async with informers_of(api, clock) as informers:
            informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()


async def test_a_defect_in_a_background_task_ends_the_block_with_its_error(api: Client, clock: FakeClock) -> None:
    """Handlers are contained where they run; an error of our own code is not swallowed. [E67]"""

    async def block() -> None:
        async with informers_of(api, clock) as informers:
            informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)._runner.feeds[0].listwatch._rng = None  # type: ignore[assignment]  # the defect
            await asyncio.Event().wait()

    with pytest.raises(AttributeError):
        await block()


async def test_equal_requests_share_one_list_and_watch(source: Source, api: Client, clock: FakeClock) -> None:
    """[F70] [G99]"""
    source.put("a")
    async with informers_of(api, clock) as informers:
        first = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        assert informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES) is first
        assert informers.for_kind(ConfigMap, label_selector="app=web", namespace=ALL_NAMESPACES) is not first
        assert informers.for_kind(ConfigMap, label_selector={"app": "web"}, namespace=ALL_NAMESPACES) is informers.for_kind(
            ConfigMap, label_selector="app=web", namespace=ALL_NAMESPACES
        )
        await informers.wait_synced()
        await until(lambda: source.watches == 2)
    assert sorted(source.asked("list", "labelSelector")) == ["", "app=web"]


async def test_a_read_decodes_a_fresh_object_that_the_caller_owns(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a", k="1")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        mine = maps.lister.get("a", "default")
        assert mine is not None
        mine.data["k"] = "spoilt"
        again = maps.lister.get("a", "default")
        assert again is not None
        assert again.data == {"k": "1"}
        assert maps.lister.get("b", "default") is None


async def test_lists_select_by_namespace_labels_and_index(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a", label_app="web", team="x")
    source.put("b", label_app="db", team="x")
    source.put("c", label_app="web")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(
            ConfigMap, indexes={"team": "data.team", "length": lambda each: str(len(each.metadata.name))}, namespace=ALL_NAMESPACES
        )
        await informers.wait_synced()
        lister = maps.lister
        assert [each.metadata.name for each in lister.list(label_selector="app=web")] == ["a", "c"]
        assert [each.metadata.name for each in lister.each("default", {"app": "db"})] == ["b"]
        assert [head.name for head in lister.heads("elsewhere")] == []
        assert [each.metadata.name for each in lister.by_index("team", "x")] == ["a", "b"]
        assert [head.name for head in lister.heads_by_index("team", "")] == ["c"], "a value that is absent is found as the empty one"
        assert len(lister.heads_by_index("length", 1)) == 3
        assert sorted(lister.index_values("team")) == ["", "x"]
        head = lister.head("a", "default")
        assert head is not None
        assert (head.value("data.team"), dict(head.labels)) == ("x", {"app": "web"})
        with pytest.raises(KeyError, match=r"name it in paths="):
            head.value("data.other")
        with pytest.raises(UnknownIndex, match='no index "node"'):
            lister.by_index("node", "n1")


async def test_an_index_added_later_is_complete_at_once(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a", team="x")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        assert informers.for_kind(ConfigMap, indexes={"team": "data.team"}, namespace=ALL_NAMESPACES) is maps
        assert [head.name for head in maps.lister.heads_by_index("team", "x")] == ["a"]
        await until(lambda: source.watches == 1)
        seen = everything(maps)
        source.put("b", team="x")
        await until(lambda: "ADDED b" in seen.lines)
        assert [head.name for head in maps.lister.heads_by_index("team", "x")] == ["a", "b"]
        with pytest.raises(ValueError, match='index "team" exists already'):
            maps.add_indexes({"team": "data.group"})


async def test_an_index_function_that_raises_costs_the_object_only_its_place_in_that_index(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    source.put("good", team="x")
    source.put("bad")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, indexes={"team": lambda each: each.data["team"]}, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        assert [head.name for head in maps.lister.heads_by_index("team", "x")] == ["good"]
        assert maps.lister.get("bad", "default") is not None
        assert 'index "team" failed for default/bad' in caplog.text


async def test_a_question_about_a_namespace_that_is_not_watched_is_an_error(api: Client, clock: FakeClock) -> None:
    maps = informers_of(api, clock).for_kind(ConfigMap, namespace="shop")
    with pytest.raises(OutsideScope, match='namespace "shop" only, not of "default"'):
        maps.lister.get("a", "default")


async def test_an_object_of_a_namespaced_kind_needs_its_namespace(api: Client, clock: FakeClock) -> None:
    maps = informers_of(api, clock).for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    with pytest.raises(ValueError, match="a namespace is needed"):
        maps.lister.get("a")


async def test_a_namespace_for_a_cluster_scoped_kind_is_refused(api: Client, clock: FakeClock) -> None:
    from kubeloop.api.core.v1 import Node

    with pytest.raises(ValueError, match="Node is cluster-scoped"):
        informers_of(api, clock).for_kind(Node, namespace="shop")
