"""Plain limits of how many requests are carried out at a time, without queues: --enable-priority-and-fairness=false."""

from __future__ import annotations

from kubeloop.apiserver.flow.control import FlowLimits, RejectedByFlowControl
from kubeloop.apiserver.request.users import MASTERS, User

_READING = frozenset({"get", "list", "watch"})


def is_mutating(verb: str) -> bool:
    return verb not in _READING


class InFlight:
    """Counts requests that read and requests that write. A limit of 0 is none."""

    def __init__(self, limits: FlowLimits) -> None:
        self._limits = limits
        self.reading = 0
        self.mutating = 0

    def enter(self, verb: str) -> None:
        if is_mutating(verb):
            self.mutating += 1
        else:
            self.reading += 1

    def leave(self, verb: str) -> None:
        if is_mutating(verb):
            self.mutating -= 1
        else:
            self.reading -= 1

    def check(self, verb: str, user: User) -> None:
        """Before ``enter``, where these limits are all there is.

        Raises:
            RejectedByFlowControl
        """
        now, most = (self.mutating, self._limits.mutating) if is_mutating(verb) else (self.reading, self._limits.reading)
        if most and now >= most and MASTERS not in user.groups:
            raise RejectedByFlowControl
