"""Work queue: fair (first in, first out), stingy (one entry per key, never two workers on a key), re-entrant (a key added while
it is worked on comes back once), with many producers and workers; delays and retries; it drains before it stops."""

from kubeloop.workqueue.limiter import (
    BucketLimiter,
    ExponentialLimiter,
    FastSlowLimiter,
    Limiter,
    MaxOfLimiter,
    MaxWaitLimiter,
    RateCap,
    default_limiter,
)
from kubeloop.workqueue.parallel import parallelize
from kubeloop.workqueue.priority import LOW_PRIORITY, PriorityQueue
from kubeloop.workqueue.protocol import Queue, QueueFigures, QueueMetrics, QueueShutDown, QueueStats, QueueTimes
from kubeloop.workqueue.queue import WorkQueue

__all__ = [
    "LOW_PRIORITY",
    "BucketLimiter",
    "ExponentialLimiter",
    "FastSlowLimiter",
    "Limiter",
    "MaxOfLimiter",
    "MaxWaitLimiter",
    "PriorityQueue",
    "Queue",
    "QueueFigures",
    "QueueMetrics",
    "QueueShutDown",
    "QueueStats",
    "QueueTimes",
    "RateCap",
    "WorkQueue",
    "default_limiter",
    "parallelize",
]
