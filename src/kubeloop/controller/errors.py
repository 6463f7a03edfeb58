"""Errors of declarations and managers, and a collector of errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubeloop.meta import KubeloopError
from kubeloop.meta.failure_log import distinct
from kubeloop.transport import logger_with_context

_LOG = logger_with_context("kubeloop.controller.manager")


class DeclarationError(KubeloopError, TypeError):
    """A class declares something that cannot work, or omits something that it must declare; the message names the class and the fix."""


class ManagerError(KubeloopError):
    """The manager cannot perform the call in its present state."""


class GraceExceeded(ManagerError):
    """Runnables had not ended within the grace period, and were cancelled. ``names`` lists them."""

    def __init__(self, seconds: float, names: list[str]) -> None:
        super().__init__(f"not ended within {seconds:g} s, cancelled: {', '.join(names)}")
        self.names = names


class ErrorCollector:
    """Collects the errors of several steps, to raise them together at the end."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []

    def add(self, error: BaseException) -> None:
        self._errors.append(error)

    async def kept(self, end: Callable[[], Awaitable[object]]) -> None:
        """Await ``end`` and collect its error, so that the following steps run too."""
        try:
            await end()
        except Exception as error:  # noqa: BLE001 - logged
            _LOG.exception("the manager cannot stop in order")
            self.add(error)

    def raise_all(self) -> None:
        """Raise the collected errors: a single one unwrapped, even from nested groups; several as one ``ExceptionGroup``."""
        if not self._errors:
            return
        together = BaseExceptionGroup("several things failed", self._errors)
        leaves = distinct(together)
        raise leaves[0] if len(leaves) == 1 else together
