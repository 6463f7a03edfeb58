"""Persistence: saves the state of each informer now and then and at the end, and gives it back at the next start.

What does not fit exactly (another server, scope, form; a file that is not as it was written) is discarded with its reason, never repaired.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kubeloop.cache.blobs.head import Head, HeadReader
from kubeloop.cache.persistence.folder import Folder
from kubeloop.cache.persistence.records import Damaged
from kubeloop.cache.persistence.state import Header, Stamp, StateReader, write_state
from kubeloop.cache.reflector.store import ReflectorStore
from kubeloop.cache.reflector_target import ReflectorTarget
from kubeloop.cache.scope import Scope
from kubeloop.cache.store.store import Snapshot
from kubeloop.client import Client
from kubeloop.meta import Forbidden, KubeloopError, NotFound, Unauthorized, Unstructured, kind_info
from kubeloop.meta.repr import counted
from kubeloop.timing import Backoff, Clock
from kubeloop.timing.clock import Timer
from kubeloop.transport import logger_with_context

#: A server that no longer has the version says so in the first event of the watch, in seconds: nothing is shown before.
GRACE = 0.25


class Resuming:
    """The sink of a list and watch that begins with ``resume_from``. Afterwards it is the feed by other names, and costs nothing.

    Guarantees
        The saved state is installed once, before anything that the watch brings; or never, if a list begins or the watch is refused first.
    """

    def __init__(self, feed: ReflectorStore, heads: list[Head], version: str, clock: Clock) -> None:
        self._feed = feed
        self._heads = heads
        self._version = version
        self._clock = clock
        self._timer: Timer | None = None
        self.before = feed.before

    @property
    def reader(self) -> HeadReader:
        return self._feed.reader

    def watching(self) -> None:
        self._stop_timer()
        self._feed.watching()
        self._timer = self._clock.call_later(GRACE, self._install)

    def change(self, head: Head) -> None:
        self._install()
        self._feed.change(head)

    def remove(self, head: Head) -> None:
        self._install()
        self._feed.remove(head)

    def bookmark(self, version: str) -> None:
        self._install()
        self._feed.bookmark(version)

    def listing(self) -> None:
        self._pass_on()
        self._feed.listing()

    def failed(self, error: Exception) -> None:
        # Not in vain yet: where nobody answered, the same watch is tried again.
        self._stop_timer()
        self._feed.failed(error)

    def waiting(self, why: str) -> None:
        # The watch came to nothing, such as for a version that the server has forgotten: a list will follow.
        self._stop_timer()
        self._feed.waiting(why)

    def replace(self, heads: list[Head], version: str) -> None:
        self._pass_on()
        self._feed.replace(heads, version)

    def flush(self) -> None:
        self._feed.flush()

    def close(self) -> None:
        """The watch ended for good."""
        self._stop_timer()

    def _install(self) -> None:
        heads, version = self._heads, self._version
        self._pass_on()
        self._feed.replace(heads, version)

    def _pass_on(self) -> None:
        self._stop_timer()
        self._heads = []
        feed = self._feed
        names = ("watching", "change", "remove", "bookmark", "listing", "failed", "waiting", "replace", "flush")
        for name in names:
            setattr(self, name, getattr(feed, name))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


#: Seconds between two saves, unless told otherwise.
EVERY = 300.0

_SECRETS = ("", "Secret")
#: Made once with the cluster and never again: its uid is the cluster's.
_NAMESPACE = Unstructured.of("v1", "Namespace", plural="namespaces", namespaced=False)
_log = logger_with_context("kubeloop.cache")


class Saved(Protocol):
    """An informer, as far as saving it needs to know."""

    @property
    def scope(self) -> Scope[Any]:
        """What it is an informer of."""

    @property
    def reader(self) -> HeadReader:
        """Makes its heads."""

    @property
    def feeds(self) -> tuple[ReflectorTarget, ...]:
        """Its lists and watches."""

    def snapshot(self, namespace: str | None) -> Snapshot:
        """Its objects of this moment."""


class Persistence:
    """The state files of one ``Informers``.

    Guarantees
        A state is shown only after the server has accepted a watch from its version: what changed since comes as changes.
        A saved file is complete or not there. No file is ever used in part, nor for a server, kind, selection or form other than its own.
        Secrets (the kind, also their metadata) are never written unless ``secrets`` is set; then they lie there as readable as in memory.
        Informers with ``transform`` are not saved: whether the function is still the same cannot be known.

    Not guaranteed
        That other kinds hold no secrets: the folder is for this user alone (0700, files 0600), and is not encrypted.

    Cost
        For 100,000 Pods 63 MB; saving and loading each take 0.3 s and let others run every 1,000 objects. Installing what was loaded is
        one step, as after a list.
    """

    def __init__(self, client: Client, folder: Path, clock: Clock, *, every: float = EVERY, secrets: bool = False) -> None:
        """``every``: seconds between two saves; 0: only at the end."""
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
        """Raises: as ``Folder.open``."""
        self._folder.open()

    def close(self) -> None:
        self._folder.close()

    # ---------------------------------------------------------------------------------------------------------------- loading

    async def run(self, informer: Saved, feed: ReflectorTarget) -> None:
        """List and watch into the feed, from its saved state on if there is one that fits. Until it is cancelled."""
        found = await self._find(informer, feed)
        if found is None:
            await feed.listwatch.run(feed)
            return
        heads, version = found
        resuming = Resuming(feed, heads, version, self._clock)
        del found, heads
        try:
            await feed.listwatch.run(resuming, version)
        finally:
            resuming.close()

    async def _find(self, informer: Saved, feed: ReflectorTarget) -> tuple[list[Head], str] | None:
        name = _file(informer.scope, feed.namespace)
        if not self._wanted(informer.scope):
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
                    _log.info("%s: resuming with %s at version %s", feed.what, counted(len(heads), "saved object"), state.header.version)
                    return heads, state.header.version
                reason = f"it was written for {stale}"
        except (Damaged, OSError) as error:
            reason = str(error)
        _log.warning("%s: the saved state is discarded, everything is listed: %s", feed.what, reason)
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
        """Ask which cluster this is, until it answers: a state of another one must not be shown, not even for a moment."""
        backoff = Backoff(clock=self._clock)
        async with self._asking:
            while not self._server:
                try:
                    found = await self._client.get_metadata(_NAMESPACE, "kube-system")
                    self._server = f"uid {found.metadata.uid}"
                except (Forbidden, NotFound, Unauthorized):
                    # Who may not ask: a server at another address, or that another authority vouches for, is another one.
                    config = self._client.transport.config
                    self._server = f"address {config.server} authority {_digest('' if config.ca is None else config.ca.read().hex())}"
                except KubeloopError as error:
                    feed.failed(error)
                    await self._clock.sleep(backoff.next())

    # ----------------------------------------------------------------------------------------------------------------- saving

    async def keep_saving(self, informers: Iterable[Saved]) -> None:
        """Save all of them every so often, until it is cancelled."""
        while self._every > 0:
            await self._clock.sleep(self._every)
            await self.save(informers)

    async def save(self, informers: Iterable[Saved]) -> None:
        """Save what changed since the last time. What cannot be written is logged; the old file stays."""
        for informer in list(informers):
            for feed in informer.feeds:
                if self._server and feed.synced and feed.version and self._wanted(informer.scope):
                    await self._save(informer, feed)

    async def _save(self, informer: Saved, feed: ReflectorTarget) -> None:
        name = _file(informer.scope, feed.namespace)
        state = (feed.version, informer.reader.projection.paths)
        if self._saved.get(name) == state:
            return
        snapshot = informer.snapshot(feed.namespace)
        header = Header(self._stamp(informer, feed), feed.version, len(snapshot))
        try:
            with self._folder.writing(name) as file:
                for part in write_state(header, snapshot, informer.reader):
                    await asyncio.to_thread(file.write, part)
                await asyncio.to_thread(self._folder.settle, file)
        except OSError as error:
            _log.warning("%s: the state cannot be saved: %s", feed.what, error)
        else:
            self._saved[name] = state

    def _wanted(self, scope: Scope[Any]) -> bool:
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


def _file(scope: Scope[Any], namespace: str | None) -> str:
    gvk = kind_info(scope.kind).gvk
    what = msgspec.json.encode([gvk.api_version, gvk.kind, namespace, scope.label_selector, scope.field_selector, scope.keep.form]).decode()
    return f"{gvk.kind.lower()}-{_digest(what)[:24]}.state"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
