"""Time as the rest of kubeloop sees it: clocks (real and fake), exponential back-off, a token bucket, and limits for waits."""

from kubeloop.timing.backoff import Backoff
from kubeloop.timing.bucket import TokenBucket
from kubeloop.timing.clock import Clock, SystemClock, Timer
from kubeloop.timing.fake import FakeClock
from kubeloop.timing.time_limit import TimeLimit, within

__all__ = ["Backoff", "Clock", "FakeClock", "SystemClock", "TimeLimit", "Timer", "TokenBucket", "within"]
