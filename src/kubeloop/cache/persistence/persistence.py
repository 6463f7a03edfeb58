"""Persistence: saves the state of each informer periodically and at the end, and restores it at the next start.

A state that does not match exactly (another server, scope or form, or a damaged file) is discarded and the reason is logged; it is never
repaired.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kubeloop.cache.blobs.head import Head, HeadReader
from kubeloop.cache.persistence.state import Stamp, StateHeader, StateReader, write_state
from kubeloop.cache.persistence.state_file import CorruptStateFile, Folder
from kubeloop.cache.pipeline import ReflectorTarget
from kubeloop.cache.reflector.event_decoder import ReflectorStore
from kubeloop.cache.scope import InformerScope
from kubeloop.cache.store.store import Snapshot
from kubeloop.client import Client
from kubeloop.meta import Forbidden, KubeloopError, NotFound, Unauthorized, Unstructured, kind_info
from kubeloop.meta.repr import counted
from kubeloop.timing import Backoff, Clock
from kubeloop.timing.clock import Timer
from kubeloop.transport import logger_with_context

#: Seconds to wait for the first event of the watch, since a server that no longer has the version reports it there.
GRACE = 0.25


class ResumingStore:
    """A ``ReflectorStore`` that installs a saved state once the server has accepted a watch from it, and forwards all calls.

    Guarantees
        The saved state is installed once, before the first event of the watch. It is never installed if a list begins or the watch is
        rejected first.

    Args:
        feed: The store that receives the saved state and the forwarded calls.
        heads: The saved objects.
        version: The resourceVersion of the saved state.
        clock: Clock of the log.
    """

    def __init__(self, feed: ReflectorStore, heads: list[Head], version: str, clock: Clock) -> None:
        self._feed = feed
        #: The saved state; None once it was installed or discarded.
        self._heads: list[Head] | None = heads
        self._version = version
        self._clock = clock
        self._timer: Timer | None = None

    @property
    def reader(self) -> HeadReader:
        return self._feed.reader

    def before(self, namespace: str, name: str) -> Head | None:
        return self._feed.before(namespace, name)

    def watching(self) -> None:
        self._feed.watching()
        if self._heads is not None:
            self._stop_timer()
            self._timer = self._clock.call_later(GRACE, self._install)

    def change(self, head: Head) -> None:
        if self._heads is not None:
            self._install()
        self._feed.change(head)

    def remove(self, head: Head) -> None:
        if self._heads is not None:
            self._install()
        self._feed.remove(head)

    def bookmark(self, version: str) -> None:
        if self._heads is not None:
            self._install()
        self._feed.bookmark(version)

    def begin_list(self) -> None:
        self._discard()
        self._feed.begin_list()

    def failed(self, error: Exception) -> None:
        # The saved state stays: if the server did not respond, the same watch is retried.
        self._stop_timer()
        self._feed.failed(error)

    def waiting(self, reason: str) -> None:
        # The watch failed, for example because the server no longer has the version: a list will follow.
        self._stop_timer()
        self._feed.waiting(reason)

    def replace(self, heads: list[Head], version: str) -> None:
        self._discard()
        self._feed.replace(heads, version)

    def flush(self) -> None:
        self._feed.flush()

    def close(self) -> None:
        """Cancel the timer after the watch has ended."""
        self._stop_timer()

    def _install(self) -> None:
        heads = self._heads
        self._discard()
        if heads is not None:
            self._feed.replace(heads, self._version)

    def _discard(self) -> None:
        self._stop_timer()
        self._heads = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


#: Default seconds between two saves.
EVERY = 300.0

_SECRETS = ("", "Secret")
#: The namespace kube-system is created once with the cluster, so its uid identifies the cluster.
_NAMESPACE = Unstructured.for_kind("v1", "Namespace", plural="namespaces", namespaced=False)
_LOG = logger_with_context("kubeloop.cache")


class Saved(Protocol):
    """The part of an informer that ``Persistence`` uses."""

    @property
    def scope(self) -> InformerScope[Any]:
        """The objects of the informer."""

    @property
    def reader(self) -> HeadReader:
        """The reader that makes the heads of the informer."""

    @property
    def feeds(self) -> tuple[ReflectorTarget, ...]:
        """The lists and watches of the informer, one for each namespace."""

    def snapshot(self, namespace: str | None) -> Snapshot:
        """Return the present objects of a namespace; None for all."""


class Persistence:
    """The state files of one ``InformerFactory``.

    Guarantees
        A state is used only after the server has accepted a watch from its version, so that later changes arrive as events.
        A saved file is complete or missing. A file is never used partially, or for another server, kind, selection or form.
        Secrets (the kind, and its metadata) are never written unless ``secrets`` is set; they are then stored unencrypted.
        Informers with ``transform`` are not saved: a later start could not detect a changed function.

    Not guaranteed
        Protection of secrets in other kinds: only this user can read the folder (0700, files 0600), but it is not encrypted.

    Cost
        100,000 Pods take 63 MB. Saving and loading take 0.3 s each and yield to other tasks every 1,000 objects. Installing the loaded
        state is one step, as after a list.
    """

    def __init__(self, client: Client, folder: Path, clock: Clock, *, every: float = EVERY, secrets: bool = False) -> None:
        """Use a folder for the state files; it is created when first needed.

        Args:
            client: The client of the informers; its server is part of a file's identity.
            folder: The folder.
            clock: Clock of the saves.
            every: Seconds between two saves. 0: save only at the end.
            secrets: Save Secrets too.
        """
        self._client = client
        self._folder = Folder(folder)
        self._clock = clock
        self._every = every
        self._secrets = secrets
        self._server = ""
        self._asking = asyncio.Lock()
        #: Version and paths at the last save, by file.
        self._saved: dict[str, tuple[str, tuple[str, ...]]] = {}

    def open(self) -> None:
        """Open and lock the folder. Raises the errors of ``Folder.open``."""
        self._folder.open()

    def close(self) -> None:
        self._folder.close()

    # ---------------------------------------------------------------------------------------------------------------- loading

    async def run(self, informer: Saved, feed: ReflectorTarget) -> None:
        """List and watch into the feed until cancelled. Begin with the saved state if one matches."""
        saved = await self._find(informer, feed)
        if saved is None:
            await feed.listwatch.run(feed)
            return
        heads, version = saved
        resuming = ResumingStore(feed, heads, version, self._clock)
        del saved, heads
        try:
            await feed.listwatch.run(resuming, version)
        finally:
            resuming.close()

    async def _find(self, informer: Saved, feed: ReflectorTarget) -> tuple[list[Head], str] | None:
        name = _file(informer.scope, feed.namespace)
        if not self._is_saved(informer.scope):
            self._folder.remove(name)
            return None
        await self._identify(feed)
        file = self._folder.reading(name)
        if file is None:
            return None
        try:
            with file:
                state = StateReader(file)
                stale = state.header.stamp.differs(self._stamp(informer, feed))
                if not stale:
                    heads = await self._load(state, informer.reader)
                    self._saved[name] = (state.header.version, state.header.stamp.paths)
                    _LOG.info(
                        "%s: resuming with %s at version %s", feed.description, counted(len(heads), "saved object"), state.header.version
                    )
                    return heads, state.header.version
                reason = f"it was written for {stale}"
        except (CorruptStateFile, OSError) as error:
            reason = str(error)
        _LOG.warning("%s: discarding the saved state and listing all objects: %s", feed.description, reason)
        self._folder.remove(name)
        return None

    async def _load(self, state: StateReader, reader: HeadReader) -> list[Head]:
        heads: list[Head] = []
        for some in state.slices(reader):
            heads += some
            await asyncio.sleep(0)
        reader.archive.adopt(state.codecs)
        return heads

    async def _identify(self, feed: ReflectorTarget) -> None:
        """Identify the cluster, and retry until it responds: a state of another cluster must never be shown."""
        backoff = Backoff(clock=self._clock)
        async with self._asking:
            while not self._server:
                try:
                    saved = await self._client.get_metadata(_NAMESPACE, "kube-system")
                    self._server = f"uid {saved.metadata.uid}"
                except (Forbidden, NotFound, Unauthorized):
                    # Without permission, the address and the certificate authority identify the server.
                    config = self._client.transport.config
                    self._server = f"address {config.server} authority {_digest('' if config.ca is None else config.ca.read().hex())}"
                except KubeloopError as error:
                    feed.failed(error)
                    await self._clock.sleep(backoff.next())

    # ----------------------------------------------------------------------------------------------------------------- saving

    async def keep_saving(self, informers: Iterable[Saved]) -> None:
        """Save the informers periodically until cancelled."""
        while self._every > 0:
            await self._clock.sleep(self._every)
            await self.save(informers)

    async def save(self, informers: Iterable[Saved]) -> None:
        """Save the changes since the last save. A file that cannot be written is logged, and the old file stays."""
        for informer in list(informers):
            for feed in informer.feeds:
                if self._server and feed.synced and feed.version and self._is_saved(informer.scope):
                    await self._save(informer, feed)

    async def _save(self, informer: Saved, feed: ReflectorTarget) -> None:
        name = _file(informer.scope, feed.namespace)
        state = (feed.version, informer.reader.projection.paths)
        if self._saved.get(name) == state:
            return
        snapshot = informer.snapshot(feed.namespace)
        header = StateHeader(self._stamp(informer, feed), feed.version, len(snapshot))
        try:
            with self._folder.writing(name) as file:
                for part in write_state(header, snapshot, informer.reader):
                    await asyncio.to_thread(file.write, part)
                await asyncio.to_thread(self._folder.end_list, file)
        except OSError as error:
            _LOG.warning("%s: cannot save the state: %s", feed.description, error)
        else:
            self._saved[name] = state

    def _is_saved(self, scope: InformerScope[Any]) -> bool:
        if scope.keep.transform is not None:
            return False
        gvk = kind_info(scope.kind).gvk
        return self._secrets or (gvk.group, gvk.kind) != _SECRETS

    def _stamp(self, informer: Saved, feed: ReflectorTarget) -> Stamp:
        scope = informer.scope
        paths = informer.reader.projection.paths
        gvk = kind_info(scope.kind).gvk
        return Stamp(
            self._server, gvk.api_version, gvk.kind, feed.namespace, scope.label_selector, scope.field_selector, scope.keep.form, paths
        )


def _file(scope: InformerScope[Any], namespace: str | None) -> str:
    gvk = kind_info(scope.kind).gvk
    identity = msgspec.json.encode(
        [gvk.api_version, gvk.kind, namespace, scope.label_selector, scope.field_selector, scope.keep.form]
    ).decode()
    return f"{gvk.kind.lower()}-{_digest(identity)[:24]}.state"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
