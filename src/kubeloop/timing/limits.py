"""Limits of how often something happens: exponential back-off and a token bucket."""

from __future__ import annotations

import random

from kubeloop.timing.clock import Clock, SystemClock


class Backoff:
    """Exponential delays with jitter: ``initial``, then ``factor`` times as long each time, up to ``cap``.

    >>> backoff = Backoff(initial=0.5, factor=2, jitter=0, cap=3)
    >>> [backoff.next() for _ in range(4)]
    [0.5, 1.0, 2.0, 3.0]

    Each delay, including the cap, is extended by a random part of up to ``jitter`` times itself (1.0: between one and two times as long),
    so that clients which failed together do not return together. After ``reset_after`` seconds without a call to ``next`` the delays start
    over; None never resets. Times are in seconds. The defaults are client-go's for a reflector: 0.8 s doubling to 30 s, reset after 2 min.

    Raises:
        ValueError: a negative time or jitter, or a factor below 1.
    """

    def __init__(
        self,
        initial: float = 0.8,
        factor: float = 2.0,
        jitter: float = 1.0,
        cap: float = 30.0,
        reset_after: float | None = 120.0,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Create a back-off.

        Args:
            initial: Seconds of the first delay.
            factor: Ratio of each delay to the previous one.
            jitter: Maximum random share that is added to each delay.
            cap: Maximum seconds of a delay, before jitter.
            reset_after: Seconds without a call after which the delays start over. None: never.
            clock: The clock for ``reset_after``. None: the system's clock.
            rng: The source of jitter. None: a new ``random.Random``.
        """
        if initial < 0 or cap < 0 or jitter < 0 or factor < 1:
            raise ValueError(f"back-off wants initial, cap and jitter >= 0 and factor >= 1, not {initial=} {cap=} {jitter=} {factor=}")
        self._initial = min(initial, cap)
        self._factor = factor
        self._jitter = jitter
        self._cap = cap
        self._reset_after = reset_after
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._delay = self._initial
        self._last = self._clock.now()

    def next(self) -> float:
        """Return the seconds to wait now; the next delay is longer."""
        now = self._clock.now()
        if self._reset_after is not None and now - self._last > self._reset_after:
            self._delay = self._initial
        self._last = now
        delay = self._delay
        # Multiplied step by step and capped each time: a power of the number of failures would overflow after a thousand failures.
        self._delay = min(delay * self._factor, self._cap)
        return delay * (1.0 + self._rng.random() * self._jitter)

    def reset(self) -> None:
        """Start over: the next delay is the initial one."""
        self._delay = self._initial


class TokenBucket:
    """Lets ``burst`` calls through at once and ``rate`` per second after that, first come, first served.

    >>> bucket = TokenBucket(rate=10, burst=2)
    >>> bucket.try_take(), bucket.try_take(), bucket.try_take()
    (True, True, False)
    >>> waited = await bucket.take()

    Callers may borrow tokens: ``reserve`` may take the bucket below zero and returns the time until the debt is paid, so that callers
    stay in order without a queue. The bucket starts full. For one event loop; not thread-safe.

    Raises:
        ValueError: ``rate`` is not above 0 or ``burst`` is below 1: nothing could ever pass.
    """

    def __init__(self, rate: float, burst: int, clock: Clock | None = None) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"a bucket needs a rate above 0 per second and a burst of at least 1, not {rate=} {burst=}")
        self.rate = rate
        self.burst = burst
        self._clock = clock or SystemClock()
        self._tokens = float(burst)
        self._filled = self._clock.now()

    def try_take(self) -> bool:
        """Take a token if one is available now; return whether it was."""
        self._fill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def reserve(self) -> float:
        """Take a token in advance, and return the seconds until it may be used; 0 if it may be used now. Later callers wait longer."""
        self._fill()
        self._tokens -= 1
        return 0.0 if self._tokens >= 0 else -self._tokens / self.rate

    def give_back(self) -> None:
        """Undo a ``reserve`` whose token will not be used."""
        self._tokens = min(self._tokens + 1, float(self.burst))

    async def take(self) -> float:
        """Wait for a token and take it. Return the seconds waited. A cancelled wait takes no token."""
        delay = self.reserve()
        if delay > 0:
            try:
                await self._clock.sleep(delay)
            except BaseException:
                self.give_back()
                raise
        return delay

    def _fill(self) -> None:
        now = self._clock.now()
        self._tokens = min(float(self.burst), self._tokens + (now - self._filled) * self.rate)
        self._filled = now
