"""The queues of one priority level. Each flow uses a few of them, and the queue that has used the least time is next.

Shuffle sharding as upstream: a flow has a hand of queues and joins the shortest one. A flow that floods fills only its hand, which few
other flows share. Start-time fair queuing (Goyal, Vin, Cheng 1996) selects the next queue: each is charged for the time of its requests.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kubeloop.apiserver.flow.control import Flow
    from kubeloop.timing import Timer

#: Estimated seconds of a request until its end.
ESTIMATE = 0.002


@dataclass(slots=True, eq=False)
class Waiter:
    """A waiting request. ``turn`` completes with True when the request may be executed, and with False when it has waited too long."""

    flow: Flow
    turn: asyncio.Future[bool]
    since: float
    queue: FlowQueue | None = None
    timer: Timer | None = None


@dataclass(slots=True, eq=False)
class FlowQueue:
    """A queue. ``start`` is the virtual time of its next request: the time that its earlier requests have used."""

    key: int | str
    start: float = 0.0
    waiting: deque[Waiter] = field(default_factory=deque)


class FairQueues:
    """The queues of a priority level, from which requests are taken by fair queuing.

    There are ``count`` queues, and each flow uses ``hand`` of them. A ``count`` of 0 means one queue per flow."""

    def __init__(self, count: int = 0, hand: int = 0) -> None:
        self._count = count
        self._hand = min(hand, count)
        self._queues: OrderedDict[int | str, FlowQueue] = OrderedDict()
        self._virtual = 0.0
        #: Number of waiting requests in all queues.
        self.length = 0

    def shortest(self, schema: str, flow: str) -> FlowQueue:
        """Return the queue that a request of this flow would join."""
        if not self._count:
            return self._queue(f"{schema}\0{flow}")
        hand = shuffle_shard(f"{schema}\0{flow}", self._count, self._hand)
        return min((self._queue(card) for card in hand), key=lambda queue: len(queue.waiting))

    def add(self, waiter: Waiter, queue: FlowQueue) -> None:
        """Add a waiting request to a queue."""
        if not queue.waiting:
            queue.start = max(queue.start, self._virtual)
        queue.waiting.append(waiter)
        waiter.queue = queue
        self._queues[queue.key] = queue
        self.length += 1

    def try_admit(self, queue: FlowQueue) -> bool:
        """Return whether a new request can start without waiting, because it would be the next one anyway. If so, charge its queue."""
        if queue.waiting or queue.start > self._virtual:
            return False
        queue.start = self._virtual + ESTIMATE
        self._queues[queue.key] = queue
        return True

    def next(self) -> Waiter:
        """Remove and return the next waiting request. There must be one."""
        queue = min((one for one in self._queues.values() if one.waiting), key=lambda candidate: candidate.start)
        self._virtual = max(self._virtual, queue.start)
        queue.start += ESTIMATE
        self.length -= 1
        return queue.waiting.popleft()

    def remove(self, waiter: Waiter) -> bool:
        """Remove a waiting request. Returns whether it was still waiting."""
        queue = waiter.queue
        if queue is None or waiter not in queue.waiting:
            return False
        queue.waiting.remove(waiter)
        self.length -= 1
        return True

    def charge(self, queue: FlowQueue, seconds: float) -> None:
        """Charge a queue for the time that a request has used."""
        queue.start += seconds - ESTIMATE
        # A new queue may have the same key since: requests that were admitted from a removed queue still charge it.
        if not queue.waiting and queue.start <= self._virtual and self._queues.get(queue.key) is queue:
            del self._queues[queue.key]  # equal to a new queue

    def _queue(self, key: int | str) -> FlowQueue:
        return self._queues.get(key) or FlowQueue(key)


def shuffle_shard(flow: str, deck: int, hand: int) -> tuple[int, ...]:
    """Return ``hand`` different numbers below ``deck``, always the same ones for a flow (k8s.io/apiserver pkg/util/shufflesharding)."""
    digest = hashlib.sha256(flow.encode(errors="surrogateescape")).digest()  # a namespace in a path may have any bytes
    return _dealt(int.from_bytes(digest[:8], "little"), deck, hand)


@lru_cache(maxsize=4096)
def _dealt(value: int, deck: int, hand: int) -> tuple[int, ...]:
    cards: list[int] = []
    for left in range(deck, deck - hand, -1):
        value, card = divmod(value, left)
        for taken in sorted(cards):
            if card >= taken:
                card += 1
        cards.append(card)
    return tuple(cards)
