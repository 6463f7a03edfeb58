"""The leases of a group at the server: our own is written, all are listed. What members declare stands in annotations."""

from __future__ import annotations

import copy
import json

from kubeloop.api.coordination.v1 import Lease, LeaseSpec
from kubeloop.client import Client
from kubeloop.client.options import DeleteOptions
from kubeloop.controller.sharding.config import GROUP_LABEL, ShardConfig
from kubeloop.controller.sharding.membership import Declared
from kubeloop.controller.sharding.slots import PROTOCOL
from kubeloop.meta import Conflict, NotFound, ObjectMeta
from kubeloop.timing import Clock

#: The version of the protocol by which a member works, and the members that it believes alive, a JSON list of identities.
PROTOCOL_ANNOTATION = "shards.kubeloop.dev/protocol"
VIEW_ANNOTATION = "shards.kubeloop.dev/view"


class GroupLeases:
    """Reads and writes them. Each write of our own is bound to the version last seen."""

    def __init__(self, client: Client, config: ShardConfig, clock: Clock) -> None:
        self._client = client
        self._config = config
        self._lease = config.lease()
        self._clock = clock
        self._mine: Lease | None = None
        self._found: dict[str, Lease] = {}

    async def write(self, view: frozenset[str], *, left: bool = False) -> Lease:
        """Renew our lease and declare ``view``. If somebody wrote or deleted it, it is read or made again, once. Gives it as stored.

        Raises:
            KubeloopError: not done, or nobody knows whether it was.
        """
        if self._mine is not None:
            try:
                self._mine = await self._client.update(self._declaring(self._mine, view, left=left))
            except (Conflict, NotFound):
                self._mine = None
            else:
                return self._mine
        try:
            there = await self._client.get(Lease, self._lease.name, namespace=self._lease.namespace)
        except NotFound:
            metadata = ObjectMeta(name=self._lease.name, namespace=self._lease.namespace)
            self._mine = await self._client.create(self._declaring(Lease(metadata=metadata), view, left=left))
        else:
            self._mine = await self._client.update(self._declaring(there, view, left=left))
        return self._mine

    async def list(self) -> dict[str, Declared]:
        """What every member of the group declares, by identity, from the newest state (no resourceVersion: the API's "most recent")."""
        leases = await self._client.list(Lease, namespace=self._config.namespace, labels={GROUP_LABEL: self._config.group})
        self._found = {_member_of(lease): lease for lease in leases}
        return {member: declared_by(lease) for member, lease in self._found.items()}

    async def forget(self, member: str) -> None:
        """Delete the lease of one that is gone, if it is still as it was listed.

        Raises:
            Conflict: it is not. Forbidden: this program may not.
        """
        lease = self._found.get(member)
        if lease is not None:
            metadata = lease.metadata
            options = DeleteOptions(uid=metadata.uid, resource_version=metadata.resource_version)
            await self._client.delete(Lease, metadata.name, namespace=metadata.namespace, options=options)

    def _declaring(self, lease: Lease, view: frozenset[str], *, left: bool) -> Lease:
        now, before = self._clock.wall(), lease.spec
        lease = copy.deepcopy(lease)
        lease.spec = LeaseSpec(
            holder_identity="" if left else self._config.identity,
            lease_duration_seconds=1 if left else int(self._config.lease_duration),
            acquire_time=before.acquire_time or now,
            renew_time=now,
            lease_transitions=before.lease_transitions or 0,
        )
        lease.metadata.labels[GROUP_LABEL] = self._config.group
        lease.metadata.annotations.update({PROTOCOL_ANNOTATION: PROTOCOL, VIEW_ANNOTATION: json.dumps(sorted(view))})
        lease.metadata.annotations[MEMBER_ANNOTATION] = self._config.identity
        return lease


#: Whose lease it is; the holder is empty once it was given back.
MEMBER_ANNOTATION = "shards.kubeloop.dev/member"


def _member_of(lease: Lease) -> str:
    return lease.metadata.annotations.get(MEMBER_ANNOTATION) or lease.spec.holder_identity or lease.metadata.name


def declared_by(lease: Lease) -> Declared:
    """What a lease says. What cannot be understood may claim anything."""
    annotations = lease.metadata.annotations
    view: frozenset[str] | None = None
    if annotations.get(PROTOCOL_ANNOTATION) == PROTOCOL:
        try:
            names = json.loads(annotations.get(VIEW_ANNOTATION, ""))
        except ValueError:
            names = None
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            view = frozenset(names)
    left = not lease.spec.holder_identity
    # The version, not the time in it: a clock that stands still must not make a member look dead.
    return Declared(view, f"{lease.metadata.uid}/{lease.metadata.resource_version}", float(lease.spec.lease_duration_seconds or 0), left)
