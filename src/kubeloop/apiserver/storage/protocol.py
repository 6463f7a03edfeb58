"""The storage protocol, in etcd's terms: keys, bytes, one global revision.

Source: etcd API guarantees (KV, Watch, compaction). Every implementation passes ``tests/apiserver/storage/test_contract.py``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from msgspec import Struct

from kubeloop.meta.errors import KubeloopError


class Compacted(KubeloopError):
    """The requested revision was compacted. ``oldest`` is the oldest revision that can be read."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"revision {revision} has been compacted; the oldest one kept is {oldest}")
        self.revision = revision
        self.oldest = oldest


class FutureRevision(KubeloopError):
    """The requested revision does not exist yet."""

    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} is in the future; the current one is {current}")
        self.revision = revision
        self.current = current


class StorageFailed(KubeloopError):
    """A change could not be stored durably. It is not stored, and no reader has seen it. The message names the file and the cause."""


class KeyValue(Struct, frozen=True, gc=False):
    """A key with its value at ``mod_revision``. ``create_revision`` is the revision of the write that created the key."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int


class Range(NamedTuple):
    """A range of keys at ``revision``, sorted by key.

    ``total`` counts all keys of the range; ``more`` is True if ``limit`` cut the range.
    """

    items: list[KeyValue]
    revision: int
    total: int
    more: bool


class WriteOutcome(NamedTuple):
    """The outcome of a conditional write.

    After a success, ``current`` is the written key, or None if it was deleted. After a failure, ``current`` is the existing key or None.
    """

    succeeded: bool
    revision: int
    current: KeyValue | None


class StorageEvent(Struct, frozen=True, gc=False):
    """One change of a key. ``value`` is None for a deletion; ``previous`` is the key before the change, None for a creation."""

    revision: int
    key: str
    value: bytes | None
    previous: KeyValue | None


class WatchStream(Protocol):
    """A stream of changes in the order of their revisions, in batches. Leaving its async context ends the watch at once."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def __aiter__(self) -> AsyncIterator[list[StorageEvent]]:
        """Iterate over batches of at least one event.

        Raises:
            Compacted: History that this stream has not delivered yet was compacted.
        """


class Storage(Protocol):
    """Keys and bytes under one global revision, which every change increases by one.

    Guarantees
        A range shows one revision, even during concurrent writes.
        A write is atomic and conditional on the revision of the key.
        A watch delivers every change of its keys from its first revision on, once, in order, without gaps.
    """

    @property
    def fault(self) -> str:
        """The error that prevents all writes until the storage is opened again; "" if there is none."""

    async def revision(self) -> int:
        """Return the current revision. An empty store has revision 1, as in etcd."""

    async def oldest(self) -> int:
        """Return the oldest readable revision: that of the last compaction, or 1. All later changes are stored."""

    async def get(self, key: str, revision: int = 0) -> tuple[KeyValue | None, int]:
        """Return a key at ``revision`` (0 stands for the current one), and the revision that was read.

        Raises:
            Compacted: The revision was compacted.
            FutureRevision: The revision does not exist yet.
        """

    async def range(self, start: str, end: str, *, revision: int = 0, limit: int = 0) -> Range:
        """Read a range of keys.

        Args:
            start: First key.
            end: First key after the range.
            revision: Revision to read; 0: the current one.
            limit: Maximum number of keys; 0: all.

        Returns:
            The keys, sorted.

        Raises:
            Compacted: The revision was compacted.
            FutureRevision: The revision does not exist yet.
        """

    async def write(self, key: str, value: bytes | None, *, expected: int, lease: int = 0) -> WriteOutcome:
        """Write or delete a key if its ``mod_revision`` is ``expected``.

        Args:
            key: The key.
            value: The new value; None deletes the key. The deletion of a missing key succeeds without a new revision.
            expected: The revision that the key must have; 0: the key must not exist.
            lease: A lease (``grant``) whose end deletes the key; 0: none.

        Returns:
            Whether the write succeeded, the revision, and the current key.

        Raises:
            StorageFailed: The change could not be stored.
        """

    def watch(self, prefix: str, start_revision: int) -> WatchStream:
        """Watch keys with a prefix: stored changes from ``start_revision`` (included) on, then new ones."""

    async def compact(self, revision: int) -> None:
        """Discard the history before ``revision``. The state at ``revision`` stays readable; older revisions raise ``Compacted``.

        Raises:
            Compacted: ``revision`` is compacted already.
            FutureRevision: ``revision`` does not exist yet.
            StorageFailed: The compaction could not be stored.
        """

    async def grant(self, seconds: float) -> int:
        """Create a lease and return its ID. Its keys are deleted at least ``seconds`` later, each at its own revision."""

    async def close(self) -> None:
        """End all watches and finish running writes. No method may be called afterwards except ``close``."""


def prefix_end(prefix: str) -> str:
    """Return the first key after all keys with a prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
