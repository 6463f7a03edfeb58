"""Discovery kept on disk where kubectl keeps its own, in a file beside kubectl's: a folder per server, good for six hours.

Source: cli-runtime pkg/genericclioptions/config_flags.go (folders), client-go discovery/cached/disk (age, rewriting).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kubeloop.client.discovery.resources import Discovered

_logger = logging.getLogger("kubeloop.client.discovery")

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
    """KUBECACHEDIR, or ``~/.kube/cache``."""
    named = (os.environ if environ is None else environ).get("KUBECACHEDIR")
    return Path(named) if named else Path.home() / ".kube" / "cache"


def folder_of(server: str) -> str:
    """A server's folder, as kubectl names it: ``127.0.0.1_6443``."""
    bare = re.sub(r"^https?://", "", server, flags=re.IGNORECASE)
    parts = _UNSAFE.sub("_", bare).split("/")
    return "/".join("_" if part == ".." else part for part in parts if part not in ("", "."))


class DiscoveryFile:
    """One server's file. Only its owner can read it; it is replaced whole, and what is damaged or too old is as if it was not there.

    ``ttl`` in seconds. Nothing here raises for the sake of the cache: a folder that cannot be written is logged at DEBUG.
    """

    def __init__(self, server: str, *, folder: Path | None = None, ttl: float = TTL) -> None:
        self._path = (folder or cache_folder()) / "discovery" / folder_of(server) / _NAME
        self._ttl = ttl

    @property
    def path(self) -> Path:
        return self._path

    def read(self, now: float) -> Discovered | None:
        """``now`` in seconds since 1970."""
        try:
            if now > self._path.stat().st_mtime + self._ttl:
                return None
            found = msgspec.json.decode(self._path.read_bytes(), type=_File)
        except OSError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _logger.debug("%s is damaged and discarded: %s", self._path, error)
            self.discard()
            return None
        return found.discovered if found.form == _FORM else None

    def write(self, discovered: Discovered) -> None:
        content = msgspec.json.encode(_File(_FORM, discovered))
        try:
            replace_file(self._path, content)
        except OSError as error:
            _logger.debug("discovery is not kept on disk: %s", error)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()


def replace_file(path: Path, content: bytes) -> None:
    """Whole and readable by its owner only; folders that are missing are made for their owner only.

    Raises:
        OSError: it cannot be written; what was there is there still.
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
    """With all its parents that are missing, each for its owner only (``mkdir(parents=True)`` would leave parents to the umask)."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
