"""A token bucket: limits how often something may happen."""

from __future__ import annotations

from kubeloop.timing.clock import Clock, SystemClock


class TokenBucket:
    """Lets ``burst`` calls through at once and ``rate`` per second after that, first come, first served.

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
        """Take a token in advance; return the seconds until it may be used (0 if at once). Later callers wait longer."""
        self._fill()
        self._tokens -= 1
        return 0.0 if self._tokens >= 0 else -self._tokens / self.rate

    def give_back(self) -> None:
        """Undo a ``reserve`` whose token will not be used."""
        self._tokens = min(self._tokens + 1, float(self.burst))

    async def take(self) -> float:
        """Wait for a token; returns the seconds waited. A cancelled wait gives its token back."""
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
