"""What one run of the program remembers of objects: retries, timers, progress that is not written yet. Lost on restart by design."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from kubeloop.controller.decorators.record import Record
from kubeloop.meta import ObjectKey

#: Seconds between two tries of a handler at most.
LONGEST = 300.0


@dataclass(slots=True)
class Retry:
    tries: int = 0
    not_before: float = 0.0


@dataclass(slots=True)
class Memory:
    """Of one object. ``stale``: what a cache that lags behind may still show for the record, though ``written`` came after it."""

    uid: str
    record: Record | None = None
    written: str | None = None
    stale: set[str | None] = field(default_factory=set)
    unsaved: bool = False
    resumed: set[str] = field(default_factory=set)
    retries: dict[str, Retry] = field(default_factory=dict)
    timers: dict[str, float] = field(default_factory=dict)
    running: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    #: The last one of this pass, and what to say of it.
    failure: tuple[BaseException, str] | None = None

    def wait(self, handler: str, now: float) -> float:
        """Seconds until the handler may be called."""
        known = self.retries.get(handler)
        return 0.0 if known is None else max(0.0, known.not_before - now)

    def failed(self, handler: str, now: float, backoff: float) -> Retry:
        known = self.retries.setdefault(handler, Retry())
        known.tries += 1
        known.not_before = now + min(backoff * 2.0 ** min(known.tries - 1, 64), LONGEST)
        return known

    def take_failure(self) -> tuple[BaseException, str] | None:
        """What failed since it was last asked for."""
        found, self.failure = self.failure, None
        return found

    def succeeded(self, handler: str) -> None:
        self.retries.pop(handler, None)


class Memories:
    """Of all objects that are there."""

    def __init__(self) -> None:
        self._by_key: dict[ObjectKey, Memory] = {}

    def of(self, key: ObjectKey, uid: str) -> Memory:
        """An object that was made anew under its name is another one."""
        found = self._by_key.get(key)
        if found is None or found.uid != uid:
            found = self._by_key[key] = Memory(uid)
        return found

    def forget(self, key: ObjectKey) -> None:
        self._by_key.pop(key, None)

    def __len__(self) -> int:
        return len(self._by_key)
