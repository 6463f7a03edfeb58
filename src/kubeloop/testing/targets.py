"""Targets of ``eventually`` and ``consistently``: objects of a server, or of an informer's cache. Changes are notified, never polled."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeVar

from kubeloop.cache import Informer, InformerEvent
from kubeloop.client import Client
from kubeloop.client.selector_text import Fields, Labels
from kubeloop.meta import ApiError, DeadlineError, Gone, Resource, TransportError
from kubeloop.tasks import end_tasks
from kubeloop.testing.format import text
from kubeloop.timing import Clock

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R", bound=Resource)

#: Real seconds between two tries of an unavailable server, because a test's clock may stand still.
_PAUSE = 0.05


class UnknownState:
    """The type of ``UNKNOWN``, which stands for a state that has not been read yet."""


UNKNOWN: Final = UnknownState()


class ObjectProbe(ABC, Generic[T_co]):
    """Reads the target of ``eventually`` and ``consistently``, and notifies them of changes. ``one``, ``many`` and ``cached`` make probes.

    ``what`` names the target in messages, ``trouble`` is the last error, ``clock`` measures timeouts.

    Example:
        >>> from kubeloop.testing import eventually, one
        >>> settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings"), data={"mode": "fast"}))
        >>> probe = one(client, ConfigMap, "settings")
        >>> found = await eventually(probe, lambda config_map: config_map.data == {"mode": "fast"})
    """

    def __init__(self, description: str, clock: Clock) -> None:
        self.what = description
        self.clock = clock
        self.trouble = ""

    @abstractmethod
    def look(self, notify: Callable[[], None]) -> Any:
        """Return an async context manager of a function that reads the state; ``notify`` is called after each change.

        The state is None if the object is missing, ``UNKNOWN`` if that is not known yet.
        """

    def shown(self, state: object) -> str:
        """Format a state for a failure's message."""
        return text(state)


def one(client: Client, kind: type[R] | R, name: str = "", *, namespace: str | None = None) -> ObjectProbe[R]:
    """Return a target for one object of a server: ``one(client, Deployment, "web")``, or ``one(client, web)`` for a read object ``web``.

    Args:
        client: Reads the object.
        kind: The class, or an object.
        name: The object's name. Empty: the name of ``kind``, if that is an object.
        namespace: None: the namespace of ``kind``, if that is an object, or else the client's default.

    Raises:
        ValueError: ``kind`` is a class, and ``name`` is missing.
    """
    cls: type[R]
    if isinstance(kind, Resource):
        cls, name, namespace = type(kind), name or kind.metadata.name, namespace or kind.metadata.namespace or None
    else:
        cls = kind
    if not name:
        raise ValueError(f"one(client, {cls.__name__}, ...): which one? Give its name, or use many(client, {cls.__name__})")
    return _OfServer(client, cls, name, namespace)


def many(
    client: Client,
    kind: type[R],
    *,
    namespace: str | None = None,
    label_selector: Labels | None = None,
    field_selector: Fields | None = None,
) -> ObjectProbe[list[R]]:
    """Return a target for objects of a server, sorted by namespace and name.

    Args:
        client: Reads the objects.
        kind: The class.
        namespace: None: the client's default; ``ALL_NAMESPACES``: all.
        label_selector: A label selector.
        field_selector: A field selector.
    """
    return _Several(client, kind, "", namespace, label_selector, field_selector)


def cached(informer: Informer[R], name: str, namespace: str | None = None) -> ObjectProbe[R]:
    """Return a target for one object in an informer's cache."""
    return _OfCache(f'cached {informer.description} "{name}"', informer, lambda: informer.lister.get(name, namespace))


def all_cached(informer: Informer[R], namespace: str | None = None, label_selector: Labels | None = None) -> ObjectProbe[list[R]]:
    """Return a target for objects in an informer's cache, sorted by namespace and name."""
    return _OfCache(f"cached {informer.description}", informer, lambda: sorted(informer.lister.list(namespace, label_selector), key=_place))


class _Watched(ObjectProbe[T_co], Generic[T_co, R]):
    """Lists objects, then watches from the version of the list; lists again after 410, and retries while the server is unavailable."""

    def __init__(
        self,
        client: Client,
        kind: type[R],
        name: str,
        namespace: str | None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
    ) -> None:
        self._client, self._kind, self._name = client, kind, name
        self._namespace = client.namespace if namespace is None else namespace
        self._labels = label_selector
        self._fields = {"metadata.name": name} if name else field_selector
        super().__init__(kind.kind or kind.__name__, client.clock)

    @abstractmethod
    def _state(self, objects: dict[tuple[str, str], R]) -> T_co | None:
        """Return the state of the target from the current objects by namespace and name; None if it does not exist."""

    @asynccontextmanager
    async def look(self, notify: Callable[[], None]) -> AsyncIterator[Callable[[], T_co | UnknownState | None]]:
        found: dict[tuple[str, str], R] = {}
        listed = asyncio.Event()

        def changed() -> None:
            listed.set()
            notify()

        following = asyncio.create_task(self._follow(found, changed), name=f"test watching {self.what}")
        following.add_done_callback(lambda _: changed())

        def read() -> T_co | UnknownState | None:
            if following.done():
                following.result()
            return self._state(found) if listed.is_set() else UNKNOWN

        try:
            yield read
        finally:
            await end_tasks(following, expected=(Exception,))  # ``read`` has raised it

    async def _follow(self, objects: dict[tuple[str, str], R], changed: Callable[[], None]) -> None:
        namespaced = (await self._client.mapping(self._kind)).namespaced
        namespace = (self._namespace or None) if namespaced else None
        name = f' "{self._name}"' if self._name else ""
        self.what = f"{self._kind.kind or self._kind.__name__}{name}" + (f' in namespace "{namespace}"' if namespace else "").replace(
            'namespace "*"', "all namespaces"
        )
        selected: dict[str, Any] = {"namespace": namespace, "label_selector": self._labels, "field_selector": self._fields}
        while True:
            try:
                there = await self._client.list(self._kind, **selected)
                objects.clear()
                objects.update((_place(obj), obj) for obj in there)
                changed()
                async with self._client.watch(self._kind, **selected, resource_version=there.resource_version) as events:
                    async for event in events:
                        if event.type == "DELETED":
                            objects.pop(_place(event.object), None)
                        else:
                            objects[_place(event.object)] = event.object
                        changed()
            except Gone:
                continue
            except (TransportError, DeadlineError) as error:
                if self._client.transport.closed:
                    raise
                self.trouble = str(error)
            except ApiError as error:
                if error.status.code < 500 and error.status.code != 429:
                    raise
                self.trouble = str(error)
            await asyncio.sleep(_PAUSE)


class _OfServer(_Watched[R, R]):
    def _state(self, objects: dict[tuple[str, str], R]) -> R | None:
        return next(iter(objects.values()), None)


class _Several(_Watched[list[R], R]):
    def _state(self, objects: dict[tuple[str, str], R]) -> list[R] | None:
        return [objects[place] for place in sorted(objects)]


class _OfCache(ObjectProbe[T_co]):
    def __init__(self, description: str, informer: Informer[Any], read: Callable[[], T_co | None]) -> None:
        super().__init__(description, informer.clock)
        self._informer, self._read = informer, read

    @asynccontextmanager
    async def look(self, notify: Callable[[], None]) -> AsyncIterator[Callable[[], T_co | None]]:
        await self._informer.wait_synced()

        def changed(_: InformerEvent[Any]) -> None:
            notify()

        registration = self._informer.on_event(added=changed, updated=changed, deleted=changed, resync=0, name="a test")
        try:
            yield self._read
        finally:
            registration.remove()


def _place(obj: Resource) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name
