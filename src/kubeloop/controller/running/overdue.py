"""Overdue: notices reconciles that do not return, names them, and has their workers replaced, so that other keys go on.

One timer for all of a controller's reconciles: setting one for each would cost more than most reconciles.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.controller.running.outcome import ReconcileCounts
from kubeloop.timing import Clock, Timer
from kubeloop.transport import logger_with_context

#: Seconds after which a reconcile without a time limit is worth a warning; again each time its age has doubled.
SLOW = 60.0
#: Seconds that a reconcile has to end after it was cancelled, before its worker is replaced.
TO_END = 1.0
#: Workers that may be replaced at a time: each holds memory, and maybe a thread, until its reconcile ends.
MOST = 100

log = logger_with_context(__name__)


class Turn:
    """One reconcile under way."""

    __slots__ = ("began", "hangs", "key", "look")

    def __init__(self, key: str, began: float, look: float) -> None:
        self.key = key
        self.began = began
        #: When it is next to be looked at.
        self.look = look
        self.hangs = False


class Overdue:
    """Guarantees
    A reconcile that has not ended a second after its ``timeout`` is named in the log, with its class and what to do; its key stays
    taken, and ``substitute`` is called once for it. One without a time limit is named after a minute.
    """

    def __init__(self, clock: Clock, counts: ReconcileCounts, owner: str, timeout: float | None, substitute: Callable[[], None]) -> None:
        self._clock = clock
        self._counts = counts
        self._owner = owner
        self._timeout = timeout
        self._first = SLOW if timeout is None else timeout + TO_END
        self._substitute = substitute
        self._turns: set[Turn] = set()
        self._timer: Timer | None = None

    def begin(self, key: str, now: float) -> Turn:
        turn = Turn(key, now, now + self._first)
        self._turns.add(turn)
        if self._timer is None:
            self._timer = self._clock.call_later(self._first, self._look)
        return turn

    def end(self, turn: Turn) -> None:
        self._turns.discard(turn)
        if turn.hangs:
            self._counts.hanging -= 1
            log.warning("%s: the reconcile of %s has ended, after %.0f s", self._owner, turn.key, self._clock.now() - turn.began)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._clock.now()
        self._timer = None
        for turn in tuple(self._turns):  # A substitute may begin its own at once, where tasks are eager.
            if turn.look <= now:
                self._report(turn, now)
        if self._turns:
            self._timer = self._clock.call_later(max(0.0, min(turn.look for turn in self._turns) - now), self._look)

    def _report(self, turn: Turn, now: float) -> None:
        age = now - turn.began
        turn.look = now + max(age, SLOW)
        if self._timeout is None:
            log.warning(
                "%s: the reconcile of %s has not returned for %.0f s; its key and a worker are taken until it does. If it waits for "
                "something, return Result(requeue_after=...) instead; or give the class timeout=... seconds",
                self._owner,
                turn.key,
                age,
            )
            return
        log.error(
            "%s: the reconcile of %s goes on for %.0f s although it was cancelled after %g s (timeout=); its key stays taken until it "
            "returns, other keys go on. A thread cannot be cancelled: give what it calls a time limit of its own, or write async def "
            "reconcile; an async one must not catch CancelledError",
            self._owner,
            turn.key,
            age,
            self._timeout,
        )
        if not turn.hangs:
            turn.hangs = True
            self._counts.hanging += 1
            if self._counts.hanging <= MOST:
                self._substitute()
            else:
                log.error("%s: %d reconciles hang; no more workers take their places", self._owner, self._counts.hanging)
