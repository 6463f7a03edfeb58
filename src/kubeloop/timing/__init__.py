"""Time as the rest of kubeloop sees it: clocks (real and fake), exponential back-off, and a token bucket."""

from kubeloop.timing.backoff import Backoff
from kubeloop.timing.bucket import TokenBucket
from kubeloop.timing.clock import Clock, SystemClock, Timer
from kubeloop.timing.fake import FakeClock

__all__ = ["Backoff", "Clock", "FakeClock", "SystemClock", "Timer", "TokenBucket"]
