"""What attends every request whatever it asks for: its audit events, its deadline. ``Pipeline`` tells of the stages as they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kubeloop.apiserver.answers import Answer, Frames, Reply
from kubeloop.apiserver.passage import Passage
from kubeloop.timing import Clock

if TYPE_CHECKING:
    from kubeloop.apiserver.audit.log import AuditLog
    from kubeloop.apiserver.audit.policy import Policy

_SWITCHED = 101


@dataclass(frozen=True, slots=True)
class Auditing:
    """What is logged, and where."""

    policy: Policy
    log: AuditLog


@dataclass(frozen=True, slots=True)
class OperationOptions:
    """``auditing`` None: no audit log."""

    auditing: Auditing | None = None


class Operation:
    """One for a server."""

    def __init__(self, clock: Clock, options: OperationOptions | None = None) -> None:
        self._clock = clock
        self.options = options or OperationOptions()
        self._auditing = self.options.auditing

    def start(self) -> None:
        """Raises ConfigError when the audit log cannot be written."""
        if self._auditing is not None:
            self._auditing.log.open()

    async def stop(self) -> None:
        """Write what has not been written; the last requests are over."""
        if self._auditing is not None:
            await self._auditing.log.close()

    def identified(self, passage: Passage) -> None:
        """It is known who asks (``passage.user``)."""
        if self._auditing is not None:
            from kubeloop.apiserver.audit.policy import RECEIVED

            self._audit(passage, self._auditing)
            if passage.audit is not None:
                passage.audit.event(RECEIVED)

    def formed(self, passage: Passage, answer: Answer) -> None:
        """The answer is whole and not yet encoded."""
        if passage.user is None and self._auditing is not None and passage.audit is None:
            self._audit(passage, self._auditing)  # refused before anybody knew from whom it is
        if passage.audit is not None:
            passage.audit.answer(answer)

    def answered(self, passage: Passage, reply: Reply) -> None:
        """``reply`` goes out now; when that is a stream, its end is told later."""
        if passage.audit is None:
            return
        from kubeloop.apiserver.audit.policy import COMPLETE, STARTED

        record, long = passage.audit, passage.long_running
        if isinstance(reply, Answer):
            # Who was not authenticated is logged once, as what goes on for long begins.
            if long or passage.user is None:
                record.event(STARTED, self._clock.wall())
            if passage.user is not None:
                record.event(COMPLETE, self._clock.wall())
            return
        code = reply.status if isinstance(reply, Frames) else _SWITCHED
        if long:
            record.event(STARTED, self._clock.wall(), code=code)
        reply.close = _both(reply.close, lambda: record.event(COMPLETE, self._clock.wall(), code=code))

    def left(self, passage: Passage) -> None:
        """The client has gone before there was an answer."""
        if passage.audit is not None:
            from kubeloop.apiserver.audit.policy import COMPLETE, STARTED

            if passage.long_running:
                passage.audit.event(STARTED, self._clock.wall(), code=200, message="Connection closed early")
            passage.audit.event(COMPLETE, self._clock.wall(), code=200, message="Connection closed early")

    def _audit(self, passage: Passage, auditing: Auditing) -> None:
        logged = auditing.policy.of(passage.user, passage.info)
        if logged.level:
            from kubeloop.apiserver.audit.record import AuditRecord

            passage.audit = AuditRecord(passage, logged, auditing.log.add, self._arrival(passage))

    def _arrival(self, passage: Passage) -> datetime:
        return self._clock.wall() - timedelta(seconds=self._clock.now() - passage.started)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            first()
        finally:
            second()

    return run
