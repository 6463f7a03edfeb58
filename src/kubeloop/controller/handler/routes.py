"""Routing: maps one event to the keys to reconcile, with their priority, and adds them to the queue.

An event passes a handler (``ObjectHandler``, ``RouteHandler``), the ``Enqueuer``, ``Debouncer`` and ``OwnedKeys`` where the controller has
them, and the queue, in this order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kubeloop.cache import EventType, InformerEvent
from kubeloop.controller.handler.map_funcs import MapHead, MappingError
from kubeloop.controller.handler.predicates import Predicate
from kubeloop.meta import ObjectKey
from kubeloop.meta.type_checks import described
from kubeloop.timing import Clock
from kubeloop.workqueue import LOW_PRIORITY
from kubeloop.workqueue.base import Delays

if TYPE_CHECKING:
    from kubeloop.controller.sharding.membership import Ownership


def priority_of(event: InformerEvent[Any]) -> int:
    """Return ``LOW_PRIORITY`` (-100) for objects of the first list, resyncs, and updates that changed nothing; 0 for all other events.

    Source: controller-runtime pkg/handler.
    """
    # Behaviour R216.
    kind = event.type
    if kind is EventType.MODIFIED:
        old = event.old
        return LOW_PRIORITY if old is not None and old.resource_version == event.head.resource_version else 0
    return LOW_PRIORITY if event.initial or kind is EventType.RESYNC else 0


class KeyQueue(Protocol):
    """The part of a queue that an enqueuer uses."""

    def add(self, item: ObjectKey, *, priority: int = 0) -> None:
        """Add a key, or raise its priority if it waits already."""


class Debouncer:
    """Adds a key once no event has named it for ``seconds``, so that a burst of events adds it once, after the last event.

    Every event of a key restarts its delay, so a key whose events never pause is not added. The addition has the highest priority of the
    burst.
    """

    # Behaviour T233.

    __slots__ = ("_delays", "_priorities", "_seconds", "_sink")

    def __init__(self, sink: KeyQueue, seconds: float, clock: Clock) -> None:
        self._sink = sink
        self._seconds = seconds
        self._priorities: dict[ObjectKey, int] = {}
        self._delays: Delays[ObjectKey] = Delays(clock, self._release)

    def __len__(self) -> int:
        """Return the number of keys that wait for their events to pause."""
        return len(self._priorities)

    def add(self, item: ObjectKey, *, priority: int = 0) -> None:
        """Add a key after ``seconds``, and restart the delay if the key waits already."""
        self._priorities[item] = max(priority, self._priorities.get(item, priority))
        self._delays.discard(item)
        self._delays.put(item, self._seconds)

    def close(self) -> None:
        """Drop every key that waits."""
        self._priorities.clear()
        self._delays.clear()

    def _release(self, key: ObjectKey) -> None:
        self._sink.add(key, priority=self._priorities.pop(key))


class OwnedKeys:
    """Forwards only the keys that this replica owns, if several replicas share the keys."""

    __slots__ = ("_ownership", "_sink")

    def __init__(self, sink: KeyQueue, ownership: Ownership) -> None:
        self._sink = sink
        self._ownership = ownership

    def add(self, item: ObjectKey, *, priority: int = 0) -> None:
        """Add a key if this replica owns it now."""
        if self._ownership.owns(item):
            self._sink.add(item, priority=priority)


class Enqueuer:
    """Adds the keys that events lead to, and records the last of these events. All handlers of a controller share one.

    Attributes:
        last_event: the last event that led to a key; None before the first one.
    """

    __slots__ = ("_cluster", "_sink", "last_event")

    def __init__(self, sink: KeyQueue, cluster: str) -> None:
        """Create an enqueuer.

        ``sink`` is the queue, or a filter in front of it. ``cluster`` is the cluster of keys that name none.
        """
        self._sink = sink
        self._cluster = cluster
        self.last_event: InformerEvent[Any] | None = None

    def add_object(self, event: InformerEvent[Any]) -> None:
        """Add the key of the event's own object."""
        head = event.head
        self.last_event = event
        self._sink.add(ObjectKey(self._cluster, head.namespace, head.name), priority=priority_of(event))

    def add_keys(self, event: InformerEvent[Any], keys: Iterable[ObjectKey]) -> None:
        """Add the keys to which the event leads, each once."""
        priority = priority_of(event)
        for key in dict.fromkeys(key if key.cluster else key._replace(cluster=self._cluster) for key in keys):
            self.last_event = event
            self._sink.add(key, priority=priority)


@dataclass(frozen=True, slots=True)
class Route:
    """Maps the events of one kind to keys, if all predicates accept them. If ``to`` is None, the key of the event's own object is used."""

    to: MapHead | None
    predicates: tuple[Predicate, ...] = ()
    #: The owner of the mapping, for messages.
    owner: str = "a watch"

    def accepts(self, event: InformerEvent[Any]) -> bool:
        """Return whether all predicates accept the event."""
        return all(predicate(event) for predicate in self.predicates)

    def check(self, answer: object) -> dict[ObjectKey, None]:
        """Return the keys in the result of a mapping.

        Raises:
            MappingError: the result is not a collection of keys.
        """
        if isinstance(answer, Iterable) and not isinstance(answer, str):
            keys = dict.fromkeys(answer)
            if all(isinstance(key, ObjectKey) for key in keys):
                return keys
            answer = list(keys)
        raise MappingError(
            f"{self.owner}: its mapping returned {described(answer)}; return a list of ObjectKeys, "
            'such as [ObjectKey("", head.namespace, name)], or an empty one'
        )


class ObjectHandler:
    """Event handler that adds the key of the event's object: for a controller's own kind, if it has no other route. It is the hot path."""

    __slots__ = ("_enqueuer", "_predicates")

    def __init__(self, predicates: tuple[Predicate, ...], enqueuer: Enqueuer) -> None:
        self._predicates = predicates
        self._enqueuer = enqueuer

    def __call__(self, event: InformerEvent[Any]) -> None:
        """Add the key of the event's object if all predicates accept the event."""
        for predicate in self._predicates:
            if not predicate(event):
                return
        self._enqueuer.add_object(event)


_Pending: TypeAlias = list[tuple[Route, Awaitable[Iterable[ObjectKey]]]]


class RouteHandler:
    """Event handler of one kind with any number of routes (``Route``).

    Each key is added once for an event, even if several routes, or the old and the new state, lead to it. A route that raises does not
    affect the others; its error is raised after the keys are added.
    """

    # Behaviours R217, R218.

    __slots__ = ("_cluster", "_enqueuer", "_routes")

    def __init__(self, routes: list[Route], enqueuer: Enqueuer, cluster: str) -> None:
        self._routes = routes
        self._enqueuer = enqueuer
        self._cluster = cluster

    def __call__(self, event: InformerEvent[Any]) -> Awaitable[None] | None:
        """Map the event to keys and add them. Return an awaitable that completes this if a mapping is async, otherwise None."""
        keys: dict[ObjectKey, None] = {}
        failure: Exception | None = None
        pending: _Pending = []
        for route in self._routes:
            try:
                if not route.accepts(event):
                    continue
                if route.to is None:
                    keys[ObjectKey(self._cluster, event.head.namespace, event.head.name)] = None
                    continue
                for head in (event.head, event.old):
                    if head is not None:
                        answer = route.to(head)
                        if isawaitable(answer):
                            pending.append((route, answer))
                        else:
                            keys.update(route.check(answer))
            except Exception as error:  # noqa: BLE001  # the keys of the other routes must still be added; raised below
                failure = failure or error
        if pending:
            return self._finish(event, keys, pending, failure)
        self._enqueuer.add_keys(event, keys)
        if failure is not None:
            raise failure
        return None

    async def _finish(self, event: InformerEvent[Any], keys: dict[ObjectKey, None], pending: _Pending, failure: Exception | None) -> None:
        for route, answer in pending:
            try:
                keys.update(route.check(await answer))
            except Exception as error:  # noqa: BLE001  # the keys of the other routes must still be added; raised below
                failure = failure or error
        self._enqueuer.add_keys(event, keys)
        if failure is not None:
            raise failure


def handler_of(routes: list[Route], enqueuer: Enqueuer, cluster: str) -> ObjectHandler | RouteHandler:
    """Return an event handler with these routes, for the informer of one kind. ``cluster`` is the name of its cluster."""
    if len(routes) == 1 and routes[0].to is None:
        return ObjectHandler(routes[0].predicates, enqueuer)
    return RouteHandler(routes, enqueuer, cluster)
