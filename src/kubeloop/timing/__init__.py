"""Clocks (real and fake), exponential back-off, a token bucket, and time limits for waits."""

from kubeloop.timing.backoff import Backoff
from kubeloop.timing.bucket import TokenBucket
from kubeloop.timing.clock import Clock, SystemClock, Timer
from kubeloop.timing.fake import FakeClock
from kubeloop.timing.within import within

__all__ = ["Backoff", "Clock", "FakeClock", "SystemClock", "Timer", "TokenBucket", "within"]
