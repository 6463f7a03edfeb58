"""The store into which list and watch writes. An informer's reflector target is one."""

from __future__ import annotations

from typing import Protocol

from kubeloop.cache.blobs.head import Head, HeadReader


class ReflectorStore(Protocol):
    """All are called on the loop, and none may block: bytes wait meanwhile."""

    @property
    def reader(self) -> HeadReader:
        """Makes the heads. May be another one each time: indexes are added while events arrive."""

    def before(self, namespace: str, name: str) -> Head | None:
        """The state that the cache has of an object."""

    def listing(self) -> None:
        """A list begins."""

    def replace(self, heads: list[Head], version: str) -> None:
        """This is all there is."""

    def change(self, head: Head) -> None:
        """An object was added or modified."""

    def remove(self, head: Head) -> None:
        """An object was deleted."""

    def bookmark(self, version: str) -> None:
        """Nothing changed up to this version."""

    def flush(self) -> None:
        """A batch is complete: apply it."""

    def watching(self) -> None:
        """The server answers a watch. (It may still send an error as its first event.)"""

    def waiting(self, reason: str) -> None:
        """Nothing has failed, but the first state is late; ``reason`` in words for a person."""

    def failed(self, error: Exception) -> None:
        """A request failed; it will be tried again."""
