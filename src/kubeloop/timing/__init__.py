"""Time as the rest of kubeloop sees it: clocks (real and fake), exponential back-off, a token bucket, and limits for waits."""

from kubeloop.timing.backoff import Backoff
from kubeloop.timing.bucket import TokenBucket
from kubeloop.timing.clock import Clock, SystemClock, TimeLimit, Timer, within
from kubeloop.timing.fake import FakeClock

__all__ = ["Backoff", "Clock", "FakeClock", "SystemClock", "TimeLimit", "Timer", "TokenBucket", "within"]
