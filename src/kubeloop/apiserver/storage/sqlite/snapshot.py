"""Snapshots: a store in one file that can be carried elsewhere. What the file holds is checked before anything is begun with it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from kubeloop.apiserver.storage.sqlite.folder import Lock, fresh, new_file, store_file
from kubeloop.apiserver.storage.sqlite.ledger import APPLICATION, Damaged, Journal
from kubeloop.meta.errors import ConfigError


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
