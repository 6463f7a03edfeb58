"""Work queue: fair (first in, first out), stingy (one entry per key, never two workers on a key), re-entrant (a key added while
it is worked on comes back once), with many producers and workers; delays and retries; it drains before it stops."""

from kubeloop.workqueue.limiter import BucketLimiter, ExponentialLimiter, Limiter, MaxOfLimiter, default_limiter
from kubeloop.workqueue.priority import LOW_PRIORITY, PriorityQueue
from kubeloop.workqueue.protocol import Queue, QueueShutDown, QueueStats
from kubeloop.workqueue.queue import WorkQueue

__all__ = [
    "LOW_PRIORITY",
    "BucketLimiter",
    "ExponentialLimiter",
    "Limiter",
    "MaxOfLimiter",
    "PriorityQueue",
    "Queue",
    "QueueShutDown",
    "QueueStats",
    "WorkQueue",
    "default_limiter",
]
