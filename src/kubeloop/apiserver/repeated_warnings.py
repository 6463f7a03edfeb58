"""Warnings that clients can cause as often as they like: the log tells each once in a while, and how often it came."""

from __future__ import annotations

import logging
from typing import Final

from kubeloop.timing import Clock

#: Seconds for which a warning that was told is only counted.
PERIOD: Final = 60.0
#: Warnings that are remembered, and the characters by which each is known and told.
MOST: Final = 256
LONGEST: Final = 2000


class RepeatedWarnings:
    """Guarantees
        Of one text there is at most one line in ``PERIOD`` seconds; the next line says how many there would have been in between.
        What is remembered is bounded by ``MOST`` texts of ``LONGEST`` characters: those told least recently are forgotten.

    Not guaranteed
        That a count is told whose text never comes again.
    """

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        #: When each was told last, and how often it came since; the one told least recently first.
        self._told: dict[str, tuple[float, int]] = {}

    def say(self, text: str) -> None:
        text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
        now = self._clock.now()
        last, since = self._told.get(text, (now - PERIOD, 0))
        if now - last < PERIOD:
            self._told[text] = last, since + 1
            return
        self._told.pop(text, None)
        self._told[text] = now, 0
        if len(self._told) > MOST:
            del self._told[next(iter(self._told))]
        if since:
            self._log.warning("%s (and %d times in the %d s before)", text, since, now - last)
        else:
            self._log.warning("%s", text)
