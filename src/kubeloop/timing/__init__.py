"""Clocks (real and fake), exponential back-off, a token bucket, and time limits for waits."""

from kubeloop.timing.clock import Clock, SystemClock, TimeLimit, Timer, within
from kubeloop.timing.fake import FakeClock
from kubeloop.timing.limits import Backoff, TokenBucket

__all__ = ["Backoff", "Clock", "FakeClock", "SystemClock", "TimeLimit", "Timer", "TokenBucket", "within"]
