"""The progress of a request: its steps from the name lookup to the bytes of the response, with their times.

A task sets ``PROGRESS`` to record the steps of its requests; the connection records them. Without it nothing is recorded, at almost no
cost.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from kubeloop.timing import Clock

#: The steps in their order, with their texts in log messages. A reused connection begins with SENT.
RESOLVED: Final = "name resolved"
CONNECTED: Final = "connected"
SECURED: Final = "TLS agreed"
SENT: Final = "request sent"
ANSWERED: Final = "headers received"


class RequestProgress:
    """The steps of the last request of a task, and the seconds from its start to each of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.now()
        self._request = ""
        self._steps: list[tuple[str, float]] = []
        self._bytes = 0

    def begin(self, request: str) -> None:
        """Start another request or attempt, and forget the previous steps."""
        self._started = self._clock.now()
        self._request = request
        self._steps.clear()
        self._bytes = 0

    def reach(self, step: str) -> None:
        """Record a completed step."""
        self._steps.append((step, self._clock.now() - self._started))

    def receive(self, size: int) -> None:
        """Count bytes of the response's body."""
        self._bytes += size

    def __str__(self) -> str:
        if not self._request:
            return "no request was sent yet: it waits for credentials, for a limit of requests, or for its turn after a refusal"
        steps = [f"{step} after {seconds:.1f} s" for step, seconds in self._steps]
        if self._steps and self._steps[-1][0] == ANSWERED:
            steps.append(f"{self._bytes} bytes so far")
        elif self._steps and self._steps[-1][0] == SENT:
            steps.append("no answer yet")
        elif not self._steps:
            steps.append("no connection yet")
        return f"{self._request}: {', '.join(steps)}"


#: Set by a task to record the progress of its requests.
PROGRESS: Final[ContextVar[RequestProgress | None]] = ContextVar("kubeloop-request-progress", default=None)


def reach(step: str) -> None:
    """Record a step, if the task has set ``PROGRESS``."""
    progress = PROGRESS.get()
    if progress is not None:
        progress.reach(step)
