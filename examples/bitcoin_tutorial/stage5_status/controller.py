"""The controller: also writes the daemons of a network into its status."""

from __future__ import annotations

from collections.abc import Iterator

from examples.bitcoin_tutorial.stage1_types.types import BitcoinNetwork, BitcoinNode
from examples.bitcoin_tutorial.stage4_stateful_set import controller as stage4
from examples.bitcoin_tutorial.stage4_stateful_set.resources import service_name, stateful_set_name
from kubeloop import ObjectKey, Result
from kubeloop.api.core.v1 import Pod
from kubeloop.cache import Head
from kubeloop.controller import StatusWriter, WatchedKind


class NetworkController(stage4.NetworkController, watches=[WatchedKind(Pod, to="network_of")]):
    """Applies the children, then reports their pods."""

    def network_of(self, pod: Head) -> list[ObjectKey]:
        """Return the network of a pod: its StatefulSet is called NAME-sts."""
        owner = pod.controller
        if owner is None or owner.kind != "StatefulSet" or not owner.name.endswith("-sts"):
            return []
        return [ObjectKey("", pod.namespace, owner.name.removesuffix("-sts"))]

    async def reconcile(self, network: BitcoinNetwork) -> Result | None:
        await super().reconcile(network)
        network.status.nodes = list(self.nodes_of(network))
        written = await StatusWriter(self.client).write(network)
        if written.operation != "unchanged":
            ready = sum(node.ready for node in network.status.nodes)
            self.log.info("%s: %d of %d nodes are ready", network.metadata.name, ready, network.spec.nodes)
        return None

    def nodes_of(self, network: BitcoinNetwork) -> Iterator[BitcoinNode]:
        """Yield the daemons by ordinal. Pods with ordinals from ``spec.nodes`` on are being deleted, and are not shown."""
        for ordinal in range(network.spec.nodes):
            pod = self.lister(Pod).get(f"{stateful_set_name(network)}-{ordinal}", network.metadata.namespace)
            if pod is not None:
                yield BitcoinNode(
                    ordinal=ordinal,
                    ready=is_ready(pod),
                    ip=pod.status.pod_ip or "",
                    node_name=pod.metadata.name,
                    dns_name=f"{pod.metadata.name}.{service_name(network)}",
                )


def is_ready(pod: Pod) -> bool:
    """Return whether a pod is Ready and is not being deleted."""
    conditions = pod.status.conditions or []
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in conditions)
    return ready and pod.metadata.deletion_timestamp is None
