"""Request counters of a transport, cheap enough to be always on. They have the meaning of client-go's tools/metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from functools import partial

#: client-go's buckets (component-base metrics/prometheus/restclient).
SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
RESOLVER_SECONDS = SECONDS[:-1]
BYTES = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
#: The status code under which attempts without a response are counted.
NO_ANSWER = "<error>"


class BucketCounts:
    """A histogram: the number of values up to each bound, and of those above the last bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, other: BucketCounts) -> None:
        """Add another histogram with the same bounds."""
        self.counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


def _by_verb(bounds: tuple[float, ...]) -> defaultdict[str, BucketCounts]:
    return defaultdict(partial(BucketCounts, bounds))


class RequestCounters:
    """Request counters of one transport, or of several to one host. ``verb`` and ``method`` are the HTTP method, as in client-go.

    Attempts, including those of streams, are counted by status code and method. Durations and sizes concern complete requests only.
    """

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.retries: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.latency = _by_verb(SECONDS)
        self.limiter = _by_verb(SECONDS)
        self.request_size = _by_verb(BYTES)
        self.response_size = _by_verb(BYTES)
        self.resolver = BucketCounts(RESOLVER_SECONDS)
        self.ca_reloads: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.connections = 0

    def tried(self, status: int | None, method: str, attempt: int) -> None:
        """Count an attempt by the status of its response. None means that there was no response."""
        code = NO_ANSWER if status is None else str(status)
        self.requests[code, method] += 1
        if attempt:
            self.retries[code, method] += 1

    def add(self, other: RequestCounters) -> None:
        """Add the counters of ``other`` to these."""
        for mine, theirs in ((self.requests, other.requests), (self.retries, other.retries), (self.ca_reloads, other.ca_reloads)):
            for key, number in theirs.items():
                mine[key] += number
        for ours, others in (
            (self.latency, other.latency),
            (self.limiter, other.limiter),
            (self.request_size, other.request_size),
            (self.response_size, other.response_size),
        ):
            for verb, histogram in others.items():
                ours[verb].add(histogram)
        self.resolver.add(other.resolver)
        self.connections += other.connections
