"""How long an item that failed waits before its next turn. Limiters count failures per item and forget on success."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from kubeloop.timing import Clock, TokenBucket

T = TypeVar("T", bound=Hashable)
T_contra = TypeVar("T_contra", bound=Hashable, contravariant=True)


class Limiter(Protocol[T_contra]):
    """Decides the delay of a retry."""

    def delay(self, item: T_contra) -> float:
        """Count one more failure of ``item``; seconds until it should be tried again."""

    def forget(self, item: T_contra) -> None:
        """``item`` succeeded, or was given up: its next failure is the first."""

    def retries(self, item: T_contra) -> int:
        """How many failures are counted for ``item``."""


class ExponentialLimiter(Generic[T]):
    """Per item: ``initial`` seconds, doubled with each failure, never more than ``cap``.

    Remembers one entry per failing item until it is forgotten.
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
    """Over all items together: the rate of a token bucket. It keeps no count per item."""

    __slots__ = ("_bucket",)

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket

    def delay(self, item: T) -> float:  # noqa: ARG002  # the bucket is shared by all items
        return self._bucket.reserve()

    def forget(self, item: T) -> None:
        """Nothing is remembered."""

    def retries(self, item: T) -> int:  # noqa: ARG002  # the bucket is shared by all items
        return 0


class MaxOfLimiter(Generic[T]):
    """The longest delay, and the highest count, of several limiters. Each of them counts every failure."""

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
    """Per item: ``fast`` seconds for the first ``attempts`` failures, then ``slow`` seconds each time. Not exponential.

    Remembers one entry per failing item until it is forgotten. Source: client-go ItemFastSlowRateLimiter.

    Raises:
        ValueError: a negative time, or fewer than 0 attempts.
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
    """What another limiter says, but never more than ``longest`` seconds. Source: client-go WithMaxWaitRateLimiter.

    Raises:
        ValueError: ``longest`` is negative.
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
    """What client-go gives controllers: 5 ms doubling to 1000 s per item, and 10 per second with a burst of 100 over all items.

    Source: client-go util/workqueue/default_rate_limiters.go, DefaultTypedControllerRateLimiter.
    """
    return MaxOfLimiter(ExponentialLimiter(0.005, 1000.0), BucketLimiter(TokenBucket(10.0, 100, clock)))
