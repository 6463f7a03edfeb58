"""Storage in a file: SQLite as a ledger of changes, everything in memory as well."""

from kubeloop.apiserver.storage.sqlite.ledger import StoreDamaged
from kubeloop.apiserver.storage.sqlite.storage import SqliteStorage

__all__ = ["SqliteStorage", "StoreDamaged"]
