"""Storage: an etcd-shaped protocol (range at a revision, compare-and-write, watch, compact, lease) and its implementations."""

from kubeloop.apiserver.storage.memory import MemoryStorage
from kubeloop.apiserver.storage.protocol import (
    Compacted,
    Event,
    FutureRevision,
    KeyValue,
    Range,
    Storage,
    StorageFailed,
    WatchStream,
    Written,
    prefix_end,
)

__all__ = [
    "Compacted",
    "Event",
    "FutureRevision",
    "KeyValue",
    "MemoryStorage",
    "Range",
    "Storage",
    "StorageFailed",
    "WatchStream",
    "Written",
    "prefix_end",
]
