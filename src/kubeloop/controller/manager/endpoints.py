"""Endpoints: what of itself a manager shows over HTTP, where, and to whom: probes, metrics, and what helps to find a fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING

from kubeloop.controller.manager.probes import Check
from kubeloop.meta import ConfigError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from kubeloop.controller.manager.access import EndpointAccess
    from kubeloop.controller.webhooks.tls import CertificateSource

# Addresses to listen on, as ``host:port``; a host left out is every interface.


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, option: str) -> Address:
        """``127.0.0.1:8080``, ``[::1]:8080``, ``localhost:0``, or ``:8080`` for every interface. Port 0 is any that is free.

        Raises:
            ConfigError: it is no address; names ``option``.
        """
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535 or (":" in bare and bare == host):
            raise ConfigError(f'{option}: {text!r} is no address; write "127.0.0.1:8080", or ":8080" for every interface')
        return cls(bare, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Addresses (``host:port``, ``:port`` is every interface), each served only if it is given.

    ``health``: /healthz and /readyz, plain and open to all, as the kubelet wants them.
    ``metrics``: /metrics in Prometheus' text. ``debug``: /debug/, see docs/manager.md.
    ``healthz``, ``readyz``: checks of the program's own, by name, beside those of the manager.
    ``registry``: whose metrics are shown too; None: prometheus_client's default one.
    ``certificate``: serve metrics and debug over TLS. ``access``: who may see them; None: everybody.
    ``debug_beyond_loopback``: let ``debug`` listen where other machines reach it. It shows object names and stacks: set ``access`` too.

    Raises:
        ConfigError: an address that is none; debug beyond loopback without leave; credentials that would pass in clear. Names the option.
    """

    health: str = ""
    metrics: str = ""
    debug: str = ""
    healthz: Mapping[str, Check] = field(default_factory=dict)
    readyz: Mapping[str, Check] = field(default_factory=dict)
    registry: CollectorRegistry | None = None
    certificate: CertificateSource | None = None
    access: EndpointAccess | None = None
    debug_beyond_loopback: bool = False

    def __post_init__(self) -> None:
        for option in ("health", "metrics", "debug"):
            if self.address(option) is None:
                continue
            if option != "health" and self.access is not None and self.certificate is None and not self._local(option):
                raise ConfigError(
                    f"{option}={getattr(self, option)!r}: credentials would pass in clear; give certificate=..., or listen on 127.0.0.1"
                )
        if self.debug and not self.debug_beyond_loopback and not self._local("debug"):
            raise ConfigError(
                f"debug={self.debug!r} is reached from other machines and shows the inside of this process; "
                "listen on 127.0.0.1, or say debug_beyond_loopback=True and access=..."
            )

    def address(self, option: str) -> Address | None:
        """Of ``health``, ``metrics`` or ``debug``; None where it is not wanted."""
        text: str = getattr(self, option)
        return Address.parse(text, option) if text else None

    def _local(self, option: str) -> bool:
        address = self.address(option)
        return address is not None and address.is_loopback
