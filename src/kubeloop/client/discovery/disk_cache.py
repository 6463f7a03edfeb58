"""Caches discovery in memory and on disk, beside kubectl's cache."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from kubeloop.client.discovery.discovery_client import discover, discover_version
from kubeloop.client.discovery.resources import Discovered
from kubeloop.meta.kinds import GroupVersion
from kubeloop.timing import Clock, TokenBucket
from kubeloop.transport import Transport

# Discovery kept on disk where kubectl keeps its own, in a file beside kubectl's: a folder per server, good for six hours.
#
# Source: cli-runtime pkg/genericclioptions/config_flags.go (folders), client-go discovery/cached/disk (age, rewriting).


_LOG = logging.getLogger("kubeloop.client.discovery")

#: Seconds for which a file counts.
TTL = 6 * 3600.0
#: Files of another form are discarded.
_FORM = 1
_NAME = "kubeloop.json"
_UNSAFE = re.compile(r"[^(\w/.)]", re.ASCII)


class _File(msgspec.Struct):
    form: int
    discovered: Discovered


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of kubectl's cache: KUBECACHEDIR, or ``~/.kube/cache``."""
    named = (os.environ if environ is None else environ).get("KUBECACHEDIR")
    return Path(named) if named else Path.home() / ".kube" / "cache"


def folder_of(server: str) -> str:
    """Return the name of a server's folder, as in kubectl's cache: ``127.0.0.1_6443``."""
    bare = re.sub(r"^https?://", "", server, flags=re.IGNORECASE)
    parts = _UNSAFE.sub("_", bare).split("/")
    return "/".join("_" if part == ".." else part for part in parts if part not in ("", "."))


class DiscoveryFile:
    """The discovery file of one server. Only its owner can read it; it is replaced atomically. A damaged or old file counts as missing.

    ``ttl`` is in seconds. No method raises because of the cache: a folder that cannot be written is logged at DEBUG.
    """

    def __init__(self, server: str, *, folder: Path | None = None, ttl: float = TTL) -> None:
        self._path = (folder or cache_folder()) / "discovery" / folder_of(server) / _NAME
        self._ttl = ttl

    @property
    def path(self) -> Path:
        return self._path

    def read(self, now: float) -> Discovered | None:
        """Return the stored resources, or None if the file is missing, damaged or too old. ``now`` is in seconds since 1970."""
        try:
            if now > self._path.stat().st_mtime + self._ttl:
                return None
            found = msgspec.json.decode(self._path.read_bytes(), type=_File)
        except OSError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _LOG.debug("%s is damaged and discarded: %s", self._path, error)
            self.discard()
            return None
        return found.discovered if found.form == _FORM else None

    def write(self, discovered: Discovered) -> None:
        content = msgspec.json.encode(_File(_FORM, discovered))
        try:
            replace_file(self._path, content)
        except OSError as error:
            _LOG.debug("cannot cache discovery on disk: %s", error)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by its owner only; create missing folders, accessible to their owner only.

    Raises:
        OSError: The file cannot be written; the old content is unchanged.
    """
    _make_private(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp creates with mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _make_private(folder: Path) -> None:
    """Create the folder and its missing parents, each for its owner only (``mkdir(parents=True)`` would leave parents to the umask)."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)


#: Limit of requests for all resources after which the lookup fails again: ten at once, then one every ten seconds. A program that looks up
#: a missing kind in a loop must not cost its server a discovery each time.
_RATE = 0.1
_BURST = 10


class CachedDiscovery:
    """The cached resources of a server. Concurrent callers share one request.

    Guarantees
        Resources from a file, or from before a lookup failed, are requested again once. A group version that failed temporarily (429,
        5xx, no response) is requested again, alone, by each lookup that needs it. Other failures are cached until ``forget``.
    """

    def __init__(self, transport: Transport, clock: Clock, file: DiscoveryFile | None = None) -> None:
        self._transport = transport
        self._clock = clock
        self.file = file
        self._known: Discovered | None = None
        self._lock = asyncio.Lock()
        self._limit = TokenBucket(_RATE, _BURST, clock)
        self._begun = 0
        self._answered = 0
        self._read_files = True

    @property
    def fresh(self) -> bool:
        """Whether this client requested the cached resources itself. False: they come from a file."""
        return self._answered > 0 and self._known is not None

    @property
    def begun(self) -> int:
        """The number of requests for all resources that were started, including a running one."""
        return self._begun

    @property
    def answered(self) -> int:
        """The number of the request whose response is cached; 0 if the cached resources come from a file."""
        return self._answered

    @property
    def known(self) -> Discovered | None:
        return self._known

    async def current(self) -> Discovered:
        """Return the resources from memory, or else from the file, or else from the server.

        Raises:
            ApiError, TransportError, DecodeError: See ``discover``.
        """
        if self._known is not None:
            return self._known
        async with self._lock:
            if self._known is None:
                self._known = await self._from_file() or await self._ask()
            return self._known

    async def renewed(self, missed: Discovered, lookup: Callable[[Discovered], object], version: GroupVersion | None = None) -> Discovered:
        """Return newer resources after a lookup failed in ``missed``; return ``missed`` itself if a new request cannot help now.

        The result may come from the request of another caller.

        Args:
            missed: The resources in which the lookup failed.
            lookup: Returns None if the resources do not have what the caller needs.
            version: The group version of the missing resource, if the caller knows it.
        """
        async with self._lock:
            if self._known is not None and self._known is not missed:
                return self._known  # a concurrent call has requested it meanwhile
            failure = missed.failure(version) if version is not None else None
            if version is not None and failure is not None and failure.again:
                self._known = missed.with_version(version, await discover_version(self._transport, version))
            elif self._limit.try_take():
                self._known = await self._ask()
                if lookup(self._known) is not None:
                    self._limit.give_back()  # it was not in vain
            else:
                self._known = missed
            return self._known

    def forget(self) -> None:
        """Request the resources from the server at the next use, even if a file has them."""
        self._known = None
        self._read_files = False

    async def _from_file(self) -> Discovered | None:
        if self.file is None or not self._read_files:
            return None
        return await asyncio.to_thread(self.file.read, self._clock.wall().timestamp())

    async def _ask(self) -> Discovered:
        self._begun += 1
        found = await discover(self._transport)
        if self.file is not None:
            await asyncio.to_thread(self.file.write, found)
        self._answered = self._begun
        return found
