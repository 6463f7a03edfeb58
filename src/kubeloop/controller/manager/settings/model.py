"""What can be set from outside. None: as the program says."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite
from typing import Literal

import msgspec

from kubeloop.client.mapping import ALL_NAMESPACES
from kubeloop.controller.election.config import LeaseConfig
from kubeloop.controller.manager.endpoints import Endpoints
from kubeloop.controller.manager.scope import CacheScope
from kubeloop.meta import ConfigError


class _Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class RateSettings(_Settings, frozen=True):
    """``per_second`` on average, ``burst`` at once."""

    per_second: float
    burst: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.per_second < inf or self.burst < 1:
            raise ValueError(f"perSecond must be above 0 and burst at least 1, not {self.per_second:g} and {self.burst}")


class LeaderElectionSettings(_Settings, frozen=True):
    """Of ``LeaseConfig``; seconds."""

    name: str
    namespace: str
    identity: str = ""
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    release_on_stop: bool = True

    def __post_init__(self) -> None:
        try:
            self.config()
        except ConfigError as error:
            raise ValueError(str(error)) from None

    def config(self) -> LeaseConfig:
        """A new candidate, with an identity of its own unless one is set."""
        given = LeaseConfig(
            self.name,
            self.namespace,
            lease_duration=self.lease_duration,
            renew_deadline=self.renew_deadline,
            retry_period=self.retry_period,
            release_on_stop=self.release_on_stop,
        )
        return replace(given, identity=self.identity) if self.identity else given


class ManagerSettings(_Settings, frozen=True):
    """Of one manager. ``health``, ``metrics``, ``debug``: addresses as of ``Endpoints``. ``grace`` less than 0 waits for ever.

    ``workers``: by name of controller. ``reconciles``: a cap of all controllers together. ``requests``: of the client to the first cluster.
    Log settings, if any is given, have the manager set up the root logger while it runs (``LogOutput``).
    """

    health: str | None = None
    metrics: str | None = None
    debug: str | None = None
    leader_election: LeaderElectionSettings | None = None
    namespaces: tuple[str, ...] | None = None
    workers: dict[str, int] = {}
    reconciles: RateSettings | None = None
    requests: RateSettings | None = None
    grace: float | None = None
    sync_timeout: float | None = None
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    log_format: Literal["json", "text"] | None = None

    def __post_init__(self) -> None:
        for name, number in self.workers.items():
            if number < 1:
                raise ValueError(f"workers: {name} needs at least 1, not {number}")
        if self.grace is not None and not isfinite(self.grace):
            raise ValueError(f"grace must be a number of seconds, or -1 to wait for ever, not {self.grace}")
        if self.sync_timeout is not None and not 0 < self.sync_timeout < inf:
            raise ValueError(f"syncTimeout must be above 0 seconds, not {self.sync_timeout:g}")
        try:
            self.endpoints(None)
            CacheScope(namespaces=ALL_NAMESPACES if self.namespaces is None else self.namespaces)
        except (ConfigError, ValueError) as error:
            raise ValueError(str(error)) from None

    def endpoints(self, given: Endpoints | None) -> Endpoints | None:
        """The program's, with these addresses. An empty one switches an endpoint off."""
        named = {"health": self.health, "metrics": self.metrics, "debug": self.debug}
        wanted = {name: address for name, address in named.items() if address is not None}
        if not wanted:
            return given
        return replace(given or Endpoints(), **wanted)  # type: ignore[arg-type]  # all of them are texts
