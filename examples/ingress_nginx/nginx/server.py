"""What the controller needs of an NGINX, whether it has Lua or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from examples.ingress_nginx.model.configuration import Changes, Configuration


class NginxError(Exception):
    """NGINX does not run as it should; the text says what happened and what to do. The last good configuration keeps serving."""


class ConfigurationRefused(NginxError):
    """``nginx -t`` refuses a configuration; the text is NGINX's."""


@dataclass(frozen=True, slots=True)
class Applied:
    """How a change reached NGINX. ``reason``: why a reload was necessary."""

    reloaded: bool
    reason: str = ""


class NginxServer(Protocol):
    """A running NGINX. One call of ``apply`` at a time."""

    @property
    def dynamic(self) -> bool:
        """Whether endpoints and certificates change without a reload."""

    async def start(self, configuration: Configuration) -> None:
        """Start NGINX with this configuration. Raises NginxError."""

    async def apply(self, configuration: Configuration, changes: Changes) -> Applied:
        """Bring NGINX from the last applied configuration to this one. Raises NginxError; then the last one keeps serving.

        ``changes`` names all parts that differ from the last configuration for which ``apply`` or ``start`` returned.
        """

    async def healthy(self) -> None:
        """Raise NginxError if the process does not answer."""

    async def stop(self) -> None:
        """Finish requests in progress (SIGQUIT), for at most ``settings.shutdown_seconds``, then end the process."""
