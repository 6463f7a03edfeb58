"""What the server needs of a store, in etcd's terms: keys, bytes, one global revision.

Source: etcd API guarantees (KV, Watch, compaction). Every implementation passes ``tests/apiserver/storage/test_contract.py``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from msgspec import Struct

from kubeloop.meta.errors import KubeloopError


class Compacted(KubeloopError):
    """The revision asked for is older than the oldest one kept (``oldest``)."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"revision {revision} has been compacted; the oldest one kept is {oldest}")
        self.revision = revision
        self.oldest = oldest


class FutureRevision(KubeloopError):
    """The revision asked for does not exist yet."""

    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} is in the future; the current one is {current}")
        self.revision = revision
        self.current = current


class StorageFailed(KubeloopError):
    """A change could not be made to last: nothing of it is stored, and nobody was shown it. The text names file and reason."""


class KeyValue(Struct, frozen=True, gc=False):
    """A key as it stands at ``mod_revision``. ``create_revision`` is the write that brought it into being."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int


class Range(NamedTuple):
    """Part of the keys at ``revision``: sorted by key. ``total`` counts all keys of the range, ``more`` says that ``limit`` cut it."""

    items: list[KeyValue]
    revision: int
    total: int
    more: bool


class WriteOutcome(NamedTuple):
    """Outcome of a conditional write. ``current``: after a success as written (None: deleted), else as found (None: absent)."""

    succeeded: bool
    revision: int
    current: KeyValue | None


class StorageEvent(Struct, frozen=True, gc=False):
    """One change. ``value`` None is a deletion. ``previous`` is the key before it, None for a creation."""

    revision: int
    key: str
    value: bytes | None
    previous: KeyValue | None


class WatchStream(Protocol):
    """Changes in order of their revisions, in batches. An async context manager: leaving it ends the watch at once."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def __aiter__(self) -> AsyncIterator[list[StorageEvent]]:
        """Batches of at least one event.

        Raises:
            Compacted: history that this stream has not delivered yet was compacted.
        """


class Storage(Protocol):
    """Keys and bytes under one global revision, which every change raises by one.

    Guarantees
        A range shows one revision, whatever is written meanwhile.
        A write is atomic and conditional on the revision of the key.
        A watch delivers every change of its keys from its first revision on, once, in order, with no gap.
    """

    @property
    def fault(self) -> str:
        """Why nothing can be written any more, until it is opened again; empty while all is well."""

    async def revision(self) -> int:
        """The current revision: 1 for an empty store, as etcd's."""

    async def oldest(self) -> int:
        """The oldest revision that can be read: that of the last compaction, 1 before the first. Changes after it are kept."""

    async def get(self, key: str, revision: int = 0) -> tuple[KeyValue | None, int]:
        """The key at ``revision`` (0: now), and the revision that was read.

        Raises:
            Compacted, FutureRevision
        """

    async def range(self, start: str, end: str, *, revision: int = 0, limit: int = 0) -> Range:
        """Keys from ``start`` (included) to ``end`` (not included) at ``revision`` (0: now), at most ``limit`` (0: all).

        Raises:
            Compacted, FutureRevision
        """

    async def write(self, key: str, value: bytes | None, *, expected: int, lease: int = 0) -> WriteOutcome:
        """Write ``value``, or delete (None), if the key's mod_revision is ``expected`` (0: the key must not exist).

        ``lease`` (of ``grant``) deletes the key when it ends; 0 keeps it. Deleting what does not exist succeeds without a new revision.

        Raises:
            StorageFailed
        """

    def watch(self, prefix: str, start_revision: int) -> WatchStream:
        """Changes of keys that begin with ``prefix``, from ``start_revision`` on (included), then as they happen."""

    async def compact(self, revision: int) -> None:
        """Forget history before ``revision``: what was current then stays readable, older revisions raise ``Compacted``.

        Raises:
            Compacted: ``revision`` is compacted already.
            FutureRevision: it does not exist yet.
            StorageFailed
        """

    async def grant(self, seconds: float) -> int:
        """A lease: keys written with it are deleted, each with a revision of its own, ``seconds`` from now or a little later."""

    async def close(self) -> None:
        """End all watches, and finish writes under way; nothing but ``close`` may be called afterwards."""


def prefix_end(prefix: str) -> str:
    """The first key after all keys that begin with ``prefix``."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
