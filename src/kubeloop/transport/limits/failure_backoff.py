"""A pause before each request while the server fails: doubled by each 429 and 5xx, removed by the first other outcome.

Source: client-go rest/urlbackoff.go, and util/flowcontrol/backoff.go for the reset of a pause; off by default, as there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Self

from kubeloop.meta.errors import ConfigError
from kubeloop.timing import Clock

_BASE, _LONGEST = "KUBE_CLIENT_BACKOFF_BASE", "KUBE_CLIENT_BACKOFF_DURATION"


class FailureBackoff:
    """The back-off from one server. ``base`` and ``longest`` are in seconds."""

    def __init__(self, base: float, longest: float, clock: Clock) -> None:
        self._base = base
        self._longest = longest
        self._clock = clock
        self._pause = 0.0
        self._failed_at = 0.0

    @classmethod
    def from_environment(cls, clock: Clock, environment: Mapping[str, str] | None = None) -> Self | None:
        """Return the back-off of KUBE_CLIENT_BACKOFF_BASE and KUBE_CLIENT_BACKOFF_DURATION (whole seconds, both); None if they are not set.

        Raises:
            ConfigError: a variable is not a whole number of seconds.
        """
        environment = os.environ if environment is None else environment
        texts = [environment.get(name, "") for name in (_BASE, _LONGEST)]
        if not all(texts):
            return None
        for name, text in zip((_BASE, _LONGEST), texts, strict=True):
            if not (text.isascii() and text.isdecimal() and len(text) < 10):
                raise ConfigError(f'{name} is "{text}"; write whole seconds, or leave it out')
        return cls(float(texts[0]), float(texts[1]), clock) if int(texts[0]) else None

    def pause(self) -> float:
        """Return the seconds to wait before the next request."""
        # Old failures do not count.
        return 0.0 if self._clock.now() - self._failed_at > 2 * self._longest else self._pause

    def outcome(self, status: int | None) -> None:
        """Record an outcome. ``status`` None: no response, which is no sign of an overloaded server (as in client-go)."""
        if status is not None and (status == 429 or status >= 500):
            self._pause = min((self.pause() * 2) or self._base, self._longest)
            self._failed_at = self._clock.now()
        else:
            self._pause = 0.0
