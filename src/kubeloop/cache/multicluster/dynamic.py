"""Dynamic kinds: informers of custom kinds that start and stop with their CustomResourceDefinitions, behind one handler."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.handlers.event import InformerEvent, Predicate
from kubeloop.cache.handlers.registration import Handler, Registration
from kubeloop.cache.informer import Informer
from kubeloop.cache.informers import InformerFactory
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

#: Paths that the informer of definitions must read.
PATHS = (_GROUP, _SCOPE, _PLURAL, _KIND, _NAMES, _SERVED, _STORED, _CONDITIONS, _STATES)

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A custom kind that the server serves, with the version to read it in. All versions show the same objects.

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
        return Unstructured.for_kind(f"{group}{self.gvk.version}", self.gvk.kind, plural=self.plural, namespaced=self.namespaced)


def served_kind(definition: Head) -> ServedKind | None:
    """Return the kind that a definition serves now, or None if it is not established yet or serves no version.

    The version is the storage version, which needs no conversion in the server; if it is not served, the served version of the highest
    priority.
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
    """Return a key that sorts versions by priority, the highest last. Descending: v2, v1, v1beta2, v1beta1, v1alpha1, all other names.

    Source: Kubernetes, "Versions in CustomResourceDefinitions", version priority.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        # Other names are ordered alphabetically.
        return (0, 0, 0, "".join(chr(0x10FFFF - ord(letter)) for letter in version) + chr(0x10FFFF))
    major, stage, minor = found.groups()
    return ({"alpha": 1, "beta": 2, None: 3}[stage], int(major), int(minor or 0), "")


_DEFINITION = Unstructured.for_kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", plural="customresourcedefinitions", namespaced=False
)
#: Seconds that handlers get for the DELETED events of a removed kind; later ones are dropped.
FAREWELL = 30.0

_LOG = logger_with_context("kubeloop.cache")


class DynamicInformers:
    """Informers for all custom kinds that the server serves, or for the kinds that ``accepts`` chooses.

    They start and stop with the CustomResourceDefinitions.

    Guarantees
        A kind is listed and watched once its definition is established, in one version: the storage version if it is served.
        When a definition is deleted, or no longer serves the kind, its informer is stopped and removed, and handlers get a DELETED event
        (``tombstone``) for each object that was still in the cache.
        A definition that comes back is a new kind: handlers get ADDED events of its objects, after all events of its predecessor.
        A handler sees the events of all kinds, one at a time; ``event.view.kind`` is the kind of an event.

    Not guaranteed
        These DELETED events for a handler that is still busy with earlier ones after ``FAREWELL`` seconds.
        Built-in and aggregated kinds: they have no definitions.

    Create it before or inside the block of its ``informers``; it ends with that block.

    Args:
        informers: The factory that makes the informers.
        accepts: Returns whether to run an informer for a kind. Default: all kinds.
        namespace: See ``InformerFactory.for_kind``, for kinds that have namespaces.
        label_selector: See ``InformerFactory.for_kind``.
        field_selector: See ``InformerFactory.for_kind``.
        paths: See ``InformerFactory.for_kind``.
        started: Called with each informer that starts; a plain function.
        stopped: Called with each informer that has stopped; a plain function.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     dynamic = DynamicInformers(informers, lambda kind: kind.gvk.group.endswith("example.com"))
        ...     await dynamic.wait_synced()
        ...     print(list(dynamic.kinds))
        []
    """

    def __init__(
        self,
        informers: InformerFactory,
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
        #: By name of the definition: the running informer, the kind to run, and the definitions whose old informer is being stopped.
        self._running: dict[str, tuple[ServedKind, Informer[Unstructured]]] = {}
        self._targets: dict[str, ServedKind | None] = {}
        self._replacing: set[str] = set()
        definitions = informers.for_kind(_DEFINITION, fields=PATHS, paths=PATHS)
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
        predicate: Predicate | None = None,
        coalesce: bool = False,
        resync: float | None = None,
        name: str = "",
    ) -> DynamicRegistration:
        """Add a handler for every kind that is served now or later. It is called for one event at a time.

        Args:
            added: See ``Informer.on_event``.
            updated: See ``Informer.on_event``.
            deleted: See ``Informer.on_event``.
            predicate: See ``Informer.on_event``.
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
        options = {**calls, "predicate": predicate, "coalesce": coalesce, "resync": resync, "name": name}
        registration = DynamicRegistration(options, self._handlers.remove)
        for _, informer in self._running.values():
            registration.join(informer)
        self._handlers.append(registration)
        return registration

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until the definitions are known and the informer of each served kind has synced. ``timeout`` is in seconds.

        Raises:
            The errors of ``InformerFactory.wait_synced``.
        """
        await self._definitions.wait_synced(timeout)
        await all_synced(*(informer for _, informer in self._running.values()), timeout=timeout)

    def stop(self) -> None:
        """Stop reacting to definitions. The running informers end with the block."""
        self._definitions.remove()

    # --------------------------------------------------------------------------------------------------------- served kinds

    def _changed(self, event: InformerEvent[Unstructured]) -> None:
        served = served_kind(event.head)
        self._aim(event.head.name, served if served is not None and self._accepts(served) else None)

    def _gone(self, event: InformerEvent[Unstructured]) -> None:
        self._aim(event.head.name, None)

    def _aim(self, name: str, served: ServedKind | None) -> None:
        """Set the kind that the definition ``name`` serves now, and start its informer after the old one has stopped."""
        self._targets[name] = served
        if name in self._replacing:
            return  # the replacement in progress reads the new target when it ends
        running = self._running.get(name)
        if running is not None and running[0] != served:
            self._replacing.add(name)
            self._informers._start_task(self._settle(name), f"kubeloop farewell of {running[1].description}")
        elif running is None and served is not None:
            self._enter(name, served)
        elif served is None:
            del self._targets[name]

    async def _settle(self, name: str) -> None:
        # In this order, so that handlers get the last events of the old kind before those of the new one.
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
        informer = self._informers.for_kind(served.resource_class, namespace=namespace, **self._options)
        self._running[name] = served, informer
        for registration in self._handlers:
            registration.join(informer)
        _LOG.info("%s: now served", informer.description)
        _tell(self._started, informer)

    async def _leave(self, name: str, informer: Informer[Unstructured]) -> None:
        del self._running[name]
        _LOG.info("%s: no longer served", informer.description)
        await self._informers.remove(informer, drain_timeout=FAREWELL)
        for registration in self._handlers:
            registration.leave(informer)
        _tell(self._stopped, informer)


def _tell(callback: Callable[[Informer[Unstructured]], object] | None, informer: Informer[Unstructured]) -> None:
    if callback is not None:
        try:
            callback(informer)
        except Exception:  # noqa: BLE001 - the caller's own code may raise anything; the kinds that come and go must not stop for it
            _LOG.exception("%s: %s failed; going on", informer.description, getattr(callback, "__qualname__", callback))


class DynamicRegistration:
    """The registrations of one handler with the informers of all dynamic kinds. ``DynamicInformers.on_event`` returns it.

    Example:
        >>> async with InformerFactory(client) as informers:
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
        """The kinds whose events the handler gets at this moment."""
        return [informer.kind for informer in self._places]

    @property
    def pending(self) -> int:
        """Number of waiting events of all kinds."""
        return sum(registration.pending for registration in self._places.values())

    def join(self, informer: Informer[Unstructured]) -> None:
        self._places[informer] = informer.on_event(**self._options)

    def leave(self, informer: Informer[Unstructured]) -> None:
        self._places.pop(informer, None)

    def remove(self) -> None:
        """Remove the handler from all present and future kinds."""
        if self._removed:
            return
        self._removed = True
        self._forget(self)
        for registration in self._places.values():
            registration.remove()

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until the handler has synced with the present kinds. See ``Registration.wait_synced``."""
        if self._removed:
            raise InformerStopped("the handler was removed")
        await all_synced(*self._places.values(), timeout=timeout)
