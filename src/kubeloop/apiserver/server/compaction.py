"""Compaction of the history: by age, as kube-apiserver compacts etcd, by number of revisions, and on request.

Source: kube-apiserver --etcd-compaction-interval.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial

from kubeloop.apiserver.registry.options import resource_version_number
from kubeloop.apiserver.storage import Compacted, FutureRevision, Storage, StorageFailed
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints import api_errors
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.tasks import SupervisedTask, Supervisor, close_all
from kubeloop.timing import Clock

_LOG = logging.getLogger("kubeloop.apiserver")

INTERVAL = 300.0

#: POST with ``?revision=N`` compacts (0 or none: the current revision). Not part of Kubernetes, for tests. Needs authorization.
PATH = "/debug/compact"


class Compactor:
    """Compacts storage and watch cache together.

    Guarantees
        History of the last ``interval`` seconds is stored, and none older than twice that.
        With ``revisions``, the last ``revisions`` revisions are stored, and at most one and a half times as many, regardless of their age.
    """

    def __init__(self, storage: Storage, cache: WatchCache, clock: Clock, interval: float = INTERVAL, revisions: int = 0) -> None:
        """Create the compactor. It does nothing before ``start``.

        Args:
            storage: Storage to compact.
            cache: The watch cache to trim.
            clock: The clock of the server.
            interval: Seconds of history to store.
            revisions: Number of revisions to store; 0: any number.
        """
        self._storage = storage
        self._cache = cache
        self._clock = clock
        self._interval = interval
        self._revisions = revisions
        self._tasks: list[SupervisedTask] = []

    def start(self, tasks: Supervisor) -> None:
        """Compact at intervals until ``stop``."""
        self._tasks.append(tasks.start(self._by_age, name="compaction"))
        if self._revisions:
            self._tasks.append(tasks.start(partial(self._by_revisions, self._revisions), name="compaction-by-revisions"))

    async def stop(self) -> None:
        """Stop the periodic compaction."""
        stopping = [task.stop for task in self._tasks]
        self._tasks.clear()
        await close_all(*stopping)

    async def compact(self, revision: int) -> None:
        """Compact the history before ``revision``, unless it is compacted already.

        Raises:
            FutureRevision: ``revision`` is newer than the storage's.
            StorageFailed: The storage failed.
        """
        newest = await self._storage.revision()
        if revision > newest:
            raise FutureRevision(revision, newest)
        # The watch cache reads the history of the storage, which must not lose unread changes.
        await self._cache.wait_until(revision)
        with contextlib.suppress(Compacted):
            await self._storage.compact(revision)
        self._cache.trim(revision)

    async def answer(self, request: Request) -> Answer:
        """Handle a request for ``PATH``."""
        if request.method != "POST":
            raise api_errors.method_not_allowed()
        text = request.parameter("revision") or "0"
        revision = resource_version_number(text)
        if revision is None:
            raise api_errors.bad_request(f"revision: {text!r} is not a valid revision; write a number, or leave it out for the newest")
        try:
            await self.compact(revision or await self._storage.revision())
        except FutureRevision as error:
            raise api_errors.bad_request(str(error)) from None
        return Answer(object={"compacted": revision or self._cache.oldest})

    async def _by_revisions(self, stored: int) -> None:
        while True:
            await self._cache.wait_until(self._cache.oldest + stored + max(stored // 2, 1))
            if not await self._compacted(self._cache.revision - stored):
                await self._clock.sleep(self._interval)

    async def _by_age(self) -> None:
        before = 0
        while True:
            await self._clock.sleep(self._interval)
            now = await self._storage.revision()
            if before > 1 and await self._compacted(before):
                _LOG.debug("compacted up to revision %d", before)
            before = now

    async def _compacted(self, revision: int) -> bool:
        try:
            await self.compact(revision)
        except StorageFailed as error:
            _LOG.warning("could not compact up to revision %d, retrying later: %s", revision, error)
            return False
        return True
