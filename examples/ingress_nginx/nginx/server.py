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
class ApplyResult:
    """How a change reached NGINX.

    Attributes:
        reloaded: NGINX was reloaded.
        reason: Why a reload was necessary.
        deferred: Why a reload is necessary that was not allowed; empty: NGINX serves the whole configuration.
    """

    reloaded: bool
    reason: str = ""
    deferred: str = ""


class NginxServer(Protocol):
    """A running NGINX. One call of ``apply`` at a time."""

    @property
    def dynamic(self) -> bool:
        """Whether endpoints and certificates change without a reload."""

    async def serves_http2_beside_http1(self) -> bool:
        """Report whether clients without TLS may use HTTP/1.1 and HTTP/2 on the same port. Raises NginxError if there is no NGINX."""

    async def start(self, configuration: Configuration) -> None:
        """Start NGINX with this configuration. Raises NginxError."""

    async def apply(self, configuration: Configuration, changes: Changes, *, may_reload: bool = True) -> ApplyResult:
        """Bring NGINX from the last applied configuration to this one.

        Args:
            configuration: The whole configuration.
            changes: All parts that differ from the last configuration for which ``apply`` or ``start`` returned.
            may_reload: If False and a reload is necessary, NGINX gets the endpoints and certificates that need none; the next call that
                allows a reload delivers the rest, also with empty ``changes``.

        Raises:
            NginxError: NGINX does not take the configuration; the last one keeps serving.
        """

    async def healthy(self) -> None:
        """Raise NginxError if the process does not answer."""

    async def stop(self) -> None:
        """Finish requests in progress (SIGQUIT), for at most ``settings.shutdown_seconds``, then end the process."""
