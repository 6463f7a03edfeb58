"""The HTTP endpoints of a manager (probes, metrics, debug pages): their addresses and access, and the probes themselves."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeAlias

from kubeloop.meta import ConfigError, KubeloopError
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.timing import Clock, SystemClock, TimeLimit
from kubeloop.transport import logger_with_context

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from kubeloop.controller.manager.access import EndpointAccess
    from kubeloop.controller.webhooks.tls import CertificateSource

# Probes: /healthz and /readyz as in Kubernetes' own servers: named checks, ?verbose, ?exclude=NAME, /healthz/NAME.
#
# Source: Kubernetes API health endpoints; controller-runtime pkg/healthz.


_LOG = logger_with_context("kubeloop.controller.manager")

Check: TypeAlias = Callable[[], Awaitable[None] | None]
"""A health check: a function, plain or async, that raises an error if the check fails."""

#: Seconds after which an async check has failed.
PATIENCE = 10.0


class Unhealthy(KubeloopError):
    """A check failed; the message has the reason."""


class HealthProbe:
    """One probe endpoint and its checks.

    Guarantees
        A request for one check, and the log, show the reason of a failure; the public summary does not.
        A check that hangs fails after ``PATIENCE`` seconds, and does not delay the others.
    """

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self.name = name
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Add a check.

        Raises:
            ValueError: a check of that name exists, or the name is not valid in a path.
        """
        if not name or "/" in name or name in self._checks:
            why = "is there already" if name in self._checks else "cannot stand in a path"
            raise ValueError(f'/{self.name}: a check named "{name}" {why}; give it another name')
        self._checks[name] = check

    async def answer(self, request: Request) -> Answer | None:
        """Return the response, or None if the path does not belong to this probe."""
        path = request.path.rstrip("/")
        if path == f"/{self.name}":
            return await self._summary(request)
        if path.startswith(f"/{self.name}/"):
            return await self._one(path.removeprefix(f"/{self.name}/"))
        return None

    async def failures(self) -> dict[str, str]:
        """Run all checks and return the failures by name of check."""
        names = list(self._checks)
        failures = await asyncio.gather(*(self._ask(name) for name in names))
        return {name: why for name, why in zip(names, failures, strict=True) if why}

    async def _summary(self, request: Request) -> Answer:
        excluded = set(request.query.get("exclude", []))
        names = [name for name in self._checks if name not in excluded]
        failures = dict(zip(names, await asyncio.gather(*(self._ask(name) for name in names)), strict=True))
        failed = {name: why for name, why in failures.items() if why}
        if failed:
            _LOG.warning("%s check failed: %s", self.name, "; ".join(f"{name}: {why}" for name, why in failed.items()))
        elif "verbose" not in request.query:
            return _text("ok")
        lines = []
        for name in self._checks or ("ping",):
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
            elif name in failed:
                lines.append(f"[-]{name} failed: reason withheld")
            else:
                lines.append(f"[+]{name} ok")
        if unknown := sorted(excluded - set(self._checks)):
            quoted = ", ".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
        lines.append(f"{self.name} check {'failed' if failed else 'passed'}\n")
        return _text("\n".join(lines), 500 if failed else 200)

    async def _one(self, name: str) -> Answer:
        if name == "ping" and not self._checks:
            return _text("ok")
        if name not in self._checks:
            known = ", ".join(self._checks)
            return _text(f'404 page not found: no check "{name}"; there are: {known}\n', 404)
        why = await self._ask(name)
        return _text(f"internal server error: {why}\n", 500) if why else _text("ok")

    async def _ask(self, name: str) -> str:
        """Run a check and return its failure in words; empty if it succeeded."""
        try:
            async with TimeLimit(self._clock, PATIENCE):
                asked = self._checks[name]()
                if inspect.isawaitable(asked):
                    await asked
        except KubeloopError as error:
            return str(error)
        except TimeoutError:
            return f"no answer within {PATIENCE:g} s"
        except Exception as error:  # noqa: BLE001 - whatever a check raises says that it failed
            return str(error) or type(error).__name__
        return ""


def _text(body: str, status: int = 200) -> Answer:
    return Answer(status, body=body.encode(), content_type="text/plain; charset=utf-8", headers=[("X-Content-Type-Options", "nosniff")])


# Addresses to listen on, as ``host:port``; without a host, all interfaces.


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, option: str) -> Address:
        """Parse ``127.0.0.1:8080``, ``[::1]:8080``, ``localhost:0``, or ``:8080`` for every interface. Port 0 is any free port.

        Raises:
            ConfigError: ``text`` is not an address; the message names ``option``.
        """
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535 or (":" in bare and bare == host):
            raise ConfigError(f'{option}: {text!r} is not an address; write "127.0.0.1:8080", or ":8080" for every interface')
        return cls(bare, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """HTTP endpoints of a manager: probes, metrics and debug pages. An endpoint is served only if its address is given.

    Args:
        health: Address (``host:port``; ``:port`` is every interface) of /healthz and /readyz, plain and open to all, as the kubelet
            expects.
        metrics: Address of /metrics in Prometheus' text format.
        debug: Address of /debug/, see docs/manager.md.
        healthz: Name -> check of the program, in addition to the manager's.
        readyz: Name -> check of the program, in addition to the manager's.
        registry: Registry whose metrics are shown too. None: prometheus_client's default one.
        certificate: Source of the certificate with which metrics and debug are served over TLS. None: plain HTTP.
        access: Decides which requests may read metrics and debug. None: all.
        debug_beyond_loopback: Allow other machines to reach ``debug``. It shows object names and stacks: set ``access`` too.

    Raises:
        ConfigError: an invalid address; ``debug`` beyond loopback without ``debug_beyond_loopback``; credentials without TLS. The message
            names the option.

    Example:
        >>> endpoints = Endpoints(health="127.0.0.1:0")
        >>> async with Manager(client, endpoints=endpoints) as manager:
        ...     print(manager.urls["health"])
        http://127.0.0.1:...
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
                "listen on 127.0.0.1, or set debug_beyond_loopback=True and access=..."
            )

    def address(self, option: str) -> Address | None:
        """Return the address of ``health``, ``metrics`` or ``debug`` (``option``); None if that endpoint is not served."""
        text: str = getattr(self, option)
        return Address.parse(text, option) if text else None

    def _local(self, option: str) -> bool:
        address = self.address(option)
        return address is not None and address.is_loopback
