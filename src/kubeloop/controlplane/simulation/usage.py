"""Simulated usage of a resource as a function of time: constant, growing, or a wave. No I/O."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from kubeloop.meta import Quantity

_GROWTH = re.compile(r"^(?P<base>[^+]+)\+(?P<rate>[^/]+)/s$")
_WAVE = re.compile(r"^(?P<low>.+)\.\.(?P<high>[^/]+)/(?P<period>[0-9.]+)s?$")


@dataclass(frozen=True, slots=True)
class UsageFunction:
    """The usage of a resource as a function of the seconds since the start.

    It is ``base + rate * seconds + swing * (1 - cos(2 pi seconds / period)) / 2``, but at least 0.
    """

    base: float
    rate: float = 0.0
    swing: float = 0.0
    period: float = 1.0

    @classmethod
    def parse(cls, text: str) -> UsageFunction:
        """Parse ``64Mi`` (constant), ``64Mi+1Mi/s`` (growing each second) or ``100m..400m/60`` (a wave with a period of 60 seconds).

        Raises:
            ValueError: The text has none of these forms.
        """
        if match := _GROWTH.match(text):
            return cls(_amount(match["base"]), rate=_amount(match["rate"]))
        if match := _WAVE.match(text):
            low, period = _amount(match["low"]), float(match["period"])
            if period <= 0:
                raise ValueError(text)
            return cls(low, swing=_amount(match["high"]) - low, period=period)
        return cls(_amount(text))

    def at(self, seconds: float) -> float:
        wave = self.swing * (1 - math.cos(2 * math.pi * seconds / self.period)) / 2 if self.swing else 0.0
        return max(self.base + self.rate * seconds + wave, 0.0)

    def reaches(self, limit: float) -> float:
        """Return the seconds after which the usage exceeds a limit, or infinity."""
        if self.base > limit:
            return 0.0
        if self.rate > 0:
            return (limit - self.base) / self.rate
        if self.swing > 0 and self.base + self.swing > limit:
            return self.period * math.acos(1 - 2 * (limit - self.base) / self.swing) / (2 * math.pi)
        return math.inf


def _amount(text: str) -> float:
    try:
        amount = float(Quantity(text.strip()))
    except Exception as error:
        raise ValueError(text) from error
    if amount < 0:
        raise ValueError(text)
    return amount
