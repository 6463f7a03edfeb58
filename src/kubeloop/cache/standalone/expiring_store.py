"""A bare store that forgets: an object is gone when it was put in longer ago than the time to live."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from kubeloop.cache.standalone.object_keys import meta_namespace_key
from kubeloop.cache.standalone.object_store import Indexers, ObjectStore
from kubeloop.timing import Clock, SystemClock

T = TypeVar("T")


class ExpiringStore(ObjectStore[T]):
    """An ``ObjectStore`` whose objects live for ``ttl`` seconds.

    Guarantees
        No query, by key, list or index, shows an object that was put in more than ``ttl`` seconds ago. Putting it in again starts its time
        anew; with a ``ttl`` of 0 or less it never ends.
        What has expired goes when somebody next reads or changes the store, oldest first, at no cost for the others. No timer runs.

    Source: k8s.io/client-go tools/cache (ExpirationCache); behaviour G96.
    """

    def __init__(
        self,
        ttl: float,
        key_function: Callable[[T], str] = meta_namespace_key,
        indexers: Indexers[T] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        """``ttl``: in seconds."""
        self._ttl = ttl
        self._clock = clock or SystemClock()
        #: When each key was put in, oldest first.
        self._since: OrderedDict[str, float] = OrderedDict()
        super().__init__(key_function, indexers)

    def _put(self, key: str, obj: T) -> None:
        super()._put(key, obj)
        self._since[key] = self._clock.now()
        self._since.move_to_end(key)

    def _take(self, key: str) -> None:
        super()._take(key)
        self._since.pop(key, None)

    def _replaced(self) -> None:
        self._since = OrderedDict.fromkeys(self._objects, self._clock.now())

    def _prune(self) -> None:
        if self._ttl <= 0:
            return
        now = self._clock.now()
        while self._since:
            key, since = next(iter(self._since.items()))
            if now - since <= self._ttl:
                return
            self._take(key)
