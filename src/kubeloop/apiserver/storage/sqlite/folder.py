"""The folder of a store: its lock, its first file, and snapshots of it. Only its owner may read the files, because they hold Secrets."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kubeloop.apiserver.storage.sqlite.ledger import APPLICATION, Damaged, Journal, make
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


def save(folder: Path, file: Path) -> int:
    """Write the store in ``folder`` as it stands at one revision, and return that. A server may be at work in it.

    ``file`` is replaced if it is there, has mode 0600, and is whole or not there at all.

    Raises:
        ConfigError: no store there, or a damaged one. OSError: ``file`` cannot be written.
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
                    raise ConfigError(f"{store} is no store of kubeloop; name another folder")
                # From one read transaction, beside which a server goes on writing; and without the room that deletions left.
                connection.execute("VACUUM INTO ?", (str(temporary),))
        except sqlite3.Error as fault:
            raise ConfigError(f"cannot save {store}: {fault}") from None
        return _checked(temporary, store)


def restore(file: Path, folder: Path, *, bump: int = 0) -> int:
    """Make a store of a snapshot in ``folder``, which must hold none, and return the revision at which it begins.

    ``bump``: begin so many revisions later, without history, so that clients which have seen later ones than the snapshot's list anew.

    Raises:
        ConfigError: it is no snapshot, or damaged, or there is a store already. OSError: ``file`` or ``folder`` cannot be used.
    """
    if not file.is_file():
        raise ConfigError(f"{file}: no such file; name one that snapshot save wrote")
    with fresh(folder) as store, new_file(store) as temporary:
        shutil.copyfile(file, temporary)
        return _checked(temporary, file, bump)


def _check_left(folder: Path, store: Path) -> None:
    """What no server has open, a crash may have left: looked at as a server that starts would."""
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
    except Damaged as fault:
        raise ConfigError(f"{original} is damaged: {fault.what}; use an older snapshot") from None
    except ConfigError as fault:
        raise ConfigError(str(fault).replace(str(store), str(original))) from None
