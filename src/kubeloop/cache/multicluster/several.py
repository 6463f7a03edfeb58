"""Informers for several clusters: one handler and one lister cover all clusters. A cluster that fails does not affect the others."""

from __future__ import annotations

import asyncio
import builtins
import inspect
import random
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar, Unpack

from kubeloop.cache import arguments
from kubeloop.cache.blobs.head import Head
from kubeloop.cache.diagnostics.describe import Description
from kubeloop.cache.handlers.event import InformerEvent, Predicate
from kubeloop.cache.handlers.registration import Handler, Registration
from kubeloop.cache.informer import Informer
from kubeloop.cache.informers import InformerFactory, InformerOptions
from kubeloop.cache.lister.lister import Labels, Lister
from kubeloop.cache.reflector.steps import WatchPolicy
from kubeloop.cache.tasks import Syncing, all_synced
from kubeloop.client import Client
from kubeloop.meta import DeadlineError, KubeloopError, ObjectKey, Resource
from kubeloop.timing import Clock

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

R = TypeVar("R", bound=Resource)


class SerialisedHandler(Generic[R]):
    """A handler that shares a lock with others: while one of them is awaited, no other starts.

    Waiting handlers run in the order of their arrival, so that informers with many and with few events take turns.
    """

    __slots__ = ("__qualname__", "_handler", "_lock")

    def __init__(self, handler: Handler[R], lock: asyncio.Lock) -> None:
        self._handler = handler
        self._lock = lock
        self.__qualname__ = str(getattr(handler, "__qualname__", handler))

    def __call__(self, event: InformerEvent[R]) -> object:
        if self._lock.locked():
            return self._later(event)
        # A synchronous function stays synchronous: it needs no lock, and its calls can be measured.
        result = self._handler(event)
        return self._finish(result) if inspect.isawaitable(result) else result

    async def _later(self, event: InformerEvent[R]) -> None:
        async with self._lock:
            result = self._handler(event)
            if inspect.isawaitable(result):
                await result

    async def _finish(self, result: Awaitable[object]) -> None:
        try:
            await self._lock.acquire()
        except BaseException:
            if inspect.iscoroutine(result):
                result.close()
            raise
        try:
            await result
        finally:
            self._lock.release()


class UnknownCluster(KubeloopError, LookupError):
    """A query names a cluster that the ``MulticlusterLister`` does not have."""


class MulticlusterInformerFactory:
    """Factory of informers over several clusters. ``async with`` starts them all, leaving the block stops them.

    Guarantees
        A cluster that is down or rejects requests does not delay the others: its objects are missing or outdated until it works again.
        ``event.key.cluster`` and the log name the cluster.

    Not guaranteed
        Any order between the events of different clusters.

    Args:
        clients: Name of a cluster -> client; the name appears in keys and logs. A list of clients takes the names from their kubeconfigs.
        resync: See ``InformerFactory``.
        clock: See ``InformerFactory``.
        rng: See ``InformerFactory``.
        read_your_writes: See ``InformerFactory``.
        policy: See ``InformerFactory``.

    Raises:
        ValueError: there is no client, or two have the same name.
        TypeError: an element of ``clients`` is not a client; the message names it.

    Example:
        >>> async with MulticlusterInformerFactory({"west": client}) as informers:
        ...     pods = informers.for_kind(Pod)
        ...     await informers.wait_synced()
        ...     print([(cluster, pod.metadata.name) for cluster, pod in pods.lister.list()])
        []
    """

    def __init__(
        self,
        clients: Mapping[str, Client] | Iterable[Client],
        *,
        resync: float = 0.0,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        read_your_writes: bool = True,
        policy: WatchPolicy | None = None,
    ) -> None:
        arguments.check_clients(clients)
        if not isinstance(clients, Mapping):
            listed = list(clients)
            for at, client in enumerate(listed):
                arguments.check_client(client, f"clients[{at}]")
            clients = {client.cluster: client for client in listed}
            if len(clients) < len(listed):
                raise ValueError(
                    'two clients have the same cluster name; name them: MulticlusterInformerFactory({"east": ..., "west": ...})'
                )
        if not clients:
            raise ValueError("no client was given")
        for name, client in clients.items():
            arguments.check_client(client, f"clients[{name!r}]")
        informers = {
            name: InformerFactory(
                client, resync=resync, clock=clock, rng=rng, cluster=name, read_your_writes=read_your_writes, policy=policy
            )
            for name, client in clients.items()
        }
        #: The informers of each cluster, by its name.
        self.clusters: Mapping[str, InformerFactory] = MappingProxyType(informers)
        self._stack: AsyncExitStack | None = None

    def for_kind(self, kind: type[R], **options: Unpack[InformerOptions[R]]) -> MulticlusterInformer[R]:
        """Return the informers of a kind in all clusters, as one. Options and errors are those of ``InformerFactory.for_kind``."""
        return MulticlusterInformer({name: informers.for_kind(kind, **options) for name, informers in self.clusters.items()})

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until every informer of every cluster has synced. To continue without unreachable clusters, catch the error.

        Raises:
            Unauthorized, Forbidden, UntrustedCertificate: raised immediately; a note on the error names the cluster.
            DeadlineError: the timeout expired; the message names each cluster that has not synced, its missing objects, and the reason.
        """
        await all_synced(*(_Named(name, informers) for name, informers in self.clusters.items()), timeout=timeout)

    def describe(self) -> Description:
        """Return the state of all informers as a table. See ``InformerFactory.describe``."""
        return Description([stats for informers in self.clusters.values() for stats in informers.measure()])

    def metrics(self, registry: CollectorRegistry | None = None, *, name: str = "kubeloop") -> None:
        """Show the informers of all clusters in a Prometheus registry until they end. See ``InformerFactory.metrics`` for arguments."""
        for informers in self.clusters.values():
            informers.metrics(registry, name=name)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for informers in self.clusters.values():
                await stack.enter_async_context(informers)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool | None:
        stack, self._stack = self._stack, None
        return None if stack is None else await stack.__aexit__(kind, error, trace)


class MulticlusterInformer(Generic[R]):
    """The informers of one kind in several clusters. ``MulticlusterInformerFactory.for_kind`` makes it.

    Example:
        >>> async with MulticlusterInformerFactory({"west": client}) as informers:
        ...     pods = informers.for_kind(Pod)
        ...     await informers.wait_synced()
        ...     print(pods.synced, len(pods.lister))
        {'west': True} 0
    """

    def __init__(self, informers: Mapping[str, Informer[R]]) -> None:
        #: The informer of each cluster.
        self.clusters: Mapping[str, Informer[R]] = MappingProxyType(dict(informers))
        self.lister: MulticlusterLister[R] = MulticlusterLister({name: informer.lister for name, informer in informers.items()})

    @property
    def synced(self) -> Mapping[str, bool]:
        """Cluster name -> whether its informer has synced."""
        return {name: informer.synced for name, informer in self.clusters.items()}

    def on_event(
        self,
        *,
        added: Handler[R] | None = None,
        updated: Handler[R] | None = None,
        deleted: Handler[R] | None = None,
        predicate: Predicate | None = None,
        coalesce: bool = False,
        resync: float | None = None,
        name: str = "",
    ) -> MulticlusterRegistration[R]:
        """Add a handler for the objects of all clusters. It is called for one event at a time.

        Each cluster has its own buffer; clusters with waiting events take turns.

        Args:
            added: See ``Informer.on_event``.
            updated: See ``Informer.on_event``.
            deleted: See ``Informer.on_event``.
            predicate: See ``Informer.on_event``.
            coalesce: See ``Informer.on_event``.
            resync: See ``Informer.on_event``.
            name: See ``Informer.on_event``.

        Returns:
            The registration, which removes the handler from all clusters.

        Raises:
            InformerStopped: the informer of a cluster has stopped and will never call the functions.
        """
        lock = asyncio.Lock()
        calls = {
            argument: each and SerialisedHandler(each, lock)
            for argument, each in (("added", added), ("updated", updated), ("deleted", deleted))
        }
        registrations = {
            cluster: informer.on_event(predicate=predicate, coalesce=coalesce, resync=resync, name=name, **calls)
            for cluster, informer in self.clusters.items()
        }
        return MulticlusterRegistration(registrations)


class MulticlusterRegistration(Generic[R]):
    """The registrations of one handler with the informers of all clusters. ``MulticlusterInformer.on_event`` returns it.

    Example:
        >>> async with MulticlusterInformerFactory({"west": client}) as informers:
        ...     registration = informers.for_kind(Pod).on_event(added=lambda event: print(event.key.cluster, event.key.name))
        ...     await registration.wait_synced()
        ...     print(registration.synced)
        True
    """

    def __init__(self, registrations: Mapping[str, Registration[R]]) -> None:
        self.clusters: Mapping[str, Registration[R]] = MappingProxyType(dict(registrations))

    @property
    def synced(self) -> bool:
        """Whether the handler has handled the initial objects of every cluster."""
        return all(registration.synced for registration in self.clusters.values())

    @property
    def pending(self) -> int:
        """Number of waiting events of all clusters."""
        return sum(registration.pending for registration in self.clusters.values())

    def remove(self) -> None:
        """Remove the handler from all clusters. See ``Registration.remove``."""
        for registration in self.clusters.values():
            registration.remove()

    async def wait_removed(self, timeout: float | None = None) -> None:
        """Wait until the last call has returned. See ``Registration.wait_removed``."""
        for registration in self.clusters.values():
            await registration.wait_removed(timeout)

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until the handler has synced with all clusters; errors name the cluster. See ``Registration.wait_synced``."""
        await all_synced(*(_Named(name, each) for name, each in self.clusters.items()), timeout=timeout)


class MulticlusterLister(Generic[R]):
    """Reads the caches of all clusters. Each result comes with the name of its cluster; cost and guarantees are those of ``Lister``.

    Raises
        UnknownCluster: there is no cluster of this name.

    Example:
        >>> async with MulticlusterInformerFactory({"west": client}) as informers:
        ...     pods = informers.for_kind(Pod).lister
        ...     await informers.wait_synced()
        ...     print(pods.get("west", "web-0"))
        None
    """

    __slots__ = ("clusters",)

    def __init__(self, listers: Mapping[str, Lister[R]]) -> None:
        #: The lister of each cluster.
        self.clusters: Mapping[str, Lister[R]] = MappingProxyType(dict(listers))

    def get(self, cluster: str, name: str, namespace: str | None = None) -> R | None:
        """Return one object of one cluster; None if it is not cached."""
        return self._of(cluster).get(name, namespace)

    def by_key(self, key: ObjectKey) -> R | None:
        """Return the object with this key, including its cluster; None if it is not cached."""
        return self._of(key.cluster).by_key(key)

    def list(self, namespace: str | None = None, label_selector: Labels | None = None) -> builtins.list[tuple[str, R]]:
        return builtins.list(self.each(namespace, label_selector))

    def each(self, namespace: str | None = None, label_selector: Labels | None = None) -> Iterator[tuple[str, R]]:
        """Iterate over the objects of ``list``; each cluster is read when it is reached."""
        for name, lister in self.clusters.items():
            for obj in lister.each(namespace, label_selector):
                yield name, obj

    def by_index(self, name: str, value: str | int | bool) -> builtins.list[tuple[str, R]]:
        """Return the objects of all clusters with this value in an index."""
        return [(cluster, obj) for cluster, lister in self.clusters.items() for obj in lister.by_index(name, value)]

    def heads(self, namespace: str | None = None, label_selector: Labels | None = None) -> builtins.list[tuple[str, Head]]:
        """Return the heads of all objects that match, with the names of their clusters, without decoding."""
        return [(cluster, head) for cluster, lister in self.clusters.items() for head in lister.heads(namespace, label_selector)]

    def __len__(self) -> int:
        return sum(map(len, self.clusters.values()))

    def _of(self, cluster: str) -> Lister[R]:
        lister = self.clusters.get(cluster)
        if lister is None:
            raise UnknownCluster(f'no cluster "{cluster}" here (there are: {", ".join(self.clusters)})')
        return lister


class _Named:
    """Wraps the ``wait_synced`` of one cluster, so that its errors name the cluster."""

    def __init__(self, name: str, part: Syncing) -> None:
        self._name = name
        self._part = part

    async def wait_synced(self, timeout: float = 120.0) -> None:
        try:
            await self._part.wait_synced(timeout)
        except DeadlineError as error:
            raise DeadlineError(f'cluster "{self._name}": {error}') from None
        except KubeloopError as error:
            error.add_note(f'in cluster "{self._name}"')
            raise
