"""Stale read guards: after a reconcile that may have written, its key waits until the cache shows the write.

The cache shows successful writes immediately (docs/informers.md, "Read your own writes"). The guard covers the other cases: writes whose
response was lost, writes of a replica that owned the key before, and caches that do not show own writes. Without it a controller that lists
its children would create them twice.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import msgspec

from kubeloop.cache import Informer
from kubeloop.client import Client, Write
from kubeloop.meta import (
    ConnectionRefused,
    InternalError,
    ObjectKey,
    ServerTimeout,
    ServiceUnavailable,
    Timeout,
    TransportError,
    UntrustedCertificate,
    kind_info,
    parse_label_selector,
)
from kubeloop.meta.strconv import decimal
from kubeloop.transport import logger_with_context

_LOG = logger_with_context("kubeloop.controller.reader")

#: Seconds that a reconcile waits for the cache; then it is retried with back-off.
PATIENCE = 10.0

_UNANSWERED = (TransportError, ServerTimeout, Timeout, InternalError, ServiceUnavailable, TimeoutError)
_NOT_SENT = (ConnectionRefused, UntrustedCertificate)


class _Listing:
    """The lists of one namespace: one at a time, and the number of the last completed one."""

    __slots__ = ("lock", "number", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.number = 0
        self.waiting = 0


class StaleReadGuard:
    """Delays the next reconcile of a key until the caches show the writes of its last one.

    Guarantees
        After a reconcile that ended with a lost connection, a server's error or a timeout, the next one of its key sees the server's state
        at that time: of the key's namespace (for a cluster-scoped key, of all namespaces), and of the kinds that the controller reconciles,
        owns or declares in ``writes``. After ``on_leadership_acquired`` the next reconcile of each key sees the server's state at that
        time, of the same kinds, and so the writes of replicas that owned the keys before. With caches that do not show own writes
        (``InformerFactory(read_your_writes=False)``), the next reconcile of a key sees the successful writes of the last one, of all kinds
        that the controller reads. (Not of kinds that are selected by fields.)

    Not guaranteed
        Writes with a lost response whose error the reconcile caught, or that the server executes later. Deletions: their events add the key
        again anyway.

    Cost
        No cost without errors. After an uncertain end, a list of metadata for each of these kinds; one list serves all keys of a
        namespace that became uncertain before it. After ``on_leadership_acquired`` one such list of everything, for all keys.

    Args:
        client: Lists the metadata.
        written: Informers of the kinds that reconciles may have written.
        informers: The informers of all kinds that the controller reads.
        namespaced: The main kind is namespaced.
        overlaid: The caches show own writes immediately.
    """

    def __init__(
        self, client: Client, written: Sequence[Informer[Any]], informers: Sequence[Informer[Any]], *, namespaced: bool, overlaid: bool
    ) -> None:
        self._client = client
        self._checked = tuple(dict.fromkeys(written))
        self._namespaced = namespaced
        self._informers = {kind_info(informer.kind).gvk: informer for informer in informers if not informer.scope.field_selector}
        #: Uncertain writes and lists share a sequence of numbers: a list that began later resolves an uncertain write.
        self._numbers = itertools.count(1)
        self._doubts: dict[ObjectKey, int] = {}
        #: Number of the last takeover of all keys, and of the last takeover that a list resolved.
        self._taken_over = self._resolved = 0
        self._lists: dict[str, _Listing] = {}
        self._waits: set[asyncio.Task[None]] = set()
        self._given_up = asyncio.Event()
        self._written: dict[ObjectKey, dict[Informer[Any], int]] = {}
        self._key: ContextVar[ObjectKey | None] = ContextVar("kubeloop_reconciling", default=None)
        self._unlisten = None if overlaid else client.on_write(self._record)

    def close(self) -> None:
        """Stop recording writes."""
        if self._unlisten is not None:
            self._unlisten()

    def before(self, key: ObjectKey) -> bool:
        """Return whether ``wait_until_fresh`` must be awaited before the reconcile. Later writes of this task belong to the key."""
        if self._unlisten is not None:
            self._key.set(key)
        return key in self._doubts or key in self._written or self._taken_over > self._resolved

    def mark_uncertain(self, key: ObjectKey, error: BaseException) -> None:
        """Record the error with which a reconcile ended.

        If a request without a response is among its causes, the server may have executed a write, so the key's next reconcile must wait.
        """
        if _unanswered(error):
            self._doubts[key] = next(self._numbers)

    def on_leadership_acquired(self) -> None:
        """Record that another replica owned keys until now. The caches may not show its last writes yet."""
        self._taken_over = next(self._numbers)

    async def wait_until_fresh(self, key: ObjectKey) -> bool:
        """Wait until the caches show the writes of the last reconcile of a key. Return False if ``cancel`` ended the wait, else True.

        Raises:
            DeadlineError: the timeout expired; the message names the stale cache.
            KubeloopError: the server rejects the lists.
        """
        if self._given_up.is_set():
            return False
        waiting = asyncio.create_task(self._pass(key), name=f"kubeloop fence of {key}")
        self._waits.add(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._given_up.is_set() and (task is None or not task.cancelling()):
                return False
            raise
        finally:
            self._waits.discard(waiting)
        return True

    def cancel(self) -> None:
        """End all waits immediately, because no reconcile follows."""
        self._given_up.set()
        for waiting in self._waits:
            waiting.cancel()

    async def _pass(self, key: ObjectKey) -> None:
        for informer, version in list(self._written.get(key, {}).items()):
            await informer.lister.wait_fresh(str(version), PATIENCE)
        self._written.pop(key, None)
        taken_over = self._taken_over
        if taken_over > self._resolved:
            await self._settle("", taken_over)
            self._resolved = max(taken_over, self._resolved)
        doubt = self._doubts.get(key)
        if doubt is not None:
            await self._settle(key.namespace if self._namespaced else "", doubt)
            if self._doubts.get(key) == doubt:
                del self._doubts[key]

    def forget(self, key: ObjectKey) -> None:
        """Drop the state of a deleted object."""
        self._doubts.pop(key, None)
        self._written.pop(key, None)

    async def _settle(self, namespace: str, doubt: int) -> None:
        listing = self._lists.setdefault(namespace, _Listing())
        listing.waiting += 1
        try:
            async with listing.lock:
                if listing.number < doubt:
                    number = next(self._numbers)
                    for informer in self._checked:
                        await self._catch_up(informer, namespace)
                    listing.number = number
        finally:
            listing.waiting -= 1
            if not listing.waiting:
                del self._lists[namespace]

    async def _catch_up(self, informer: Informer[Any], namespace: str) -> None:
        """Wait until an informer has the states that the server has now."""
        scope, lister = informer.scope, informer.lister
        namespaces = [namespace] if namespace and (not scope.namespaces or namespace in scope.namespaces) else scope.feeds
        behind = 0
        for each in namespaces:
            async for obj in self._client.list_metadata(
                informer.kind, namespace=each, label_selector=scope.label_selector, field_selector=scope.field_selector
            ):
                metadata = obj.metadata
                head = lister.head(metadata.name, metadata.namespace)
                version = decimal(metadata.resource_version) or 0
                if head is None or (decimal(head.resource_version) or 0) < version:
                    behind = max(behind, version)
        if behind:
            _LOG.info("waiting for version %d: what was written last, here or by another replica, is not in the cache yet", behind)
            await lister.wait_fresh(str(behind), PATIENCE)

    def _record(self, write: Write) -> None:
        key = self._key.get()
        informer = self._informers.get(write.mapping.gvk)
        version = decimal(write.resource_version)
        if key is None or informer is None or version is None or write.document is None or not _concerns(informer, write):
            return
        marks = self._written.setdefault(key, {})
        marks[informer] = max(version, marks.get(informer, 0))


class _Labelled(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Labelled


_LABELS = msgspec.json.Decoder(_Object)


def _concerns(informer: Informer[Any], write: Write) -> bool:
    """Return whether the informer's watch will show the write: the object is in its scope."""
    scope = informer.scope
    if scope.namespaces and write.namespace not in scope.namespaces:
        return False
    if not scope.label_selector:
        return True
    return write.document is not None and parse_label_selector(scope.label_selector).matches(_LABELS.decode(write.document).metadata.labels)


def _unanswered(error: BaseException | None) -> bool:
    """Return whether a request without a response is among the causes of an error."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        namespace = waiting.pop()
        if namespace is None or id(namespace) in seen:
            continue
        seen.add(id(namespace))
        if isinstance(namespace, _UNANSWERED) and not isinstance(namespace, _NOT_SENT):
            return True
        waiting += [namespace.__cause__, namespace.__context__]
        if isinstance(namespace, BaseExceptionGroup):
            waiting += namespace.exceptions
    return False
