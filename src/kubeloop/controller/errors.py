"""Errors of a manager itself, beside those of what it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubeloop.meta import KubeloopError
from kubeloop.meta.failure_log import distinct
from kubeloop.transport import logger_with_context

log = logger_with_context("kubeloop.controller.manager")


class DeclarationError(KubeloopError, TypeError):
    """A class declares something that cannot work, or omits something that it must declare; the text names the class and the fix."""


class ManagerError(KubeloopError):
    """The manager cannot do this now."""


class GraceExceeded(ManagerError):
    """What ran had not ended within the grace, and was cancelled. ``names`` says what."""

    def __init__(self, seconds: float, names: list[str]) -> None:
        super().__init__(f"not ended within {seconds:g} s, cancelled: {', '.join(names)}")
        self.names = names


class ErrorCollector:
    """All that went wrong, to be raised together at the end."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []

    def add(self, error: BaseException) -> None:
        self._errors.append(error)

    async def kept(self, end: Callable[[], Awaitable[object]]) -> None:
        """Do ``end``; what it raises is kept, so that whatever else has to end does."""
        try:
            await end()
        except Exception as error:
            log.exception("the manager cannot stop in order")
            self.add(error)

    def raise_all(self) -> None:
        """Raises what was added: one as it is, also out of groups within groups; several as one ``ExceptionGroup``."""
        if not self._errors:
            return
        together = BaseExceptionGroup("several things failed", self._errors)
        leaves = distinct(together)
        raise leaves[0] if len(leaves) == 1 else together
