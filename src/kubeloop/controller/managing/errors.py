"""Errors of a manager itself, beside those of what it runs."""

from __future__ import annotations

from kubeloop.meta import KubeloopError


class ManagerError(KubeloopError):
    """The manager is asked for what it cannot do now."""


class GraceExceeded(ManagerError):
    """What ran had not ended within the grace, and was cancelled. ``names`` says what."""

    def __init__(self, seconds: float, names: list[str]) -> None:
        super().__init__(f"not ended within {seconds:g} s, cancelled: {', '.join(names)}")
        self.names = names
