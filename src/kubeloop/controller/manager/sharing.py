"""Creates the member through which a manager shares the keys of its controllers with other replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeloop.client import Client
from kubeloop.controller.errors import ManagerError
from kubeloop.timing import Clock

if TYPE_CHECKING:
    from kubeloop.controller.election import LeaseConfig
    from kubeloop.controller.sharding import ShardConfig, ShardMember


def shard_member(client: Client, sharding: ShardConfig | None, election: LeaseConfig | None, clock: Clock) -> ShardMember | None:
    """The member that a manager is to be, if it is to be one.

    Raises:
        ManagerError: leader election is configured, too.
    """
    if sharding is None:
        return None
    if election is not None:
        raise ManagerError("leader_election lets one replica work and sharding lets all of them: give one of the two")
    from kubeloop.controller.sharding.member import ShardMember

    return ShardMember(client, sharding, clock=clock)
