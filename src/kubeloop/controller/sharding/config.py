"""How the keys of a program's controllers are spread over its replicas."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from kubeloop.controller.election.config import LeaseConfig, unique_identity
from kubeloop.meta import ConfigError, ObjectKey

_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


def by_object(key: ObjectKey) -> str:
    """Each object by itself: the most even spread."""
    # Without the cluster: replicas may know it by different names.
    return f"{key.namespace}/{key.name}"


def by_namespace(key: ObjectKey) -> str:
    """All objects of a namespace in one replica; for controllers that must not meet themselves there."""
    return key.namespace


@dataclass(frozen=True, slots=True)
class ShardConfig:
    """One group of replicas, and this one's part in it. Times in seconds, as ``LeaseConfig`` has them.

    ``group``: the same for all replicas of a program, and unique in ``namespace``. Each replica has a Lease there with the label
    ``shards.kubeloop.dev/group``, named after group and identity.
    ``by``: what decides where a key belongs; must be the same function in all replicas. With ``by_namespace`` objects of one namespace stay
    together.

    Raises:
        ConfigError: as ``LeaseConfig``, or a group that cannot be a label and the beginning of a name.
    """

    group: str
    namespace: str
    identity: str = field(default_factory=unique_identity)
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    by: Callable[[ObjectKey], str] = by_object

    def __post_init__(self) -> None:
        if not _GROUP.fullmatch(self.group):
            raise ConfigError(f"sharding: group must be 1 to 40 lower case letters, digits and '-', not {self.group!r}")
        self.lease()

    def lease(self) -> LeaseConfig:
        """This replica's own Lease; also the check of the times."""
        # A name that any identity gives, however long it is or whatever it holds.
        name = f"{self.group}-{blake2b(self.identity.encode(), digest_size=8).hexdigest()}"
        times = (self.lease_duration, self.renew_deadline, self.retry_period)
        return LeaseConfig(name, self.namespace, self.identity, *times, labels={GROUP_LABEL: self.group})


#: The label by which the leases of a group are found.
GROUP_LABEL = "shards.kubeloop.dev/group"
