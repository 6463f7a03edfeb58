"""Controller: what a program subclasses. It declares what to watch and says how to make the world as an object wants it.

Everything else (informers, queue, workers, retries) is the runner's; a controller never sees an event, only what is there now.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from kubeloop.cache import Informer, Lister
from kubeloop.client import Client
from kubeloop.controller.declaring.declaration import Declaration, DeclarationError, checked, kind_argument, takes_key
from kubeloop.controller.declaring.surroundings import Connection
from kubeloop.controller.ownership import is_controlled_by
from kubeloop.controller.running.result import Result
from kubeloop.controller.triggers.predicates import Predicate
from kubeloop.controller.triggers.watch import Watch
from kubeloop.meta import ObjectKey, Resource
from kubeloop.timing import Clock

if TYPE_CHECKING:
    from kubeloop.controller.events import EventRecorder

R = TypeVar("R", bound=Resource)
S = TypeVar("S", bound=Resource)


class ControllerBase(Generic[R]):
    """What ``Controller`` and ``KeyController`` have in common: the declaration, and access to the cluster once a manager runs it.

    Declared as keywords of the class (``class FooController(Controller[Foo], owns=[Deployment], workers=2)``) or as attributes:

    ``owns``: kinds that this one creates; their controller owner is reconciled when they change.
    ``watches``: other kinds, with the function that says which keys to reconcile.
    ``reads``: kinds that are only read through ``lister``.
    ``predicates``: which changes of the main kind are worth a reconcile; all must agree.
    ``workers``: how many keys at once. ``timeout``: seconds after which a reconcile is cancelled.
    ``name``: of the controller in logs, events and statistics; default the kind in lower case.
    ``indexes``: of any kind used here, as ``{Pod: {"node": "spec.nodeName"}}``.
    """

    owns: ClassVar[Sequence[type[Resource]]] = ()
    watches: ClassVar[Sequence[Watch[Any]]] = ()
    reads: ClassVar[Sequence[type[Resource]]] = ()
    predicates: ClassVar[Sequence[Predicate]] = ()
    workers: ClassVar[int] = 1
    timeout: ClassVar[float | None] = None
    name: ClassVar[str] = ""
    indexes: ClassVar[Mapping[type[Resource], Mapping[str, Any]]] = {}

    _kind: ClassVar[type[Resource] | None] = None
    _connection: Connection | None = None

    def __init_subclass__(
        cls,
        *,
        owns: Sequence[type[Resource]] | None = None,
        watches: Sequence[Watch[Any]] | None = None,
        reads: Sequence[type[Resource]] | None = None,
        predicates: Sequence[Predicate] | None = None,
        workers: int | None = None,
        timeout: float | None = None,
        name: str | None = None,
        indexes: Mapping[type[Resource], Mapping[str, Any]] | None = None,
        **others: Any,
    ) -> None:
        super().__init_subclass__(**others)
        given = {
            "owns": owns,
            "watches": watches,
            "reads": reads,
            "predicates": predicates,
            "workers": workers,
            "timeout": timeout,
            "name": name,
            "indexes": indexes,
        }
        for attribute, value in given.items():
            if value is not None:
                setattr(cls, attribute, value)
        cls._kind = kind_argument(cls, ControllerBase)
        cls.owns = checked(cls.__name__, "owns", cls.owns, Resource)
        cls.reads = checked(cls.__name__, "reads", cls.reads, Resource)
        cls.watches = checked(cls.__name__, "watches", cls.watches, Watch)
        cls.predicates = checked(cls.__name__, "predicates", cls.predicates, Predicate)
        wanted: object = cls.workers
        if not isinstance(wanted, int) or wanted < 1:
            raise DeclarationError(f"{cls.__name__}: workers must be a number of at least 1, not {wanted!r}")

    @classmethod
    def declaration(cls) -> Declaration:
        """What this class declares.

        Raises:
            DeclarationError: it names no kind.
        """
        if cls._kind is None:
            raise DeclarationError(f"{cls.__name__} names no kind; write class {cls.__name__}(Controller[Foo])")
        return Declaration(
            kind=cls._kind,
            name=cls.name or cls._kind.kind.lower(),
            owns=tuple(cls.owns),
            watches=tuple(cls.watches),
            reads=tuple(cls.reads),
            predicates=tuple(cls.predicates),
            workers=cls.workers,
            timeout=cls.timeout,
            indexes={kind: dict(indexes) for kind, indexes in cls.indexes.items()},
        )

    @property
    def client(self) -> Client:
        """Writes, and reads of the newest state."""
        return self._connected.surroundings.client

    @property
    def events(self) -> EventRecorder:
        """Tells users what happened to an object."""
        return self._connected.events

    @property
    def clock(self) -> Clock:
        return self._connected.surroundings.clock

    @property
    def cluster(self) -> str:
        return self.client.cluster

    @property
    def log(self) -> logging.Logger:
        """A logger named after the controller."""
        return logging.getLogger(f"kubeloop.controller.{type(self).declaration().name}")

    def lister(self, kind: type[S]) -> Lister[S]:
        """Reads from the cache.

        Raises:
            DeclarationError: this controller has declared no interest in the kind, so nothing keeps it in memory.
        """
        return self.informer(kind).lister

    def informer(self, kind: type[S]) -> Informer[S]:
        """The informer behind ``lister``.

        Raises:
            DeclarationError: as ``lister``.
        """
        informer: Informer[S] | None = self._connected.informers.get(kind)
        if informer is None:
            name = kind.__name__
            raise DeclarationError(
                f"{type(self).__name__} has no informer for {name}; name it in owns=[...], watches=[...] or reads=[{name}]"
            )
        return informer

    def owned(self, kind: type[S], owner: Resource) -> list[S]:
        """Objects of an owned kind whose controller is ``owner``, this very one (by uid), from the cache."""
        return [obj for obj in self.lister(kind).by_index(OWNER_INDEX, owner.metadata.uid) if is_controlled_by(obj, owner)]

    def enqueue(self, key: ObjectKey, after: float = 0.0) -> None:
        """Reconcile ``key`` too, ``after`` seconds from now. May be called from any thread."""
        self._connected.enqueue(key, after)

    async def start(self) -> None:
        """Called once, after all caches are synced and before the first reconcile. Raising stops the manager."""

    async def stop(self) -> None:
        """Called once, after the last reconcile has ended."""

    @property
    def _connected(self) -> Connection:
        if self._connection is None:
            raise DeclarationError(
                f"{type(self).__name__} is not running yet: give it to a Manager, and use client, lister and events in reconcile"
            )
        return self._connection

    def connect(self, connection: Connection) -> None:
        """Called by the runner. A controller object serves one manager at a time.

        Raises:
            DeclarationError: it is connected already.
        """
        if self._connection is not None:
            raise DeclarationError(f"this {type(self).__name__} is run by another manager already; make a second one")
        self._connection = connection

    def disconnect(self) -> None:
        """Called by the runner after the end."""
        self._connection = None


#: Name of the index of owned kinds by the uids of their owners.
OWNER_INDEX = "kubeloop.owner"


class Controller(ControllerBase[R], ABC):
    """Makes the world as each object of kind ``R`` wants it.

    ::

        class FooController(Controller[Foo], owns=[Deployment], workers=2):
            async def reconcile(self, foo: Foo) -> Result | None:
                ...

    Guarantees
        ``reconcile`` is called with the newest state in the cache, a fresh object that it owns; never for two states of one object at a
        time; never before all informers of this controller are synced. It is called after every change that the predicates let pass, and
        after every error with growing delay, until it succeeds.

    Not guaranteed
        One call per change: changes in quick succession are one call. A call for an object that is gone: use finalizers, or owner
        references, or ``KeyController``.

    A plain ``def reconcile`` runs in a thread, ``workers`` of them; it must not touch ``client`` there, which belongs to the event loop.
    """

    @abstractmethod
    def reconcile(self, obj: R, /) -> Awaitable[Result | None] | Result | None:
        """Bring the cluster one step nearer to what ``obj`` says; idempotent. Raise for a retry with back-off."""

    def __init_subclass__(cls, **declared: Any) -> None:
        super().__init_subclass__(**declared)
        if takes_key(cls.reconcile):
            raise DeclarationError(f"{cls.__name__}.reconcile takes an ObjectKey; derive from KeyController, or take the object")


class KeyController(ControllerBase[R], ABC):
    """As ``Controller``, but ``reconcile`` gets the key, also of an object that is gone; it reads what it needs from ``lister``."""

    @abstractmethod
    def reconcile(self, key: ObjectKey, /) -> Awaitable[Result | None] | Result | None:
        """Bring the cluster one step nearer to what the object of that key says, or tidy up after it."""
