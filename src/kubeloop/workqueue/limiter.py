"""Rate limits of queues: the delay of an item that failed, and the number of items per second of the whole process.

A limiter counts the failures of each item and forgets them on success. A ``RateCap`` is shared by the queues of a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from kubeloop.timing import Clock, SystemClock, Timer, TokenBucket

#: Shortest timer in seconds: a shorter one would not advance a clock.
_SHORTEST = 1e-6


class RateCap:
    """Lets the workers of all queues that share it take at most ``rate`` items per second together, after ``burst`` at once.

    Workers beyond the rate wait; no item is dropped.

    Guarantees
        Workers pass in the order of their arrival, whichever queue they serve. The item is chosen when its worker passes, so that an item
        of high priority does not wait behind others. A worker that is cancelled or finds its queue empty leaves its turn to the next.

    For one event loop, not thread-safe.

    Raises:
        ValueError: ``rate`` is not above 0, or ``burst`` is below 1.

    Example:
        >>> from kubeloop.workqueue import PriorityQueue
        >>> cap = RateCap(50, burst=10)
        >>> foos, bars = PriorityQueue(cap=cap), PriorityQueue(cap=cap)  # at most 50 items per second together
    """

    def __init__(self, rate: float, burst: int = 1, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._bucket = TokenBucket(rate, burst, self._clock)
        self._waiters: deque[asyncio.Future[bool]] = deque()
        self._timer: Timer | None = None

    def try_pass(self) -> bool:
        """Return whether the worker may pass now, without waiting behind others."""
        return not self._waiters and self._bucket.try_take()

    def line_up(self) -> asyncio.Future[bool]:
        """Return a future that becomes True when the worker's turn comes. A caller that does not use the turn must call ``give_back``."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._arm()
        return waiter

    def leave(self, waiter: asyncio.Future[bool]) -> None:
        """Cancel a wait: the future becomes False, unless it is done already."""
        with contextlib.suppress(ValueError):
            self._waiters.remove(waiter)
        if not waiter.done():
            waiter.set_result(False)
        if not self._waiters and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def give_back(self) -> None:
        """Return an unused turn."""
        self._bucket.give_back()
        if self._waiters:
            self._serve()

    def change(self, rate: float, burst: int) -> None:
        """Change the rate and the burst; waiting workers pass at the new rate.

        Raises:
            ValueError: as in the constructor; nothing is changed then.
        """
        self._bucket = TokenBucket(rate, burst, self._clock)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._serve()

    def _arm(self) -> None:
        if self._timer is None:
            wait = self._bucket.reserve()
            self._bucket.give_back()
            self._timer = self._clock.call_later(max(wait, _SHORTEST), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._serve()

    def _serve(self) -> None:
        while self._waiters:
            if self._waiters[0].done():
                self._waiters.popleft()
            elif self._bucket.try_take():
                self._waiters.popleft().set_result(True)
            else:
                self._arm()
                return


T = TypeVar("T", bound=Hashable)
T_contra = TypeVar("T_contra", bound=Hashable, contravariant=True)


class Limiter(Protocol[T_contra]):
    """Decides the delay of a retry."""

    def delay(self, item: T_contra) -> float:
        """Count a failure of ``item``, and return the seconds until it should be retried."""

    def forget(self, item: T_contra) -> None:
        """Reset the failures of ``item``, after a success or when it is abandoned."""

    def retries(self, item: T_contra) -> int:
        """Return the number of failures that are counted for ``item``."""


class ExponentialLimiter(Generic[T]):
    """Doubles the delay of an item with each of its failures: ``initial`` seconds, never more than ``cap`` seconds.

    It remembers one entry per failing item until ``forget`` is called. Source: client-go ItemExponentialFailureRateLimiter.

    Example:
        >>> limiter = ExponentialLimiter(initial=1.0, cap=3.0)
        >>> [limiter.delay("shop/web") for _ in range(3)], limiter.retries("shop/web")
        ([1.0, 2.0, 3.0], 3)
        >>> limiter.forget("shop/web")
    """

    __slots__ = ("_cap", "_failures", "_initial", "_most")

    def __init__(self, initial: float = 0.005, cap: float = 1000.0) -> None:
        if not 0 < initial <= cap:
            raise ValueError(f"an exponential limiter wants 0 < initial <= cap, not {initial=} {cap=}")
        self._initial = initial
        self._cap = cap
        self._most = math.ceil(math.log2(cap / initial))  # Doublings after which the cap holds; 2.0 ** 1100 would overflow.
        self._failures: dict[T, int] = {}

    def delay(self, item: T) -> float:
        before = self._failures.get(item, 0)
        self._failures[item] = before + 1
        return self._cap if before >= self._most else self._initial * 2.0**before

    def forget(self, item: T) -> None:
        self._failures.pop(item, None)

    def retries(self, item: T) -> int:
        return self._failures.get(item, 0)


class BucketLimiter(Generic[T]):
    """Limits the rate of all items together with a token bucket. It counts no failures per item.

    Example:
        >>> from kubeloop.timing import FakeClock
        >>> limiter = BucketLimiter(TokenBucket(10, burst=2, clock=FakeClock()))
        >>> [limiter.delay(item) for item in ("a", "b", "c")]
        [0.0, 0.0, 0.1]
    """

    __slots__ = ("_bucket",)

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket

    def delay(self, item: T) -> float:  # noqa: ARG002  # the bucket is shared by all items
        return self._bucket.reserve()

    def forget(self, item: T) -> None:
        """Do nothing, since failures are not counted."""

    def retries(self, item: T) -> int:  # noqa: ARG002  # the bucket is shared by all items
        return 0


class MaxOfLimiter(Generic[T]):
    """Returns the longest delay and the highest count of several limiters. Each of them counts every failure.

    Example:
        >>> limiter = MaxOfLimiter(ExponentialLimiter(1, 100), FastSlowLimiter(5, 10, attempts=1))
        >>> [limiter.delay("shop/web") for _ in range(3)]
        [5, 10, 10]
    """

    __slots__ = ("_limiters",)

    def __init__(self, *limiters: Limiter[T]) -> None:
        if not limiters:
            raise ValueError("MaxOfLimiter needs at least one limiter")
        self._limiters = limiters

    def delay(self, item: T) -> float:
        return max([limiter.delay(item) for limiter in self._limiters])

    def forget(self, item: T) -> None:
        for limiter in self._limiters:
            limiter.forget(item)

    def retries(self, item: T) -> int:
        return max(limiter.retries(item) for limiter in self._limiters)


class FastSlowLimiter(Generic[T]):
    """Delays an item by ``fast`` seconds for its first ``attempts`` failures, then by ``slow`` seconds. Not exponential.

    It remembers one entry per failing item until ``forget`` is called. Source: client-go ItemFastSlowRateLimiter.

    Raises:
        ValueError: a negative time, or a negative number of attempts.

    Example:
        >>> limiter = FastSlowLimiter(fast=0.1, slow=60, attempts=2)
        >>> [limiter.delay("shop/web") for _ in range(3)]
        [0.1, 0.1, 60]
    """

    __slots__ = ("_attempts", "_failures", "_fast", "_slow")

    def __init__(self, fast: float, slow: float, attempts: int) -> None:
        if fast < 0 or slow < 0 or attempts < 0:
            raise ValueError(f"a fast/slow limiter wants fast, slow and attempts >= 0, not {fast=} {slow=} {attempts=}")
        self._fast = fast
        self._slow = slow
        self._attempts = attempts
        self._failures: dict[T, int] = {}

    def delay(self, item: T) -> float:
        count = self._failures[item] = self._failures.get(item, 0) + 1
        return self._fast if count <= self._attempts else self._slow

    def forget(self, item: T) -> None:
        self._failures.pop(item, None)

    def retries(self, item: T) -> int:
        return self._failures.get(item, 0)


class MaxWaitLimiter(Generic[T]):
    """Cuts the delays of another limiter to at most ``longest`` seconds. Source: client-go WithMaxWaitRateLimiter.

    Raises:
        ValueError: ``longest`` is negative.

    Example:
        >>> limiter = MaxWaitLimiter(ExponentialLimiter(initial=8.0), longest=10.0)
        >>> [limiter.delay("shop/web") for _ in range(3)]
        [8.0, 10.0, 10.0]
    """

    __slots__ = ("_limiter", "_longest")

    def __init__(self, limiter: Limiter[T], longest: float) -> None:
        if longest < 0:
            raise ValueError(f"the longest wait must not be negative, but is {longest}")
        self._limiter = limiter
        self._longest = longest

    def delay(self, item: T) -> float:
        return min(self._limiter.delay(item), self._longest)

    def forget(self, item: T) -> None:
        self._limiter.forget(item)

    def retries(self, item: T) -> int:
        return self._limiter.retries(item)


def default_limiter(clock: Clock | None = None) -> Limiter[Hashable]:
    """Return client-go's default limiter for controllers.

    The delay of an item is 5 ms doubling to 1000 s. All items together are limited to 10 per second, after a burst of 100.

    Source: client-go util/workqueue/default_rate_limiters.go, DefaultTypedControllerRateLimiter.
    """
    return MaxOfLimiter(ExponentialLimiter(0.005, 1000.0), BucketLimiter(TokenBucket(10.0, 100, clock)))
