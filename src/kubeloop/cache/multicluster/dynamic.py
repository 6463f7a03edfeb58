"""Dynamic kinds: informers of custom kinds that come and go with their definitions, behind one handler."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.handlers.event import Event, Predicate
from kubeloop.cache.handlers.registration import Handler, Registration
from kubeloop.cache.informer import Informer
from kubeloop.cache.informers import Informers
from kubeloop.cache.multicluster.several import SerialisedHandler
from kubeloop.cache.tasks import InformerStopped, all_synced
from kubeloop.client.selector_text import Fields, Labels
from kubeloop.meta import Resource, Unstructured
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.transport import logger_with_context

_GROUP, _SCOPE = "spec.group", "spec.scope"
_PLURAL, _KIND = "status.acceptedNames.plural", "status.acceptedNames.kind"
_NAMES, _SERVED, _STORED = "spec.versions[*].name", "spec.versions[*].served", "spec.versions[*].storage"
_CONDITIONS, _STATES = "status.conditions[*].type", "status.conditions[*].status"

#: What an informer of definitions must read.
PATHS = (_GROUP, _SCOPE, _PLURAL, _KIND, _NAMES, _SERVED, _STORED, _CONDITIONS, _STATES)

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A custom kind that the server serves, in the version to read it in. All versions show the same objects.

    Example:
        >>> kind = ServedKind(GroupVersionKind("example.com", "v1", "Foo"), "foos", namespaced=True)
        >>> kind.gvk.kind, kind.plural
        ('Foo', 'foos')
    """

    gvk: GroupVersionKind
    plural: str
    namespaced: bool

    @property
    def resource_class(self) -> type[Unstructured]:
        group = f"{self.gvk.group}/" if self.gvk.group else ""
        return Unstructured.of(f"{group}{self.gvk.version}", self.gvk.kind, plural=self.plural, namespaced=self.namespaced)


def served_kind(definition: Head) -> ServedKind | None:
    """Return the kind that a definition serves now; None: none (not established yet, or no version is served).

    The version is the storage version, which costs the server no conversion, or else the served version of the highest priority.
    """
    conditions = dict(zip(definition.value(_CONDITIONS), definition.value(_STATES), strict=False))
    if conditions.get("Established") != "True":
        return None
    names, served, stored = (definition.value(path) for path in (_NAMES, _SERVED, _STORED))
    versions = [(name, at_rest) for name, on, at_rest in zip(names, served, stored, strict=False) if on is True]
    kind, plural = definition.value(_KIND), definition.value(_PLURAL)
    if not versions or not kind or not plural:
        return None
    version = next((name for name, at_rest in versions if at_rest is True), None) or max((name for name, _ in versions), key=priority)
    return ServedKind(GroupVersionKind(definition.value(_GROUP), version, kind), plural, definition.value(_SCOPE) == "Namespaced")


def priority(version: str) -> tuple[int, int, int, str]:
    """Orders versions as Kubernetes does: v2 before v1, v1 before v1beta2, before v1beta1, before v1alpha1, before all other names.

    Source: Kubernetes, "Versions in CustomResourceDefinitions", version priority.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        # Other names are ordered from a to z, the first one first.
        return (0, 0, 0, "".join(chr(0x10FFFF - ord(letter)) for letter in version) + chr(0x10FFFF))
    major, stage, minor = found.groups()
    return ({"alpha": 1, "beta": 2, None: 3}[stage], int(major), int(minor or 0), "")


_DEFINITION = Unstructured.of("apiextensions.k8s.io/v1", "CustomResourceDefinition", plural="customresourcedefinitions", namespaced=False)
#: Handlers get so many seconds to hear that a kind's objects are gone; what they have not heard then, they never do.
FAREWELL = 30.0

_log = logger_with_context("kubeloop.cache")


class DynamicInformers:
    """Informers for all custom kinds that the server serves, or for the kinds that ``accepts`` chooses.

    They come and go with the definitions.

    Guarantees
        A kind is listed and watched from the event on that establishes its definition; in one version, the stored one if it is served.
        When a definition is deleted, or serves the kind no more, its informer is stopped and removed, and handlers get a DELETED event
        (``tombstone``) for each object that was still in the cache.
        A definition that comes back is a new kind: handlers get ADDED events of its objects, after all events of its predecessor.
        A handler sees the events of all kinds, one at a time; ``event.view.kind`` is the kind of an event.

    Not guaranteed
        Those DELETED events for a handler that takes longer than ``FAREWELL`` seconds for earlier ones.
        Built-in and aggregated kinds: they do not come and go with definitions.

    Create it before or inside the block of its ``informers``; it ends with that block.

    Args:
        informers: The factory that makes the informers.
        accepts: Returns whether to run an informer for a kind. Default: all kinds.
        namespace: See ``Informers.of``, for kinds that have namespaces.
        label_selector: See ``Informers.of``.
        field_selector: See ``Informers.of``.
        paths: See ``Informers.of``.
        started: Called with each informer that starts; a plain function.
        stopped: Called with each informer that has stopped; a plain function.

    Example:
        >>> async with Informers(client) as informers:
        ...     dynamic = DynamicInformers(informers, lambda kind: kind.gvk.group.endswith("example.com"))
        ...     await dynamic.wait_synced()
        ...     print(list(dynamic.kinds))
        []
    """

    def __init__(
        self,
        informers: Informers,
        accepts: Callable[[ServedKind], bool] = lambda _: True,
        *,
        namespace: str | Iterable[str] | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        paths: Iterable[str] = (),
        started: Callable[[Informer[Unstructured]], object] | None = None,
        stopped: Callable[[Informer[Unstructured]], object] | None = None,
    ) -> None:
        self._informers = informers
        self._accepts = accepts
        self._namespace = namespace if namespace is None or isinstance(namespace, str) else tuple(namespace)
        self._options: dict[str, Any] = {"label_selector": label_selector, "field_selector": field_selector, "paths": tuple(paths)}
        self._started = started
        self._stopped = stopped
        self._handlers: list[DynamicRegistration] = []
        #: By the definition's name: what runs; what should; and where something is being ended before that can be so.
        self._running: dict[str, tuple[ServedKind, Informer[Unstructured]]] = {}
        self._targets: dict[str, ServedKind | None] = {}
        self._replacing: set[str] = set()
        definitions = informers.of(_DEFINITION, fields=PATHS, paths=PATHS)
        changed, gone = self._changed, self._gone
        self._definitions = definitions.on_event(added=changed, updated=changed, deleted=gone, resync=0, name="dynamic informers")

    @property
    def kinds(self) -> Mapping[GroupVersionKind, Informer[Unstructured]]:
        """The informers of the kinds that are served now."""
        return MappingProxyType({kind.gvk: informer for kind, informer in self._running.values()})

    def on_event(
        self,
        *,
        added: Handler[Unstructured] | None = None,
        updated: Handler[Unstructured] | None = None,
        deleted: Handler[Unstructured] | None = None,
        where: Predicate | None = None,
        coalesce: bool = False,
        resync: float | None = None,
        name: str = "",
    ) -> DynamicRegistration:
        """Add a handler for every kind that is served now or later. It is called for one event at a time.

        Args:
            added: See ``Informer.on_event``.
            updated: See ``Informer.on_event``.
            deleted: See ``Informer.on_event``.
            where: See ``Informer.on_event``.
            coalesce: See ``Informer.on_event``.
            resync: See ``Informer.on_event``.
            name: See ``Informer.on_event``.

        Returns:
            The registration, which removes the handler from all kinds.
        """
        lock = asyncio.Lock()
        calls = {
            what: each and SerialisedHandler(each, lock) for what, each in (("added", added), ("updated", updated), ("deleted", deleted))
        }
        options = {**calls, "where": where, "coalesce": coalesce, "resync": resync, "name": name}
        registration = DynamicRegistration(options, self._handlers.remove)
        for _, informer in self._running.values():
            registration.join(informer)
        self._handlers.append(registration)
        return registration

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until the definitions are known and the informer of each kind that they serve now has synced. Seconds.

        Raises:
            As ``Informers.wait_synced``.
        """
        await self._definitions.wait_synced(timeout)
        await all_synced(*(informer for _, informer in self._running.values()), timeout=timeout)

    def stop(self) -> None:
        """Start and stop no more informers; the running ones end with the block."""
        self._definitions.remove()

    # --------------------------------------------------------------------------------------------------------- served kinds

    def _changed(self, event: Event[Unstructured]) -> None:
        served = served_kind(event.head)
        self._aim(event.head.name, served if served is not None and self._accepts(served) else None)

    def _gone(self, event: Event[Unstructured]) -> None:
        self._aim(event.head.name, None)

    def _aim(self, name: str, served: ServedKind | None) -> None:
        """What the definition ``name`` wants; at once if nothing has to be ended first."""
        self._targets[name] = served
        if name in self._replacing:
            return  # it looks again when it has done what it does
        running = self._running.get(name)
        if running is not None and running[0] != served:
            self._replacing.add(name)
            self._informers.spawn(self._settle(name), f"kubeloop farewell of {running[1].description}")
        elif running is None and served is not None:
            self._enter(name, served)
        elif served is None:
            del self._targets[name]

    async def _settle(self, name: str) -> None:
        # One after the other: otherwise handlers could hear of the new kind's objects before the last of the old one's.
        try:
            while (running := self._running.get(name)) is not None and running[0] != self._targets[name]:
                await self._leave(name, running[1])
                served = self._targets[name]
                if served is not None:
                    self._enter(name, served)
        finally:
            self._replacing.discard(name)
            if self._targets[name] is None:
                del self._targets[name]

    def _enter(self, name: str, served: ServedKind) -> None:
        namespace = self._namespace if served.namespaced else None
        informer = self._informers.of(served.resource_class, namespace=namespace, **self._options)
        self._running[name] = served, informer
        for registration in self._handlers:
            registration.join(informer)
        _log.info("%s: served from now on", informer.description)
        _tell(self._started, informer)

    async def _leave(self, name: str, informer: Informer[Unstructured]) -> None:
        del self._running[name]
        _log.info("%s: served no more", informer.description)
        await self._informers.remove(informer, drain_timeout=FAREWELL)
        for registration in self._handlers:
            registration.leave(informer)
        _tell(self._stopped, informer)


def _tell(callback: Callable[[Informer[Unstructured]], object] | None, informer: Informer[Unstructured]) -> None:
    if callback is not None:
        try:
            callback(informer)
        except Exception:  # noqa: BLE001 - the caller's own code may raise anything; the kinds that come and go must not stop for it
            _log.exception("%s: %s failed; going on", informer.description, getattr(callback, "__qualname__", callback))


class DynamicRegistration:
    """The registrations of one handler with the informers of all kinds that come and go. ``DynamicInformers.on_event`` returns it.

    Example:
        >>> async with Informers(client) as informers:
        ...     dynamic = DynamicInformers(informers)
        ...     registration = dynamic.on_event(added=lambda event: print(event.key))
        ...     await registration.wait_synced()
        ...     print(registration.pending)
        0
    """

    def __init__(self, options: dict[str, Any], forget: Callable[[DynamicRegistration], None]) -> None:
        self._options = options
        self._forget = forget
        self._removed = False
        self._places: dict[Informer[Unstructured], Registration[Unstructured]] = {}

    @property
    def kinds(self) -> list[type[Resource]]:
        """The kinds that the handler hears of at this moment."""
        return [informer.kind for informer in self._places]

    @property
    def pending(self) -> int:
        """Events that wait, of all kinds."""
        return sum(registration.pending for registration in self._places.values())

    def join(self, informer: Informer[Unstructured]) -> None:
        self._places[informer] = informer.on_event(**self._options)

    def leave(self, informer: Informer[Unstructured]) -> None:
        self._places.pop(informer, None)

    def remove(self) -> None:
        """Remove the handler from all kinds, present and future ones."""
        if self._removed:
            return
        self._removed = True
        self._forget(self)
        for registration in self._places.values():
            registration.remove()

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """As ``Registration.wait_synced``, for the kinds that are there at the call."""
        if self._removed:
            raise InformerStopped("the handler was removed")
        await all_synced(*self._places.values(), timeout=timeout)
