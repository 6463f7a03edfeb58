"""Queues of one priority level: flows are dealt to a few of them each, and the one that has had least goes next.

Shuffle sharding as upstream (a hand of queues for each flow, the shortest is joined): a flow that floods fills its own hand, and few others
have the same. Which queue is next is start-time fair queuing (Goyal, Vin, Cheng 1996): each is charged the time that its requests took.
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

#: Seconds that a request is thought to take, until it is known.
ESTIMATE = 0.002


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that waits. ``turn`` is set to whether it may go on."""

    flow: Flow
    turn: asyncio.Future[bool]
    since: float
    queue: FlowQueue | None = None
    timer: Timer | None = None


@dataclass(slots=True, eq=False)
class FlowQueue:
    """``start`` is the virtual time at which its first request is due: the time that requests of it have taken."""

    key: int | str
    start: float = 0.0
    waiting: deque[Waiter] = field(default_factory=deque)


class FairQueues:
    """``count`` queues of which each flow has ``hand``; 0: one for each flow."""

    def __init__(self, count: int = 0, hand: int = 0) -> None:
        self._count = count
        self._hand = min(hand, count)
        self._queues: OrderedDict[int | str, FlowQueue] = OrderedDict()
        self._virtual = 0.0
        #: Requests that wait in all of them.
        self.length = 0

    def shortest(self, schema: str, flow: str) -> FlowQueue:
        """Where a request of this flow would wait."""
        if not self._count:
            return self._queue(f"{schema}\0{flow}")
        hand = deal(f"{schema}\0{flow}", self._count, self._hand)
        return min((self._queue(card) for card in hand), key=lambda queue: len(queue.waiting))

    def add(self, waiter: Waiter, queue: FlowQueue) -> None:
        if not queue.waiting:
            queue.start = max(queue.start, self._virtual)
        queue.waiting.append(waiter)
        waiter.queue = queue
        self._queues[queue.key] = queue
        self.length += 1

    def overtake(self, queue: FlowQueue) -> bool:
        """Whether a request that came just now would be the next of all, so that it need not wait; it is charged then."""
        if queue.waiting or queue.start > self._virtual:
            return False
        queue.start = self._virtual + ESTIMATE
        self._queues[queue.key] = queue
        return True

    def next(self) -> Waiter:
        """Whose turn it is; there is one."""
        queue = min((one for one in self._queues.values() if one.waiting), key=lambda one: one.start)
        self._virtual = max(self._virtual, queue.start)
        queue.start += ESTIMATE
        self.length -= 1
        return queue.waiting.popleft()

    def remove(self, waiter: Waiter) -> bool:
        """Whether it still waited."""
        queue = waiter.queue
        if queue is None or waiter not in queue.waiting:
            return False
        queue.waiting.remove(waiter)
        self.length -= 1
        return True

    def charge(self, queue: FlowQueue, seconds: float) -> None:
        """What a request of it has really taken."""
        queue.start += seconds - ESTIMATE
        # Under its key another may have begun since: one that was dropped is charged by whoever was let in from it.
        if not queue.waiting and queue.start <= self._virtual and self._queues.get(queue.key) is queue:
            del self._queues[queue.key]  # as good as one that was never there

    def _queue(self, key: int | str) -> FlowQueue:
        return self._queues.get(key) or FlowQueue(key)


def deal(flow: str, deck: int, hand: int) -> tuple[int, ...]:
    """``hand`` different numbers below ``deck``, the same ones each time (k8s.io/apiserver pkg/util/shufflesharding)."""
    digest = hashlib.sha256(flow.encode(errors="surrogateescape")).digest()  # of a namespace that is as long and as odd as a path
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
