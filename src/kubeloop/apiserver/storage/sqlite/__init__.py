"""Storage in a SQLite file: a journal of all changes on disk, and all objects in memory as well."""

from kubeloop.apiserver.storage.sqlite.journal import StoreDamaged
from kubeloop.apiserver.storage.sqlite.storage import SqliteStorage

__all__ = ["SqliteStorage", "StoreDamaged"]
