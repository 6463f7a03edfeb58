"""Controller: the base class of controllers. A subclass declares what to watch, and reconciles one object or key in ``reconcile``.

The runner does the rest (informers, queue, workers, retries). A controller never gets an event, only the present state.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_type_hints

from kubeloop.cache import Informer, Lister
from kubeloop.client import Client
from kubeloop.controller.builder.context import ControllerContext, Gate
from kubeloop.controller.builder.declaration import (
    Declaration,
    check_no_handlers,
    check_numbers,
    check_option_types,
    check_watches,
    checked,
    checked_owns,
    checked_sources,
    kind_argument,
)
from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.handler.predicates import Predicate
from kubeloop.controller.handler.watch import Channel, Owns, WatchedKind
from kubeloop.controller.ownership import is_controlled_by
from kubeloop.controller.reader.reader import CacheReader
from kubeloop.controller.result import Result
from kubeloop.meta import ObjectKey, PartialObject, Resource
from kubeloop.meta.type_checks import described
from kubeloop.timing import Clock
from kubeloop.transport import logger_with_context
from kubeloop.workqueue import ExponentialLimiter, Limiter

if TYPE_CHECKING:
    from kubeloop.controller.events import EventRecorder, EventSink


def check_reconcile(cls: type[Any], *, by_key: bool, kind: type[Resource] | None) -> None:
    """Check that ``cls.reconcile`` is a method, sync or async, with one argument: the object, or its key if ``by_key``.

    Raises:
        DeclarationError: ``cls.reconcile`` is not such a method.
    """
    method = inspect.getattr_static(cls, "reconcile", None)
    signature = f"def reconcile(self, {'key: ObjectKey' if by_key else 'obj: ' + (kind.__name__ if kind else 'Foo')}) -> Result | None"
    hint = f"write `async {signature}`, or a plain def, which then runs in a thread"
    if isinstance(method, staticmethod | classmethod) or not callable(method):
        raise DeclarationError(f"{cls.__name__}.reconcile is not a method; {hint}")
    if inspect.isasyncgenfunction(method) or inspect.isgeneratorfunction(method):
        raise DeclarationError(f"{cls.__name__}.reconcile yields, so that calling it does nothing; return a Result or None: {hint}")
    parameters = list(inspect.signature(method).parameters.values())
    if not parameters or parameters[0].kind not in (parameters[0].POSITIONAL_ONLY, parameters[0].POSITIONAL_OR_KEYWORD):
        raise DeclarationError(f"{cls.__name__}.reconcile lacks self; {hint}")
    parameters = parameters[1:]
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one.name for one in positional[1:] if one.default is one.empty]
    needed += [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if needed:
        raise DeclarationError(f"{cls.__name__}.reconcile wants more than one argument ({', '.join(needed)}); {hint}")
    if not positional:
        if not any(one.kind is one.VAR_POSITIONAL for one in parameters):
            raise DeclarationError(f"{cls.__name__}.reconcile takes no argument; {hint}")
        return
    _check_type(cls, method, positional[0], by_key, kind, hint)


def _check_type(cls: type[Any], function: Any, first: inspect.Parameter, by_key: bool, kind: type[Resource] | None, hint: str) -> None:
    """Check the annotation of the argument of ``reconcile``. An annotation that cannot be resolved yet is accepted."""
    annotation = first.annotation
    if isinstance(annotation, str):
        text = annotation
        # Names of a module that is still being imported, or local names, cannot be resolved now. Whatever their evaluation raises,
        # the annotation is accepted then.
        with contextlib.suppress(Exception):
            annotation = get_type_hints(function)[first.name]
        if isinstance(annotation, str) and text.split(".")[-1] == "ObjectKey":
            annotation = ObjectKey
    if annotation is ObjectKey and not by_key:
        raise DeclarationError(f"{cls.__name__}.reconcile takes an ObjectKey; derive from KeyController, or take the object: {hint}")
    if not (isinstance(annotation, type) and issubclass(annotation, Resource)):
        return
    if by_key:
        raise DeclarationError(f"{cls.__name__}.reconcile takes a {annotation.__name__}; derive from Controller, or take the key: {hint}")
    if kind is not None and not issubclass(kind, annotation):
        name = annotation.__name__
        raise DeclarationError(f"{cls.__name__} is a controller of {kind.__name__}, but its reconcile takes a {name}; {hint}")


R = TypeVar("R", bound=Resource)
S = TypeVar("S", bound=Resource)


class ControllerBase(Generic[R]):
    """Base of ``Controller`` and ``KeyController``: the declaration, and access to the cluster once a manager runs it.

    Options are keywords of the class or class attributes:

    ``owns``: kinds that this controller creates, or ``Owns`` for options; the owner of an object is reconciled when the object changes.
    ``watches``: other kinds, each with a mapping to the keys to reconcile.
    ``sources``: other triggers than changes in the cluster (``Channel``); may also be set on the instance.
    ``reads``: further kinds to cache, for reading through ``cached`` and ``lister``.
    ``gets``: kinds of which ``reconcile`` reads single objects through ``client``. They are not cached, and the RBAC permissions that
    ``permissions_of`` derives allow get but not list.
    ``writes``: other kinds that ``reconcile`` writes through ``client``; ``permissions_of`` derives RBAC permissions from them. After a
    write whose response was lost, the next reconcile waits until the caches of these kinds are current, as for owned kinds.
    ``status_writes``: other kinds whose status ``reconcile`` writes, and nothing else of them; the same holds for them.
    ``write_verbs``: the verbs with which ``reconcile`` writes a kind, as ``{Deployment: ["create", "patch"], Foo: []}``; ``permissions_of``
    derives only these. Default: patch and update of the main kind; create, delete, patch and update of children and of ``writes``.
    ``predicates``: the changes of the main kind that lead to a reconcile; all predicates must agree.
    ``workers``: number of concurrent reconciles. ``timeout``: seconds after which a reconcile is cancelled.
    ``debounce``: seconds without a further change after which a changed key is reconciled; 0: immediately.
    ``name``: name in logs, events and statistics; default: the kind in lower case.
    ``indexes``: indexes of any kind used here, as ``{Pod: {"node": "spec.nodeName"}}``.
    ``warm_up``: fill caches and queue before this replica leads, so that it can start quickly.
    ``needs_leader``: False to run the controller in every replica.
    ``pause_annotation``: objects that have this annotation with the value "true" are not reconciled until it is removed.
    ``metadata_only``: request only metadata of the main kind (``KeyController`` only).

    Example:
        >>> class Scaler(Controller[Deployment], owns=[Pod], workers=4, timeout=30):
        ...     async def reconcile(self, deployment: Deployment) -> None:
        ...         pods = self.owned(Pod, deployment)
    """

    # Behaviours T233, R211: debounce and warm_up.

    owns: ClassVar[Sequence[type[Resource] | Owns[Any]]] = ()
    watches: ClassVar[Sequence[WatchedKind[Any]]] = ()
    sources: Sequence[Channel[Any]] = ()
    reads: ClassVar[Sequence[type[Resource]]] = ()
    gets: ClassVar[Sequence[type[Resource]]] = ()
    writes: ClassVar[Sequence[type[Resource]]] = ()
    status_writes: ClassVar[Sequence[type[Resource]]] = ()
    write_verbs: ClassVar[Mapping[type[Resource], Sequence[str]]] = {}
    predicates: ClassVar[Sequence[Predicate]] = ()
    workers: ClassVar[int] = 1
    timeout: ClassVar[float | None] = None
    debounce: ClassVar[float] = 0.0
    name: ClassVar[str] = ""
    indexes: ClassVar[Mapping[type[Resource], Mapping[str, Any]]] = {}
    warm_up: ClassVar[bool] = False
    needs_leader: ClassVar[bool] = True
    pause_annotation: ClassVar[str] = ""
    metadata_only: ClassVar[bool] = False

    _kind: ClassVar[type[Resource] | None] = None
    _calls_handlers: ClassVar[bool] = False
    _connection: ControllerContext | None = None
    _gate: Gate | None = None

    def __init_subclass__(
        cls,
        *,
        owns: Sequence[type[Resource] | Owns[Any]] | None = None,
        watches: Sequence[WatchedKind[Any]] | None = None,
        sources: Sequence[Channel[Any]] | None = None,
        reads: Sequence[type[Resource]] | None = None,
        gets: Sequence[type[Resource]] | None = None,
        writes: Sequence[type[Resource]] | None = None,
        status_writes: Sequence[type[Resource]] | None = None,
        write_verbs: Mapping[type[Resource], Sequence[str]] | None = None,
        predicates: Sequence[Predicate] | None = None,
        workers: int | None = None,
        timeout: float | None = None,
        debounce: float | None = None,
        name: str | None = None,
        indexes: Mapping[type[Resource], Mapping[str, Any]] | None = None,
        warm_up: bool | None = None,
        needs_leader: bool | None = None,
        pause_annotation: str | None = None,
        metadata_only: bool | None = None,
        **kwargs: Any,
    ) -> None:
        positional = {
            "owns": owns,
            "watches": watches,
            "sources": sources,
            "reads": reads,
            "gets": gets,
            "writes": writes,
            "status_writes": status_writes,
            "write_verbs": write_verbs,
            "predicates": predicates,
            "workers": workers,
            "timeout": timeout,
            "debounce": debounce,
            "name": name,
            "indexes": indexes,
            "warm_up": warm_up,
            "needs_leader": needs_leader,
            "pause_annotation": pause_annotation,
            "metadata_only": metadata_only,
        }
        try:
            super().__init_subclass__(**kwargs)
        except TypeError as error:
            if not kwargs:
                raise
            known, unknown = ", ".join(positional), ", ".join(kwargs)
            raise DeclarationError(f"{cls.__name__}: a controller cannot declare {unknown} (it can declare {known})") from error
        for attribute, value in positional.items():
            if value is not None:
                setattr(cls, attribute, value)
        cls._kind = kind_argument(cls, ControllerBase)
        if not cls._calls_handlers:
            check_no_handlers(cls)
        checked_owns(cls)
        checked_sources(cls.__name__, cls.sources)
        cls.reads = checked(cls, "reads", Resource)
        cls.gets = checked(cls, "gets", Resource)
        cls.writes = checked(cls, "writes", Resource)
        cls.status_writes = checked(cls, "status_writes", Resource)
        cls.watches = checked(cls, "watches", WatchedKind)
        check_watches(cls, cls.watches)
        cls.predicates = checked(cls, "predicates", Predicate)
        check_numbers(cls)
        check_option_types(cls)
        parents: Any = super(cls, cls)  # Run the checks of the base classes, as __init_subclass__ does.
        parents._check_class()

    @classmethod
    def _check_class(cls) -> None:
        """Check a subclass further. Base classes such as ``Controller`` and ``KeyController`` override this method.

        An ``__init_subclass__`` in each base class would repeat the keywords, or hide their types from type checkers.
        """

    @classmethod
    def cached_kinds(cls) -> frozenset[type[Resource]]:
        """Return the kinds that are cached whole for this controller, so that a runnable can share their informers."""
        return cls._declaration().cached_kinds

    @classmethod
    def _declaration(cls) -> Declaration:
        """Return the checked declaration of this class.

        Raises:
            DeclarationError: the class names no kind, has indexes of a kind that it does not cache, or ``write_verbs`` of a kind that it
                does not write.
        """
        if cls._kind is None:
            raise DeclarationError(f"{cls.__name__} names no kind; write class {cls.__name__}(Controller[Foo])")
        method = Declaration(
            kind=cls._kind,
            name=cls.name or cls._kind.kind.lower(),
            owns=checked_owns(cls),
            watches=tuple(cls.watches),
            reads=tuple(cls.reads),
            gets=tuple(cls.gets),
            writes=tuple(cls.writes),
            status_writes=tuple(cls.status_writes),
            write_verbs={kind: tuple(verbs) for kind, verbs in cls.write_verbs.items()},
            predicates=tuple(cls.predicates),
            workers=cls.workers,
            timeout=cls.timeout,
            debounce=cls.debounce,
            indexes={kind: dict(indexes) for kind, indexes in cls.indexes.items()},
            warm_up=cls.warm_up,
            needs_leader=cls.needs_leader,
            pause_annotation=cls.pause_annotation,
            metadata_only=cls.metadata_only,
        )
        for kind in method.write_verbs:
            if kind not in (method.kind, *(one.kind for one in method.owns), *method.writes):
                hint = f"name it in owns=[...] or writes=[{kind.__name__}]"
                raise DeclarationError(f"{cls.__name__}: write_verbs names {kind.__name__}, which it does not write; {hint}")
        cached_kinds = {method.kind, *(one.kind for one in method.owns), *(one.kind for one in method.watches), *method.reads}
        for kind in method.indexes:
            if kind not in cached_kinds:
                hint = f"name it in owns=[...], watches=[...] or reads=[{kind.__name__}]"
                raise DeclarationError(f"{cls.__name__}: indexes names {kind.__name__}, which it does not cache; {hint}")
        return method

    @property
    def client(self) -> Client:
        """The client, for writes and for reads of the newest state."""
        return self._connected.context.client

    @property
    def events(self) -> EventRecorder:
        """The recorder of events about objects."""
        return self._connected.events

    @property
    def clock(self) -> Clock:
        return self._connected.context.clock

    @property
    def cluster(self) -> str:
        return self.client.cluster

    @property
    def log(self) -> logging.Logger:
        """A logger named after the controller; its records carry cluster, controller, key, and the id of the reconcile."""
        return logger_with_context(f"kubeloop.controller.{type(self)._declaration().name}")

    @property
    def cached(self) -> CacheReader:
        """The reader of all declared kinds in memory. Reads of objects that are not cached raise an error instead of returning nothing."""
        return self._connected.cache

    def lister(self, kind: type[S]) -> Lister[S]:
        """Return the lister of a kind's informer.

        Raises:
            DeclarationError: this controller does not declare the kind, so it is not cached, or declares only its metadata.
        """
        return self._connected.cache.lister(kind)

    def metadata_lister(self, kind: type[Resource]) -> Lister[PartialObject]:
        """Return the lister of a kind of which only metadata is cached.

        Raises:
            DeclarationError: the kind is not cached, or whole objects are.
        """
        return self._connected.cache.metadata_lister(kind)

    def informer(self, kind: type[S]) -> Informer[S]:
        """Return the informer of a kind that is cached as a whole.

        Raises:
            DeclarationError: see ``lister``.
        """
        return self._connected.cache.informer(kind)

    def owned(self, kind: type[S], owner: Resource) -> list[S]:
        """Return the cached objects of an owned kind whose controller reference has the uid of ``owner``.

        Writes of this process that the watch has not delivered yet are included.
        """
        return [obj for obj in self.lister(kind).by_index(OWNER_INDEX, owner.metadata.uid) if is_controlled_by(obj, owner)]

    def enqueue(self, key: ObjectKey, after: float = 0.0, *, priority: int = 0) -> None:
        """Add ``key`` to the queue ``after`` seconds from now. Keys with a higher ``priority`` are reconciled first.

        This method may be called from any thread.

        Raises:
            TypeError: ``key`` is not an ObjectKey, or another argument is not a number.
        """
        method: tuple[object, object, object] = (key, after, priority)
        if not (isinstance(method[0], ObjectKey) and isinstance(method[1], int | float) and isinstance(method[2], int)):
            raise TypeError(
                f"{type(self).__name__}.enqueue({described(key)}, {described(after)}, priority={described(priority)}): "
                "give an ObjectKey, such as "
                'ObjectKey("", namespace, name) or obj.object_key(), seconds, and a whole number'
            )
        self._connected.enqueue(key, after, priority)

    def pause(self) -> None:
        """Start no reconcile until ``resume`` is called.

        Running reconciles end normally. Caches and queue stay current, so no change is missed.
        """
        self._own_gate.pause()

    def resume(self) -> None:
        """Start reconciles again after ``pause``."""
        self._own_gate.resume()

    @property
    def paused(self) -> bool:
        return self._own_gate.paused

    @property
    def _own_gate(self) -> Gate:
        if self._gate is None:
            self._gate = Gate()
        return self._gate

    def retry_limiter(self, clock: Clock) -> Limiter[ObjectKey]:  # noqa: ARG002  # the default needs no clock, a token bucket does
        """Return the limiter that delays failed keys. Override it for another policy.

        Default: exponential back-off for each key, 5 ms doubling to 1000 s.
        """
        # Behaviour X12.
        return ExponentialLimiter()

    def tenants(self) -> Callable[[ObjectKey], Hashable] | None:
        """Return a function that maps a key to its tenant, so that tenants take turns within a priority, or None for no tenants.

        Override for example with ``return lambda key: key.namespace``. Default: None, in the order of arrival.
        """
        return None

    def event_sinks(self) -> Sequence[EventSink]:
        """Return the APIs that ``events`` are written to, such as ``[SeriesEvents()]``. Override it for another API or other limits.

        Default: core/v1.
        """
        return ()

    async def start(self) -> None:
        """Prepare the controller. Called once, after all caches are synced and before the first reconcile. An error stops the manager."""

    async def stop(self) -> None:
        """Clean up. Called once, after the last reconcile has ended."""

    @property
    def _connected(self) -> ControllerContext:
        if self._connection is None:
            raise DeclarationError(
                f"{type(self).__name__} is not running yet: give it to a Manager, and use client, lister and events in reconcile"
            )
        return self._connection

    def _connect(self, connection: ControllerContext) -> None:
        """Connect the controller to its context. Called by the runner. A controller object serves one manager at a time.

        Raises:
            DeclarationError: the controller is connected already.
        """
        if self._connection is not None:
            raise DeclarationError(f"this {type(self).__name__} is run by another manager already; make a second one")
        self._connection = connection

    def _disconnect(self) -> None:
        """Disconnect the controller. Called by the runner at the end."""
        self._connection = None


#: Name of the index that maps an owner's uid to objects of owned kinds.
OWNER_INDEX = "kubeloop.owner"


class Controller(ControllerBase[R], ABC):
    """Reconciles each object of kind ``R``: brings the actual state to the desired one.

    Guarantees
        ``reconcile`` is called with the newest cached state, in a new object that it may change; never concurrently for one object; never
        before all informers of this controller are synced. It is called after every change that the predicates accept, and after every
        error with growing delay, until it succeeds.

    Not guaranteed
        One call per change: changes in quick succession are one call. A call for a deleted object: use finalizers, owner
        references, or ``KeyController``.

    A synchronous ``def reconcile`` runs in one of ``workers`` threads. It must not use ``client`` there, which belongs to the event loop.
    A ``SystemExit`` in a reconcile is an error like any other: to stop the program, stop its manager.

    Example:
        >>> class Labeler(Controller[ConfigMap], workers=2):
        ...     async def reconcile(self, config_map: ConfigMap) -> None:
        ...         print("reconcile", config_map.metadata.name)
        >>> settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
        >>> async with Manager(client, [Labeler()], namespace=settings.metadata.namespace):
        ...     await asyncio.sleep(0.2)
        reconcile settings
    """

    @abstractmethod
    def reconcile(self, obj: R, /) -> Awaitable[Result | None] | Result | None:
        """Bring the cluster one step nearer to the state that ``obj`` specifies; idempotent. Raise for a retry with back-off."""

    @classmethod
    def _check_class(cls) -> None:
        super()._check_class()
        if cls.metadata_only:
            raise DeclarationError(f"{cls.__name__}: with metadata_only there is no object to reconcile; derive from KeyController")
        if not _is_abstract(cls):
            check_reconcile(cls, by_key=False, kind=cls._kind)


class KeyController(ControllerBase[R], ABC):
    """Reconciles the key of each object of kind ``R``, even after the object was deleted; ``reconcile`` reads objects from ``cached``.

    Apart from the argument of ``reconcile``, it works like ``Controller``.

    Example:
        >>> class Cleaner(KeyController[ConfigMap]):
        ...     async def reconcile(self, key: ObjectKey) -> None:
        ...         if self.cached.get(ConfigMap, key.name, key.namespace) is None:
        ...             print(key.name, "is gone")
    """

    @abstractmethod
    def reconcile(self, key: ObjectKey, /) -> Awaitable[Result | None] | Result | None:
        """Bring the cluster one step nearer to the state that the object of this key specifies, or clean up after the object."""

    @classmethod
    def _check_class(cls) -> None:
        super()._check_class()
        if not _is_abstract(cls):
            check_reconcile(cls, by_key=True, kind=cls._kind)


def _is_abstract(cls: type[Any]) -> bool:
    return bool(getattr(cls.reconcile, "__isabstractmethod__", False))
