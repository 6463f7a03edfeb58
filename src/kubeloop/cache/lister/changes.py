"""The changes of a cache since a version, for programs that read it from time to time instead of adding a handler."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from kubeloop.cache.blobs.head import Head
from kubeloop.meta import KubeloopError
from kubeloop.meta.strconv import decimal

#: Number of recorded deletions, about 200 bytes each.
MAX_DELETIONS = 10_000


class ChangesForgotten(KubeloopError):
    """The version is older than the recorded deletions, or newer than the cache.

    To continue, list everything and use ``lister.resource_version`` for the next call.
    """


class Deletion(Struct, frozen=True, gc=False):
    """The deletion of one object.

    ``resource_version`` is the version of the deletion, or of the list that lacked the object: then the deletion happened at or before that
    version.

    Example:
        >>> Deletion(namespace="shop", name="web-0", uid="7c9e", resource_version="42").name
        'web-0'
    """

    namespace: str
    name: str
    uid: str
    resource_version: str


class ChangeSet(Struct, frozen=True):
    """The changes of a cache after a version, as ``lister.changed_since(version)`` returns them.

    Attributes:
        heads: New and changed objects, in their current state.
        deleted: Objects that are gone or left the selector, oldest deletion first. An object that was recreated under its name is in both
            lists, with another uid.
        version: The argument of the next call.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     lister = informers.for_kind(ConfigMap).lister
        ...     await informers.wait_synced()
        ...     version = lister.resource_version
        ...     changes = lister.changed_since(version)
        ...     print(changes.heads, changes.deleted, changes.version == version)
        [] [] True
    """

    heads: list[Head]
    deleted: list[Deletion]
    version: str


class Deletions:
    """The last ``MAX_DELETIONS`` deletions, and the version from which on they are complete.

    Guarantees
        ``since`` returns every deletion after a version, or raises.
    """

    __slots__ = ("_begun", "_dropped", "_limit", "_lost", "_ring", "_uids")

    def __init__(self, limit: int = MAX_DELETIONS) -> None:
        self._limit = limit
        self._ring: deque[tuple[int, Deletion]] = deque()
        self._uids: dict[str, int] = {}
        #: resourceVersion of the first list (with several namespaces, the lowest); None before it.
        self._begun: int | None = None
        #: The highest version of a deletion that was dropped from the ring.
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, head: Head, version: str) -> None:
        """Record the deletion of an object at or before ``version``."""
        number = decimal(version)
        if number is None:
            return  # the version cannot be compared
        self._ring.append((number, Deletion(head.namespace, head.name, head.uid, version)))
        self._uids[head.uid] = self._uids.get(head.uid, 0) + 1
        if len(self._ring) > self._limit:
            number, oldest = self._ring.popleft()
            self._dropped = max(self._dropped, number)
            self._release(oldest.uid)

    def knows(self, uid: str) -> bool:
        """Return whether the deletion of the object with this uid is recorded."""
        return uid in self._uids

    def listed(self, before: str, version: str) -> None:
        """Record a list at ``version`` after a watch at ``before``. The first list, and a list of an older version, begin a new history."""
        old, new = decimal(before), decimal(version)
        if new is None or (old is not None and old <= new):
            return
        if old is None:
            self._begun = new if self._begun is None else min(self._begun, new)
        else:
            self._begun, self._dropped = new, 0
            self._ring.clear()
            self._uids.clear()

    def since(self, version: str, now: str) -> list[Deletion]:
        """Return the deletions after ``version``; the cache is at ``now``.

        Raises:
            ChangesForgotten: some of them are not recorded, or the cache has not reached the version.
            ValueError: a version is not a number, so versions cannot be compared.
        """
        asked, current = decimal(version), decimal(now)
        if asked is None or (current is None and now):
            raise ValueError(f'resourceVersion "{now if asked is not None else version}" is not a number: such versions have no order')
        if self._begun is None or current is None:
            raise ChangesForgotten("nothing has been listed yet: wait for the informer to sync, list everything, and ask from there on")
        if asked > current:
            raise ChangesForgotten(
                f"version {version} is ahead of the cache, which is at {now}: it is from elsewhere (then await lister.fresh({version!r}) "
                "first), or from before the server lost its history: list everything, and go on from lister.resource_version"
            )
        known = max(self._begun, self._dropped)
        if asked < known:
            raise ChangesForgotten(
                f"changes since version {version} are no longer known, only those since {known} "
                f"(the last {self._limit} deletions are remembered): list everything, and go on from lister.resource_version"
            )
        return [deletion for number, deletion in self._ring if number > asked]

    def _release(self, uid: str) -> None:
        left = self._uids[uid] - 1
        if left:
            self._uids[uid] = left
        else:
            del self._uids[uid]


def newer(heads: Iterable[Head], version: str) -> list[Head]:
    """Return the heads that changed after ``version``, a decimal number without leading zeros."""
    # Strings of equal length compare like their numbers, and faster.
    size = len(version)
    return [head for head in heads if (at > version if len(at := head.resource_version) == size else len(at) > size)]
