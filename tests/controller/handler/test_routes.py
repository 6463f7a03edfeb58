"""From an event to keys: each once, of the old state and the new, and how urgent they are (behaviours R216-R218)."""

from __future__ import annotations

import inspect
from typing import Any, cast

import msgspec
import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import EventType, Head, InformerEvent
from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import HeadReader, StringInterner
from kubeloop.controller import Predicate, to_field, to_label, to_owner
from kubeloop.controller.handler.map_funcs import MapFunc, MapHead, MappingError, MapTarget
from kubeloop.controller.handler.routes import Debouncer, Enqueuer, Route, handler_of
from kubeloop.meta import ObjectKey
from kubeloop.timing import FakeClock
from kubeloop.workqueue import PriorityQueue

_READER = HeadReader("v1", "Pod", ("spec.node", "spec.in", "spec.names[*]"), BlobStore(), StringInterner())
_NOWHERE = cast("Any", None)


def head(version: int = 1, *, spec: dict[str, Any] | None = None, owners: list[dict[str, Any]] | None = None, **metadata: Any) -> Head:
    about = {"name": "p", "namespace": "shop", "uid": "u", "resourceVersion": str(version), "ownerReferences": owners or [], **metadata}
    raw = msgspec.json.encode({"kind": "Pod", "apiVersion": "v1", "metadata": about, "spec": spec or {}})
    return _READER.head(_READER.projection.object(raw), memoryview(raw), None)


def owner(name: str, *, controller: bool = True) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"uid-{name}", "controller": controller}


def event(kind: EventType, new: Head, old: Head | None = None, *, initial: bool = False) -> InformerEvent[Any]:
    return InformerEvent(kind, new, old, _NOWHERE, initial=initial)


class Added:
    """Takes what a handler adds."""

    def __init__(self, *routes: Route) -> None:
        self.keys: list[ObjectKey] = []
        self.priorities: list[int] = []
        self._enqueuer = Enqueuer(self, "here")
        self.handle = handler_of(list(routes), self._enqueuer, "here")

    def add(self, item: ObjectKey, *, priority: int = 0) -> None:
        self.keys.append(item)
        self.priorities.append(priority)

    @property
    def noted(self) -> list[InformerEvent[Any]]:
        return [] if self._enqueuer.last_event is None else [self._enqueuer.last_event]

    @property
    def names(self) -> list[str]:
        return [key.name for key in self.keys]


@pytest.mark.parametrize("own_kind", [pytest.param(False, id="alone"), pytest.param(True, id="beside other routes")])
@pytest.mark.parametrize(
    ("change", "priority"),
    [
        pytest.param(event(EventType.ADDED, head(), initial=True), -100, id="R216: an object of the first list is not urgent"),
        pytest.param(event(EventType.ADDED, head()), 0, id="R216: a new object is"),
        pytest.param(event(EventType.RESYNC, head(), head()), -100, id="R216: a resync is not urgent"),
        pytest.param(event(EventType.MODIFIED, head(2), head(2)), -100, id="R216: an update with the same version is not urgent"),
        pytest.param(event(EventType.MODIFIED, head(2), head(1)), 0, id="R216: an update with another version is"),
        pytest.param(event(EventType.DELETED, head(2)), 0, id="a deletion is"),
    ],
)
def test_priority(change: InformerEvent[Any], priority: int, own_kind: bool) -> None:
    added = Added(*[Route(None), Route(lambda head: [])] if own_kind else [Route(None)])
    added.handle(change)
    assert added.keys == [ObjectKey("here", "shop", "p")]
    assert added.priorities == [priority]
    assert added.noted == [change]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param([owner("a")], [owner("a")], ["a"], id="R217: an owner of both states is added once"),
        pytest.param([owner("a")], [owner("b")], ["b", "a"], id="R217: a new owner and the old one are both added"),
        pytest.param([owner("a", controller=False)], [owner("a", controller=False)], [], id="R217: an owner that is no controller is not"),
        pytest.param([owner("a")], [], ["a"], id="R217: an owner that was taken off is added"),
    ],
)
def test_owners(old: list[dict[str, Any]], new: list[dict[str, Any]], expected: list[str]) -> None:
    added = Added(Route(to_owner(ConfigMap)))
    added.handle(event(EventType.MODIFIED, head(2, owners=new), head(1, owners=old)))
    assert added.names == expected


def test_every_owner_of_the_kind_is_added_on_request() -> None:
    added = Added(Route(to_owner(ConfigMap, every=True)))
    other = {**owner("other"), "kind": "Secret"}
    added.handle(event(EventType.ADDED, head(owners=[owner("a"), owner("b", controller=False), other])))
    assert added.names == ["a", "b"]


def test_a_function_sees_both_states_and_each_key_is_added_once_for_an_event() -> None:
    """R218."""
    seen: list[str] = []

    def to(state: Head) -> list[ObjectKey]:
        seen.append(state.resource_version)
        return [ObjectKey("", "shop", "x"), ObjectKey("here", "shop", "x"), ObjectKey("there", "shop", "x")]

    added = Added(Route(to), Route(to))
    added.handle(event(EventType.MODIFIED, head(2), head(1)))
    assert seen == ["2", "1", "2", "1"]
    assert added.keys == [ObjectKey("here", "shop", "x"), ObjectKey("there", "shop", "x")]


async def test_a_function_may_be_async() -> None:
    async def to(state: Head) -> list[ObjectKey]:
        return [ObjectKey("", "", f"at-{state.resource_version}")]

    added = Added(Route(to), Route(None))
    waiting = added.handle(event(EventType.MODIFIED, head(2), head(1)))
    assert inspect.isawaitable(waiting)
    await waiting
    assert added.names == ["p", "at-2", "at-1"]


@pytest.mark.parametrize("later", [pytest.param(False, id="a plain one"), pytest.param(True, id="an async one")])
async def test_a_function_that_raises_costs_the_others_nothing_and_its_error_is_the_handlers(later: bool) -> None:
    def broken(state: Head) -> list[ObjectKey]:
        raise LookupError("boom")

    async def broken_later(state: Head) -> list[ObjectKey]:
        raise LookupError("boom")

    added = Added(Route(broken_later if later else broken), Route(None))

    async def handled() -> None:
        waiting = added.handle(event(EventType.ADDED, head()))
        if waiting is not None:
            await waiting

    with pytest.raises(LookupError, match="boom"):
        await handled()
    assert added.names == ["p"]


@pytest.mark.parametrize("own_kind", [pytest.param(False, id="alone"), pytest.param(True, id="beside other routes")])
def test_all_predicates_of_a_route_must_agree(own_kind: bool) -> None:
    yes, no = Predicate(lambda _: True), Predicate(lambda _: False)
    extra = [Route(lambda head: [], (yes,))] if own_kind else []
    refused, accepted = Added(Route(None, (yes, no)), *extra), Added(Route(None, (yes, yes)), *extra)
    for added in (refused, accepted):
        added.handle(event(EventType.ADDED, head()))
    assert (refused.names, refused.noted, accepted.names) == ([], [], ["p"])


@pytest.mark.parametrize(
    ("mapping", "namespaced", "expected"),
    [
        pytest.param(to_label("of"), True, ["shop/web"], id="a label names an object of the same namespace"),
        pytest.param(to_label("of", "in"), True, ["bank/web"], id="another label names its namespace"),
        pytest.param(to_label("of"), False, ["web"], id="a cluster-scoped object has no namespace"),
        pytest.param(to_label("missing"), True, [], id="without the label there is none"),
        pytest.param(to_field("spec.node"), False, ["n1"], id="a field names an object"),
        pytest.param(to_field("spec.node", "spec.in"), True, ["bank/n1"], id="another field names its namespace"),
        pytest.param(to_field("spec.names[*]"), True, ["shop/a", "shop/b"], id="a field with several values names several"),
        pytest.param(to_field("spec.in"), True, ["shop/bank"], id="a field's object is in the same namespace"),
    ],
)
def test_mapping(mapping: MapFunc, namespaced: bool, expected: list[str]) -> None:
    state = head(labels={"of": "web", "in": "bank"}, spec={"node": "n1", "in": "bank", "names": ["a", "b", ""]})
    bound: MapHead = mapping.bind(MapTarget(namespaced, _NOWHERE))
    found = bound(state)
    assert not inspect.isawaitable(found)
    assert [str(key) for key in found] == expected


def test_what_a_mapping_reads_is_asked_of_the_informer() -> None:
    assert to_field("spec.a", "spec.b").paths == ("spec.a", "spec.b")
    assert to_label("a").paths == ()


@pytest.mark.parametrize("awaited", [pytest.param(False, id="at once"), pytest.param(True, id="awaited")])
@pytest.mark.parametrize("keys", [None, "abc", ["abc"], [("", "shop", "a")]], ids=["nothing", "text", "names", "tuples"])
async def test_a_mapping_that_gives_something_else_than_keys_is_named_and_costs_the_others_nothing(keys: Any, awaited: bool) -> None:
    async def later(head: Head) -> Any:
        return keys

    added = Added(Route(later if awaited else lambda head: keys, owner="Shops, the watch of Pod"), Route(None))

    async def handle() -> None:
        found = added.handle(event(EventType.ADDED, head()))
        if inspect.isawaitable(found):
            await found

    with pytest.raises(MappingError, match=r"Shops, the watch of Pod: its mapping returned .*return a list of ObjectKeys"):
        await handle()
    assert added.names == ["p"]


@pytest.mark.parametrize(
    ("changes", "added"),
    [
        pytest.param([(0, "a", 0)], [(5, "a", 0)], id="T233: a single change is added after the period"),
        pytest.param([(0, "a", 0), (1, "a", 0), (2, "a", 0)], [(7, "a", 0)], id="T233: a burst is one addition, after its last change"),
        pytest.param([(0, "a", 0), (4, "a", 0), (8, "a", 0), (12, "a", 0)], [(17, "a", 0)], id="T233: a burst may outlast the period"),
        pytest.param([(0, "a", 0), (5, "a", 0)], [(5, "a", 0), (10, "a", 0)], id="T233: a change after the period begins another burst"),
        pytest.param([(0, "a", 0), (0, "a", 0)], [(5, "a", 0)], id="T233: two changes at the same moment are one addition"),
        pytest.param([(0, "a", 0), (3, "b", 0), (4, "a", 0)], [(8, "b", 0), (9, "a", 0)], id="T233: each key has its own period"),
        pytest.param([(0, "a", -100), (1, "a", 0), (2, "a", -100)], [(7, "a", 0)], id="T233: the highest priority of the burst counts"),
        pytest.param([(0, "a", 0), (6, "a", -100)], [(5, "a", 0), (11, "a", -100)], id="T233: a later burst has its own priority"),
    ],
)
async def test_a_debounce(changes: list[tuple[int, str, int]], added: list[tuple[int, str, int]]) -> None:
    clock = FakeClock()
    started, found = clock.now(), list[tuple[float, str, int]]()

    class Queue:
        def add(self, item: ObjectKey, *, priority: int = 0) -> None:
            found.append((clock.now() - started, item.name, priority))

    debouncer = Debouncer(Queue(), 5, clock)
    for at, name, priority in changes:
        await clock.advance(started + at - clock.now())
        debouncer.add(ObjectKey("", "ns", name), priority=priority)
    assert len(debouncer) > 0
    await clock.advance(100)
    assert found == added
    assert len(debouncer) == 0


async def test_a_closed_debounce_adds_nothing() -> None:
    """T233"""
    clock, queue = FakeClock(), PriorityQueue[ObjectKey]()
    debouncer = Debouncer(queue, 5, clock)
    debouncer.add(ObjectKey("", "ns", "a"))
    debouncer.close()
    await clock.advance(100)
    assert (len(queue), len(debouncer), clock.waiting) == (0, 0, 0)
