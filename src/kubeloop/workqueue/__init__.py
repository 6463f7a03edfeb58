"""Work queue: fair (first in, first out), stingy (one entry per key, never two workers on a key), re-entrant (a key added while
it is worked on comes back once), with many producers and workers; delays and retries; it drains before it stops."""

from kubeloop.workqueue.limiter import BucketLimiter, ExponentialLimiter, Limiter, MaxOfLimiter, default_limiter
from kubeloop.workqueue.queue import QueueShutDown, QueueStats, WorkQueue

__all__ = [
    "BucketLimiter",
    "ExponentialLimiter",
    "Limiter",
    "MaxOfLimiter",
    "QueueShutDown",
    "QueueStats",
    "WorkQueue",
    "default_limiter",
]
