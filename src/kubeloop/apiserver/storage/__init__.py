"""Storage: an etcd-shaped protocol (range at a revision, compare-and-write, watch, compact, lease) and its implementations."""

from kubeloop.apiserver.storage.memory import MemoryStorage
from kubeloop.apiserver.storage.protocol import (
    Compacted,
    FutureRevision,
    KeyValue,
    Range,
    Storage,
    StorageEvent,
    StorageFailed,
    WatchStream,
    WriteOutcome,
    prefix_end,
)

__all__ = [
    "Compacted",
    "FutureRevision",
    "KeyValue",
    "MemoryStorage",
    "Range",
    "Storage",
    "StorageEvent",
    "StorageFailed",
    "WatchStream",
    "WriteOutcome",
    "prefix_end",
]
