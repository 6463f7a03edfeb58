"""The folder of a store: who may open it, and its first file. Everything in it is for its owner's eyes only, for Secrets are among it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubeloop.apiserver.storage.sqlite.ledger import Damaged, make
from kubeloop.meta.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # checked before use

_FILE = "store.db"
_LOCK = "lock"


def store_file(folder: Path) -> Path:
    return folder / _FILE


class Lock:
    """Held from its making until ``release``, or the end of the process, however it ends.

    Raises
        ConfigError: another process holds it (the text says which), or the folder cannot be made or written.
    """

    def __init__(self, folder: Path) -> None:
        if fcntl is None:
            raise ConfigError(
                f"{folder}: this system has no file locks, so that no server can store its objects on disk here; leave out --data"
            )
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as fault:
            raise ConfigError(
                f"{folder} cannot be used for a store: {fault.strerror}; name a folder on a local disk that you may write"
            ) from None
        try:
            # flock, not fcntl's locks: those end when anything else in this process closes the file.
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._handle, 20).decode(errors="replace").strip()
            os.close(self._handle)
            raise ConfigError(
                f"{folder} is in use by another server (process {holder or 'unknown'}); end that one, or name another folder"
            ) from None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._handle)


@contextmanager
def fresh(folder: Path) -> Iterator[Path]:
    """Where the file of a new store belongs, with the lock held. If the context fails, a folder that was made for it is gone again.

    Raises:
        ConfigError: as ``Lock``, or there is a store already.
    """
    made = not folder.exists()
    lock = Lock(folder)
    try:
        store = store_file(folder)
        if store.exists():
            raise ConfigError(f"{folder} holds a store already, which is left as it is; name an empty folder")
        yield store
    except BaseException:
        if made:
            (folder / _LOCK).unlink()
            folder.rmdir()
        raise
    finally:
        lock.release()


def ensure_store(folder: Path, *, synced: bool = True) -> Path:
    """The store's file, made if there is none. Call it with the lock held. ``synced`` False: without fsync.

    Raises:
        Damaged: a store was here, and its file is gone or empty. OSError
    """
    path = store_file(folder)
    if path.exists():
        if not path.stat().st_size:
            raise Damaged(path, "it is empty")
        return path
    if path.with_name(f"{_FILE}-wal").exists():
        raise Damaged(path, f"it is missing, though {_FILE}-wal is there")
    with new_file(path, synced=synced) as temporary:
        make(temporary, synced=synced)
    return path


@contextmanager
def new_file(path: Path, *, synced: bool = True) -> Iterator[Path]:
    """An empty file, mode 0600, to be filled within the context; then it is ``path``, on disk. Nothing stays if it fails."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if synced:
            _sync(temporary)
        temporary.replace(path)
        if synced:
            _sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
