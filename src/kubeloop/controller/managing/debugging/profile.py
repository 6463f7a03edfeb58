"""A CPU profile of the event loop's thread for some seconds: which functions its time goes to."""

from __future__ import annotations

import cProfile
import io
import marshal
import pstats
import time

from kubeloop.timing import Clock

#: Seconds at most.
LONGEST = 300.0
_TOP = 60


class ProfileBusyError(Exception):
    """Another profile is being taken; there can be one at a time."""


class Profiler:
    """Measures processor time of the thread, so that waiting costs nothing; everything that the loop runs meanwhile is in it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy = False

    async def take(self, seconds: float) -> cProfile.Profile:
        """Returns after so many seconds.

        Raises:
            ProfileBusyError: a profiler runs already, this or a debugger's.
        """
        if self._busy:
            raise ProfileBusyError
        self._busy = True
        profile = cProfile.Profile(time.thread_time)
        try:
            try:
                profile.enable()
            except ValueError as error:
                raise ProfileBusyError from error
            try:
                await self._clock.sleep(seconds)
            finally:
                profile.disable()
        finally:
            self._busy = False
        return profile


def profile_text(profile: cProfile.Profile) -> str:
    """The dearest functions first, by their own time and that of what they call."""
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("cumulative").print_stats(_TOP)
    return text.getvalue()


def profile_dump(profile: cProfile.Profile) -> bytes:
    """For ``pstats``, snakeviz and the like: what ``Profile.dump_stats`` writes."""
    profile.create_stats()
    return marshal.dumps(profile.stats)
