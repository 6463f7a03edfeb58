"""Routing: from one event of a kind to the keys to reconcile, each once, how urgent they are, and when they are added."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from kubeloop.cache import Event, EventType
from kubeloop.controller.handler.mapping import MapHead, MappingError
from kubeloop.controller.handler.predicates import Predicate
from kubeloop.meta import ObjectKey
from kubeloop.meta.type_checks import described
from kubeloop.timing import Clock
from kubeloop.workqueue import LOW_PRIORITY
from kubeloop.workqueue.base import Delays


def priority_of(event: Event[Any]) -> int:
    """``LOW_PRIORITY`` (-100) for objects of the first list, resyncs, and updates that changed nothing; 0 for all else.

    Source: controller-runtime pkg/handler (behaviour R216).
    """
    kind = event.type
    if kind is EventType.MODIFIED:
        old = event.old
        return LOW_PRIORITY if old is not None and old.resource_version == event.head.resource_version else 0
    return LOW_PRIORITY if event.initial or kind is EventType.RESYNC else 0


#: Takes a key and its priority.
Add = Callable[[ObjectKey, int], None]
#: Is told of each event that led to a key.
Noted = Callable[[Event[Any]], None]


class Debouncer:
    """Adds a key when no event has named it for ``seconds``: the events of a burst are one addition, after the last of them.

    Every event of a key starts its wait again (behaviour T233), so a key whose events never pause is not added. The addition has the
    highest priority of the burst.
    """

    __slots__ = ("_add", "_delays", "_priorities", "_seconds")

    def __init__(self, add: Add, seconds: float, clock: Clock) -> None:
        self._add = add
        self._seconds = seconds
        self._priorities: dict[ObjectKey, int] = {}
        self._delays: Delays[ObjectKey] = Delays(clock, self._release)

    def __len__(self) -> int:
        """The number of keys that wait for their events to pause."""
        return len(self._priorities)

    def add(self, key: ObjectKey, priority: int) -> None:
        """Add ``key`` after ``seconds``, counted from now on."""
        self._priorities[key] = max(priority, self._priorities.get(key, priority))
        self._delays.discard(key)
        self._delays.put(key, self._seconds)

    def close(self) -> None:
        """Drop every key that waits."""
        self._priorities.clear()
        self._delays.clear()

    def _release(self, key: ObjectKey) -> None:
        self._add(key, self._priorities.pop(key))


@dataclass(frozen=True, slots=True)
class Route:
    """Where events of one kind lead, if all predicates agree. ``to`` None: to the object itself."""

    to: MapHead | None
    predicates: tuple[Predicate, ...] = ()
    #: Whose mapping it is, for messages.
    what: str = "a watch"

    def keys(self, found: object) -> dict[ObjectKey, None]:
        """What the mapping gave.

        Raises:
            MappingError: it is something else than keys.
        """
        if isinstance(found, Iterable) and not isinstance(found, str):
            keys = dict.fromkeys(found)
            if all(isinstance(key, ObjectKey) for key in keys):
                return keys
            found = list(keys)
        raise MappingError(
            f"{self.what}: its mapping gave {described(found)}; give a list of ObjectKeys, "
            'such as [ObjectKey("", head.namespace, name)], or an empty one'
        )


def handler_of(routes: list[Route], add: Add, cluster: str, noted: Noted) -> Callable[[Event[Any]], Awaitable[None] | None]:
    """The handler of one kind's events, for its informer.

    Each key is added once for an event, whichever routes and states name it (behaviours R217, R218). A route that raises costs the others
    nothing; its error is the handler's. A key without a cluster gets ``cluster``.
    """
    if len(routes) == 1 and routes[0].to is None:
        return _to_itself(routes[0].predicates, add, cluster, noted)

    def handle(event: Event[Any]) -> Awaitable[None] | None:
        keys: dict[ObjectKey, None] = {}
        failure: Exception | None = None
        later: list[tuple[Route, Awaitable[Iterable[ObjectKey]]]] = []
        for route in routes:
            try:
                if not all(predicate(event) for predicate in route.predicates):
                    continue
                if route.to is None:
                    keys[ObjectKey(cluster, event.head.namespace, event.head.name)] = None
                    continue
                for head in (event.head, event.old):
                    if head is not None:
                        found = route.to(head)
                        if isawaitable(found):
                            later.append((route, found))
                        else:
                            keys.update(route.keys(found))
            except Exception as error:  # noqa: BLE001  # one function must not cost the others their keys; raised below
                failure = failure or error
        if later:
            return finish(event, keys, later, failure)
        tell(event, keys)
        if failure is not None:
            raise failure
        return None

    async def finish(
        event: Event[Any], keys: dict[ObjectKey, None], later: list[tuple[Route, Awaitable[Iterable[ObjectKey]]]], failure: Exception | None
    ) -> None:
        for route, found in later:
            try:
                keys.update(route.keys(await found))
            except Exception as error:  # noqa: BLE001  # as above
                failure = failure or error
        tell(event, keys)
        if failure is not None:
            raise failure

    def tell(event: Event[Any], keys: dict[ObjectKey, None]) -> None:
        if keys:
            noted(event)
            priority = priority_of(event)
            for key in dict.fromkeys(key if key.cluster else key._replace(cluster=cluster) for key in keys):
                add(key, priority)

    return handle


def _to_itself(predicates: tuple[Predicate, ...], add: Add, cluster: str, noted: Noted) -> Callable[[Event[Any]], None]:
    """The usual case, without what only several routes need: it is on the path of every event."""

    def handle(event: Event[Any]) -> None:
        for predicate in predicates:
            if not predicate(event):
                return
        head = event.head
        noted(event)
        add(ObjectKey(cluster, head.namespace, head.name), priority_of(event))

    return handle
