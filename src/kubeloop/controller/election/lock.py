"""The Lease as a lock: reads and writes of records, and the object that they were read from."""

from __future__ import annotations

import copy

from kubeloop.api.coordination.v1 import Lease
from kubeloop.client import Client
from kubeloop.controller.election.config import LeaseConfig
from kubeloop.controller.election.record import LeaseRecord
from kubeloop.meta import KubeloopError, ObjectMeta


class LeaseLock:
    """One Lease. Each write is bound to the version last seen here: it is refused if anybody wrote in between.

    Annotations, labels of others and unknown fields of the Lease survive.
    """

    def __init__(self, client: Client, config: LeaseConfig) -> None:
        self._client = client
        self._config = config
        self.lease: Lease | None = None

    async def read(self) -> LeaseRecord:
        """What the server has now.

        Raises:
            NotFound: there is no such Lease.
        """
        self.lease = await self._client.get(Lease, self._config.name, namespace=self._config.namespace)
        return LeaseRecord.of(self.lease.spec)

    async def create(self, record: LeaseRecord) -> None:
        """Make the Lease.

        Raises:
            AlreadyExists: somebody was faster. NotFound: the namespace does not exist.
        """
        metadata = ObjectMeta(name=self._config.name, namespace=self._config.namespace, labels=dict(self._config.labels))
        self.lease = await self._client.create(Lease(metadata=metadata, spec=record.spec()))

    async def update(self, record: LeaseRecord) -> None:
        """Write over the version last seen.

        Raises:
            Conflict: somebody wrote in between. NotFound: the Lease was deleted.
        """
        if self.lease is None:
            raise KubeloopError(f"lease {self._config}: nothing was read or created yet")
        # A copy of its own document each time: a write that fails must not leave its values in what the next one starts from.
        changed = copy.deepcopy(self.lease)
        changed.spec = record.spec()
        changed.metadata.labels.update(self._config.labels)
        self.lease = await self._client.update(changed)
