"""What an election is about: which Lease, who stands for it, and the three times."""

from __future__ import annotations

import math
import re
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from kubeloop.meta import ConfigError

#: Waits between tries are stretched by up to this part of themselves while somebody else leads (client-go's JitterFactor).
JITTER = 1.2

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def unique_identity() -> str:
    """A name that no other candidate has, also not a later run of this program: the host's (a pod's) and a random part."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """One Lease and one candidate for it. Times are in seconds; the defaults are client-go's.

    ``identity``: must differ between candidates, or all of those who share it lead at the same time.
    ``lease_duration``: how long others wait for a sign of life before they take over; whole seconds.
    ``renew_deadline``: after this time without a renewal the leader gives up, by its own clock. The difference to ``lease_duration`` is
    what the clocks may differ in speed, and the time that running work has to end before another leader begins.
    ``retry_period``: between renewals, and between tries of those who do not lead (these stretched by up to 1.2 times itself).
    ``release_on_stop``: give the Lease back on a graceful stop, so that the next one need not wait.
    ``labels``: put on the Lease. ``coordinated``: the server chooses among LeaseCandidates; see ``LeaseCandidate``.

    Raises:
        ConfigError: these times cannot keep two from leading, or a name cannot be one (behaviour I120).
    """

    name: str
    namespace: str
    identity: str = field(default_factory=unique_identity)
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    release_on_stop: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    coordinated: bool = False

    def __post_init__(self) -> None:
        where = f'leader election "{self.namespace}/{self.name}"'
        if not _SUBDOMAIN.fullmatch(self.name) or len(self.name) > 253:
            raise ConfigError(f"{where}: name must be the name of a Lease (lower case letters, digits, '-' and '.'), not {self.name!r}")
        if not _LABEL.fullmatch(self.namespace) or len(self.namespace) > 63:
            raise ConfigError(f"{where}: namespace must be the name of a namespace, not {self.namespace!r}")
        if not self.identity:
            raise ConfigError(f"{where}: identity must not be empty; leave it out for one of the host's name and a random part")
        for name in ("lease_duration", "renew_deadline", "retry_period"):
            if not math.isfinite(getattr(self, name)):
                raise ConfigError(f"{where}: {name} must be a number of seconds, not {getattr(self, name)}")
        if self.lease_duration < 1 or self.lease_duration != int(self.lease_duration):
            raise ConfigError(f"{where}: lease_duration must be whole seconds, at least 1, not {self.lease_duration}")
        lease, renew, retry = self.lease_duration, self.renew_deadline, self.retry_period
        if renew <= 0 or retry <= 0:
            raise ConfigError(f"{where}: renew_deadline and retry_period must be above 0, not {renew} and {retry}")
        if lease <= renew:
            raise ConfigError(
                f"{where}: lease_duration ({lease:g} s) must be longer than renew_deadline ({renew:g} s), "
                "or a leader would still lead when another takes over"
            )
        if renew <= JITTER * retry:
            raise ConfigError(
                f"{where}: renew_deadline ({renew:g} s) must be longer than {JITTER} times retry_period ({retry:g} s), "
                "or one lost request would cost the leadership"
            )

    @property
    def request_timeout(self) -> float:
        """Seconds for one request: half of the renew deadline, so that a hanging request leaves time for another (controller-runtime's)."""
        return self.renew_deadline / 2

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
