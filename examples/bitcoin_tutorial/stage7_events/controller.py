"""The controller: also records Events, and reads the credentials of the daemons from a Secret."""

from __future__ import annotations

from collections.abc import Sequence

from examples.bitcoin_operator.rpc import Credentials, RpcError
from examples.bitcoin_tutorial.stage1_types.types import BitcoinNetwork
from examples.bitcoin_tutorial.stage4_stateful_set.resources import service_of, stateful_set_of
from examples.bitcoin_tutorial.stage6_mesh import controller as stage6
from kubeloop import NotFound
from kubeloop.api.apps.v1 import StatefulSet
from kubeloop.api.core.v1 import EnvFromSource, Secret, SecretEnvSource, Service
from kubeloop.controller import ChildrenReport

NAMES = {Service: "headless service", StatefulSet: "stateful set"}


class NetworkController(stage6.NetworkController, gets=[Secret]):
    """Also records Events, and reads the credentials of the daemons from a Secret."""

    def children_of(self, network: BitcoinNetwork) -> Sequence[Service | StatefulSet]:
        stateful_set = stateful_set_of(network)
        if network.spec.secret:
            (container,) = stateful_set.spec.template.spec.containers
            # Optional: without the Secret the daemons start with the credentials of their image.
            container.env_from = [EnvFromSource(secret_ref=SecretEnvSource(name=network.spec.secret, optional=True))]
        return [service_of(network), stateful_set]

    async def apply_children(self, network: BitcoinNetwork) -> ChildrenReport:
        before = self.owned(StatefulSet, network)
        report = await super().apply_children(network)
        for child in report.created:
            self.events.normal(network, "Info", f"Created {NAMES[child.kind]} for bitcoin network {network.metadata.name}")
        if before and before[0].spec.replicas != network.spec.nodes:
            self.events.normal(network, "Info", f"Adjusting number of replicas to {network.spec.nodes}")
        return report

    async def credentials_of(self, network: BitcoinNetwork) -> Credentials:
        if not network.spec.secret:
            return stage6.DEFAULT_CREDENTIALS
        try:
            # A read from the server: a cache of Secrets needs the right to list the Secrets of all users.
            secret = await self.client.get(Secret, network.spec.secret, namespace=network.metadata.namespace)
        except NotFound:
            self.events.warning(network, "SecretNotFound", f"Secret {network.spec.secret} does not exist")
            return stage6.DEFAULT_CREDENTIALS
        user, password = (bytes(secret.data.get(key, b"")).decode() for key in ("BC_RPC_USER", "BC_RPC_PASSWORD"))
        return Credentials(user, password)

    def report(self, network: BitcoinNetwork, error: RpcError) -> None:
        super().report(network, error)
        self.events.warning(network, "DaemonFailed", str(error))
