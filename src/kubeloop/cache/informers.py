"""Informers: makes informers, shares equal ones between callers, and starts and stops them together."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, TypeVar, cast

from kubeloop.cache import arguments
from kubeloop.cache.blobs.retention import Retention, Transform, warn_of_unknown
from kubeloop.cache.deltas import DeltaQueue, InformerQueue, Known
from kubeloop.cache.diagnostics.describe import Description, dump
from kubeloop.cache.diagnostics.stats import InformerStats
from kubeloop.cache.informer import Informer, InformerRunner
from kubeloop.cache.leaks import DuplicateInformerCheck
from kubeloop.cache.persistence import Persistence
from kubeloop.cache.persistence.persistence import EVERY
from kubeloop.cache.reflector.listwatch import ListWatch
from kubeloop.cache.reflector.steps import WatchPolicy
from kubeloop.cache.scope import InformerDefaults, InformerScope
from kubeloop.cache.store.index_sources import IndexSource
from kubeloop.cache.tasks import InformerStopped, Progress, Tasks
from kubeloop.client import Client, Write
from kubeloop.client.mapper import ALL_NAMESPACES
from kubeloop.client.selector_text import Fields, Labels
from kubeloop.meta import PartialObject, Resource, kind_info
from kubeloop.meta.signals import on_signal
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import logger_with_context

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_LOG = logger_with_context("kubeloop.cache")


class ObservableInformers(ABC):
    """Diagnostics of informers: statistics, tables and metrics. See docs/observability.md."""

    #: Called when the informers end: they remove metrics and signal handlers.
    _endings: list[Callable[[], object]]

    @property
    @abstractmethod
    def cluster(self) -> str:
        """Name of the cluster in keys, logs and metrics."""

    @abstractmethod
    def __iter__(self) -> Iterator[Informer[Any]]:
        """Iterate over the present informers."""

    def measure(self) -> list[InformerStats]:
        """Return the present statistics of each informer."""
        return [informer.stats for informer in self]

    def describe(self) -> Description:
        """Return the present state as a table, for ``print``, ``rich.print`` or the last line of a notebook cell."""
        return Description(self.measure())

    def dump(self) -> dict[str, Any]:
        """Return all numbers as a tree for ``json``.

        It holds no object's contents; the name of an object appears only while a handler processes the object.
        """
        return dump(self.measure())

    def dump_on_signal(self, number: int | None = None, to: Path | None = None) -> None:
        """Write ``dump()`` as a line of JSON to standard error, or to a file, at each signal until the informers end.

        The default signal is SIGUSR1. The file is replaced atomically each time, and only its owner can read it.

        Raises:
            RuntimeError, ValueError: not in the main thread, the signal cannot be caught, or this system (Windows) has no SIGUSR1.
        """
        loop = asyncio.get_running_loop()
        if number is None:
            if not hasattr(signal, "SIGUSR1"):
                raise RuntimeError("this system has no SIGUSR1: give another signal (on Windows signal.SIGBREAK), or call dump() itself")
            number = signal.SIGUSR1
        undo = on_signal(signal.Signals(number), partial(self._write_dump, to))
        self._endings.append(lambda: loop.is_closed() or undo())

    def metrics(self, registry: CollectorRegistry | None = None, *, name: str = "kubeloop") -> None:
        """Show these informers in a Prometheus registry (None: prometheus_client's default one) until they end.

        ``name`` is a label of each series; it distinguishes several factories for one cluster.

        Raises:
            ValueError: informers of that name and cluster are in the registry already, or the name is empty.
        """
        from kubeloop.cache.diagnostics.metrics import metrics_of

        collector, cluster = metrics_of(registry), self.cluster
        collector.add(name, cluster, self)
        self._endings.append(lambda: collector.remove(name, cluster))

    def _end_observation(self) -> None:
        """Remove metrics and signal handlers when the informers end."""
        endings, self._endings = self._endings, []
        with ExitStack() as stack:  # in reverse order, so that the first handler of a signal is restored last
            for end in endings:
                stack.callback(end)

    def _write_dump(self, to: Path | None) -> None:
        text = json.dumps({"time": datetime.now(UTC).isoformat(), "cluster": self.cluster, **self.dump()}) + "\n"
        if to is None:
            sys.stderr.write(text)
            sys.stderr.flush()
            return
        try:
            beside = to.with_name(f".{to.name}.{os.getpid()}")
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(text)
            beside.replace(to)
        except OSError as error:
            _LOG.error("cannot write the dump to %s: %s", to, error.strerror or error)


R = TypeVar("R", bound=Resource)


class InformerOptions(TypedDict, Generic[R], total=False):
    """The options of ``InformerFactory.for_kind``, for functions that pass them on."""

    namespace: str | Iterable[str] | None
    label_selector: Labels | None
    field_selector: Fields | None
    indexes: Mapping[str, IndexSource[R]] | None
    paths: Iterable[str]
    fields: Iterable[str]
    transform: Transform | None
    managed_fields: bool
    queue: Callable[[Known], InformerQueue]
    page_size: int
    resync: float | None


class InformerFactory(ObservableInformers):
    """Factory of the informers of one program and one cluster. ``async with`` starts them, leaving the block stops them.

    Guarantees
        Calls for the same scope (see ``InformerScope``) return the same informer: one list and watch, one copy in memory.
        After the block no task runs and no request is open. Informers whose block is never left emit a ``ResourceWarning``.

    Errors
        A rejected request does not end the block; it is logged and retried, and ``wait_synced`` raises it or names it.

    Args:
        client: The client of the cluster. It stays open.
        resync: Seconds between resyncs of handlers that set no period. 0: no resyncs.
        clock: Clock of all delays. None: the system's monotonic clock.
        rng: Source of jitter. None: a new ``random.Random``.
        cluster: Name of the cluster in keys and logs. None: the client's.
        read_your_writes: Listers show writes of ``client`` immediately, before the watch confirms them.
        policy: Options of lists and watches.
        persist: Folder for the state of each informer, so that the next start requests only changes; created for this user alone
            (``Persistence``). None: nothing is saved.
        persist_every: Seconds between two saves. 0: save only at the end.
        persist_secrets: Save Secrets too.

    Raises:
        TypeError, ValueError: an argument has a wrong type or value; the message names the argument and valid values.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     config_maps = informers.for_kind(ConfigMap)
        ...     await informers.wait_synced()
        ...     print(config_maps.lister.list())
        []
    """

    def __init__(
        self,
        client: Client,
        *,
        resync: float = 0.0,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        cluster: str | None = None,
        read_your_writes: bool = True,
        policy: WatchPolicy | None = None,
        persist: Path | str | None = None,
        persist_every: float = EVERY,
        persist_secrets: bool = False,
    ) -> None:
        arguments.check_client(client)
        arguments.check_seconds("resync", resync)
        arguments.check_name("cluster", cluster)
        arguments.check_policy(policy)
        arguments.check_folder("persist", persist)
        arguments.check_seconds("persist_every", persist_every)
        arguments.check_flag("read_your_writes", read_your_writes)
        arguments.check_flag("persist_secrets", persist_secrets)
        self._client = client
        self._clock: Clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._progress = Progress(self._clock)
        self._disk = Persistence(client, Path(persist), self._clock, every=persist_every, secrets=persist_secrets) if persist else None
        self._defaults = InformerDefaults(client.cluster if cluster is None else cluster, self._clock, self._progress, resync)
        self._runners: dict[InformerScope[Any], InformerRunner[Any]] = {}
        self._tasks: Tasks | None = None
        self._ended = False
        self._read_your_writes = read_your_writes
        self._policy = policy or WatchPolicy()
        self._unlisten: Callable[[], None] | None = None
        self._endings: list[Callable[[], object]] = []
        self._duplicates = DuplicateInformerCheck()

    def for_kind(
        self,
        kind: type[R],
        *,
        namespace: str | Iterable[str] | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        indexes: Mapping[str, IndexSource[R]] | None = None,
        paths: Iterable[str] = (),
        fields: Iterable[str] = (),
        transform: Transform | None = None,
        managed_fields: bool = False,
        queue: Callable[[Known], InformerQueue] = DeltaQueue,
        page_size: int = 0,
        resync: float | None = None,
    ) -> Informer[R]:
        """Return the informer of a kind. Entering the factory's ``async with`` block starts it; inside the block it starts immediately.

        If an informer of the same scope exists, the call adds ``indexes`` and ``paths`` to it, sets its ``resync`` unless None, and ignores
        ``page_size``. The other options belong to the scope. ``client.update`` rejects objects of an informer with ``fields`` or
        ``transform``, since the update would erase the other fields.

        Args:
            kind: Class of the objects.
            namespace: One namespace, several, or ``ALL_NAMESPACES``. None: the client's. Several namespaces are listed and watched
                separately, into one cache.
            label_selector: Cache only matching objects.
            field_selector: Cache only matching objects. The server must support the fields.
            indexes: Name -> path (``{"node": "spec.nodeName"}``), function of the object, ``ByLabel`` or ``Sorted``.
            paths: Further paths that ``head.value`` reads without decoding.
            fields: Store only the identity and these paths of each object. Empty: whole objects.
            transform: Changes each object before it is stored (``Retention``).
            managed_fields: Store managedFields too.
            queue: ``DeltaFifo`` groups deltas by object, as client-go once did; ``DeltaQueue`` keeps the order over all objects.
            page_size: Objects per page of a list. 0: that of the policy.
            resync: Seconds between resyncs of handlers that are added later without a period. None: that of this factory.

        Returns:
            The informer; the same one for calls of the same scope.

        Raises:
            ValueError: an invalid namespace, or one for a cluster-scoped kind; an unreadable selector; a malformed path; a negative number;
                an index that exists with another source.
            TypeError: an argument has a wrong type; the message names the argument and valid values.
            UnknownKind: the class names no kind.
            InformerStopped: the block has ended.
        """
        arguments.check_kind(kind, "for_kind")
        chosen = arguments.paths("fields", fields, " (a selector is field_selector=...)")
        arguments.check_transform(transform)
        arguments.check_flag("managed_fields", managed_fields)
        arguments.check_queue(queue)
        if resync is not None:
            arguments.check_seconds("resync", resync)
        keep = Retention(managed_fields, False, chosen, transform)
        namespace = self._namespaces(kind, namespace)
        scope = InformerScope.for_kind(
            kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector, keep=keep, queue=queue
        )
        return self._of(scope, indexes, paths, page_size, resync)

    def metadata(
        self,
        kind: type[Resource],
        *,
        namespace: str | Iterable[str] | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        indexes: Mapping[str, IndexSource[PartialObject]] | None = None,
        paths: Iterable[str] = (),
        managed_fields: bool = False,
        page_size: int = 0,
    ) -> Informer[PartialObject]:
        """Return an informer of the metadata of a kind. It requests only metadata from the server.

        Source: Kubernetes API concepts, "Metadata-only fetches".

        Args:
            kind: Class of the objects.
            namespace: See ``of``.
            label_selector: See ``of``.
            field_selector: See ``of``.
            indexes: See ``of``; only paths in the metadata.
            paths: See ``of``; only paths in the metadata.
            managed_fields: See ``of``.
            page_size: See ``of``.
        """
        arguments.check_kind(kind, "metadata")
        arguments.check_flag("managed_fields", managed_fields)
        keep = Retention(managed_fields, True)
        namespace = self._namespaces(kind, namespace)
        scope = InformerScope.for_kind(kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector, keep=keep)
        return self._of(cast("InformerScope[PartialObject]", scope), indexes, paths, page_size)

    def _namespaces(self, kind: type[Resource], namespace: str | Iterable[str] | None) -> str | Iterable[str] | None:
        """Return the namespaces of a scope: the client's if none is given; None for all."""
        if namespace is not None:
            return None if namespace == ALL_NAMESPACES else namespace
        info = kind_info(kind)
        if info.namespaced is None:
            raise ValueError(
                f"only discovery shows whether {info.gvk.kind} has namespaces: give namespace=..., ALL_NAMESPACES for all of them, "
                "or its scope with the class (namespaced=True or False)"
            )
        return self._client.namespace if info.namespaced else None

    def _of(
        self,
        scope: InformerScope[R],
        indexes: Mapping[str, IndexSource[R]] | None,
        paths: Iterable[str],
        page_size: int,
        resync: float | None = None,
    ) -> Informer[R]:
        if self._ended:
            raise InformerStopped("these informers have stopped; create new ones")
        arguments.check_page_size(page_size)
        runner = cast("InformerRunner[R] | None", self._runners.get(scope))
        if runner is None:
            policy = replace(self._policy, page_size=page_size) if page_size else self._policy
            sources = [ListWatch(self._client, scope, each, self._clock, self._rng, policy) for each in scope.feeds]
            runner = InformerRunner(scope, sources, self._defaults, self._name(scope), self._disk)
            warn_of_unknown(scope.kind, scope.keep.fields, runner.description)
            same_kind = sum(other.kind is scope.kind for other in self._runners)
            self._duplicates.informers(scope.kind.__name__, same_kind + 1, runner.description)
        informer = runner.informer
        informer.add_indexes(indexes or {}, paths)
        if resync is not None:
            informer.resync = resync
        self._runners[scope] = runner
        if self._tasks is not None:
            runner.start(self._tasks)
        return informer

    async def remove(self, informer: Informer[Any], *, drain_timeout: float | None = None) -> None:
        """Stop an informer and remove it from this factory, for example when its kind's definition is deleted. ``of`` makes a new one.

        Its handlers get no more events, its lister still reads the last state, and its ``wait_synced`` raises. Informers that do not belong
        to this factory are ignored. A handler that awaits this method for its own informer is cancelled.

        Args:
            informer: made by ``of`` or ``metadata`` of this factory.
            drain_timeout: first emit a DELETED event (``tombstone``) for each cached object, and wait so many seconds for the handlers;
                None: emit nothing.
        """
        for scope, runner in list(self._runners.items()):
            if runner.informer is informer:
                if drain_timeout is not None:
                    await runner.emit_deletions(drain_timeout)
                self._runners.pop(scope, None)
                try:
                    await runner.stop()
                finally:  # A handler that removes its own informer is cancelled here.
                    self._progress.notify()

    @property
    def cluster(self) -> str:
        """Name of the cluster in keys, logs and metrics."""
        return self._defaults.cluster

    @property
    def read_your_writes(self) -> bool:
        """Whether listers show the client's writes before the watch confirms them."""
        return self._read_your_writes

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter([runner.informer for runner in self._runners.values()])

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until every informer has its first list. ``timeout`` is in seconds.

        Raises:
            Unauthorized, Forbidden, UntrustedCertificate: raised immediately, since waiting does not help.
            InformerStopped: the block has ended.
            DeadlineError: the timeout expired; the message names each informer that is not synced and why its last request failed.
        """
        await self._progress.until(self._all_synced, timeout, self._missing)

    async def __aenter__(self) -> Self:
        if self._tasks is not None or self._ended:
            raise InformerStopped("informers can be entered once; create new ones")
        if self._disk is not None:
            self._disk.open()
        self._tasks = Tasks(self._clock)
        try:
            if self._disk is not None:
                self._tasks.create(self._disk.keep_saving(self._runners.values()), "kubeloop saving informers")
            if self._read_your_writes:
                self._unlisten = self._client.on_write(self._record)
            for runner in self._runners.values():
                runner.start(self._tasks)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = True
        async with AsyncExitStack() as stack:  # in reverse
            if self._disk is not None:
                stack.callback(self._disk.close)
            stack.push_async_callback(self._end_tasks)
            stack.callback(self._progress.notify)
            for runner in self._runners.values():
                stack.callback(runner.close)
            if self._unlisten is not None:
                stack.callback(self._unlisten)
            stack.callback(self._end_observation)

    async def _end_tasks(self) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            await tasks.close()
        if self._disk is not None:  # not reached if ``close`` raised the error of a task: such a state is not worth saving
            await self._disk.save(self._runners.values())

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        # If __init__ raised, the attributes are missing. The module is bound above, since it may be gone when the interpreter exits.
        if getattr(self, "_tasks", None) is not None:
            names = ", ".join(runner.description for runner in self._runners.values()) or "none"
            warn(f"informers were never ended (use async with): {names}", ResourceWarning, source=self)

    def _start_task(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine in a task until the block ends, for parts of the cache that use several informers.

        Raises:
            InformerStopped: the block has not begun, or has ended.
        """
        if self._tasks is None:
            work.close()
            raise InformerStopped("these informers do not run: enter their block first")
        return self._tasks.create(work, name)

    def _name(self, scope: InformerScope[Any]) -> str:
        """Return a description that is unique among these informers, so that logs and metrics never mix two of them."""
        taken = {runner.description for runner in self._runners.values()}
        number, name = 1, scope.describe()
        while name in taken:
            number += 1
            name = f"{scope.describe()} #{number}"
        return name

    def _record(self, write: Write) -> None:
        for runner in self._runners.values():
            runner.record(write)

    def _all_synced(self) -> bool:
        if self._ended:
            raise InformerStopped("these informers have stopped; create new ones")
        # Every informer is checked, so that a permanent failure is reported even while another informer is only slow.
        synced = [runner.check() for runner in self._runners.values()]
        return all(synced)

    def _missing(self) -> str:
        idle = "" if self._tasks is not None else "nothing runs yet (enter the block: async with informers); "
        return f"{idle}not synced: " + "; ".join(informer.waiting_for() for informer in self if not informer.synced)
