"""The folder of a store: its lock, its first file, and snapshots of it. Only its owner may read the files, because they hold Secrets."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kubeloop.apiserver.storage.sqlite.journal import APPLICATION, Journal, StoreDamaged, create_database
from kubeloop.meta.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # checked before use

_FILE = "store.db"
_LOCK = "lock"


def store_file(folder: Path) -> Path:
    """Return the path of the database in a folder."""
    return folder / _FILE


class Lock:
    """The exclusive lock of a folder, from the constructor until ``release`` or the end of the process.

    Raises
        ConfigError: Another process has the lock (the text names it), or the folder cannot be created or written.
    """

    def __init__(self, folder: Path) -> None:
        if fcntl is None:
            raise ConfigError(
                f"{folder}: this system has no file locks, so that no server can store its objects on disk here; leave out --data"
            )
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(
                f"{folder} cannot be used for a store: {error.strerror}; name a folder on a local disk that you may write"
            ) from None
        try:
            # flock, because a lock of fcntl ends when any other code in this process closes the file.
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
        """Release the lock."""
        os.close(self._handle)


@contextmanager
def new_store(folder: Path) -> Iterator[Path]:
    """Context manager for a new store: yields the path of its file, with the lock acquired. On an error a new folder is removed again.

    Raises:
        ConfigError: See ``Lock``; or the folder has a store already.
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


def ensure_store(folder: Path, *, synced: bool) -> Path:
    """Return the file of a store, and create the store if the folder has none. The caller must have the lock.

    Args:
        folder: The folder of the store.
        synced: False: do not call fsync.

    Raises:
        StoreDamaged: The folder had a store whose file is missing or empty.
        OSError: The folder cannot be written.
    """
    path = store_file(folder)
    if path.exists():
        if not path.stat().st_size:
            raise StoreDamaged(path, "it is empty")
        return path
    if path.with_name(f"{_FILE}-wal").exists():
        raise StoreDamaged(path, f"it is missing, though {_FILE}-wal is there")
    with new_file(path, synced=synced) as temporary:
        create_database(temporary, synced=synced)
    return path


@contextmanager
def new_file(path: Path, *, synced: bool = True) -> Iterator[Path]:
    """Context manager: yields an empty file of mode 0600 to fill, and renames it to ``path`` at the end. On an error it is removed."""
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


def save_snapshot(folder: Path, file: Path) -> int:
    """Write a snapshot of the store in ``folder`` at one revision, and return this revision. A server may be using the store.

    An existing ``file`` is replaced atomically. Its mode is 0600.

    Raises:
        ConfigError: There is no store, or it is damaged.
        OSError: ``file`` cannot be written.
    """
    store = store_file(folder)
    if not store.is_file():
        raise ConfigError(f"{folder} holds no store; name the folder that a server was given with --data")
    if not file.absolute().parent.is_dir():
        raise ConfigError(f"cannot write {file}: there is no folder {file.parent}")
    _check_left(folder, store)
    with new_file(file) as temporary:
        try:
            with closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)) as connection:
                if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                    raise ConfigError(f"{store} is not a store of kubeloop; name another folder")
                # VACUUM INTO reads in one transaction while a server continues to write, and leaves out free pages.
                connection.execute("VACUUM INTO ?", (str(temporary),))
        except sqlite3.Error as error:
            raise ConfigError(f"cannot save {store}: {error}") from None
        return _checked(temporary, store)


def restore_snapshot(file: Path, folder: Path, *, bump: int = 0) -> int:
    """Create a store in ``folder`` from a snapshot, and return the first revision of the store.

    Args:
        file: The snapshot.
        folder: A folder without a store.
        bump: Number of revisions to skip, so that clients which have seen later revisions than that of the snapshot list again.

    Raises:
        ConfigError: ``file`` is no snapshot or damaged, or the folder has a store already.
        OSError: ``file`` or ``folder`` cannot be used.
    """
    if not file.is_file():
        raise ConfigError(f"{file}: no such file; name the file of a snapshot (snapshot save)")
    with new_store(folder) as store, new_file(store) as temporary:
        shutil.copyfile(file, temporary)
        return _checked(temporary, file, bump)


def _check_left(folder: Path, store: Path) -> None:
    """Check the write-ahead log that a crashed server may have left, as a server does at its start, unless a server uses the store."""
    try:
        lock = Lock(folder)
    except ConfigError:
        return
    try:
        Journal(store).close()
    finally:
        lock.release()


def _checked(store: Path, original: Path, bump: int = 0) -> int:
    try:
        ledger = Journal(store)
        try:
            revision = ledger.oldest
            for record in ledger.load():
                revision = max(revision, record.revision)
            if bump:
                revision += bump
                ledger.set_oldest(revision)
            return revision
        finally:
            ledger.close()
    except StoreDamaged as error:
        raise ConfigError(f"{original} is damaged: {error.what}; use an older snapshot") from None
    except ConfigError as error:
        raise ConfigError(str(error).replace(str(store), str(original))) from None
