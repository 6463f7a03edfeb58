"""Where a webhook server's certificate comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kubeloop.client import Client
from kubeloop.timing import Clock


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served with: PEM. ``authorities``: who may have signed it, now or soon; empty where nobody here knows."""

    certificate: bytes
    key: bytes
    authorities: bytes = b""

    def __repr__(self) -> str:
        return f"Serving({len(self.certificate)} bytes, key hidden)"


class CertificateSource(Protocol):
    """Gives a certificate, and another one before that expires."""

    async def open(self, client: Client | None, clock: Clock) -> Serving:
        """The certificate to begin with.

        Raises:
            ConfigError: there is none, or it cannot be used; names file or Secret. ApiError, TransportError: a Secret cannot be reached.
        """

    async def keep(self, changed: Callable[[Serving], None]) -> None:
        """Call ``changed`` with each other certificate, until cancelled. What goes wrong is logged and tried again."""
