"""The controller: a Service and a StatefulSet for each network."""

from __future__ import annotations

from collections.abc import Sequence

from examples.bitcoin_tutorial.stage1_types.types import BitcoinNetwork
from examples.bitcoin_tutorial.stage4_stateful_set.resources import service_of, stateful_set_of
from kubeloop import Controller, Result
from kubeloop.api.apps.v1 import StatefulSet
from kubeloop.api.core.v1 import Service
from kubeloop.controller import Children, ChildrenReport


class NetworkController(Controller[BitcoinNetwork], owns=[Service, StatefulSet], workers=5, name="bitcoin-controller"):
    """Creates and repairs the children of a network."""

    def __init__(self) -> None:
        self.children = Children(self)

    async def reconcile(self, network: BitcoinNetwork) -> Result | None:
        await self.apply_children(network)
        return None

    def children_of(self, network: BitcoinNetwork) -> Sequence[Service | StatefulSet]:
        """Return the desired children of a network."""
        return [service_of(network), stateful_set_of(network)]

    async def apply_children(self, network: BitcoinNetwork) -> ChildrenReport:
        """Bring the children to their desired state. Raises ChildrenFailed."""
        report = await self.children.apply(network, self.children_of(network))
        for child in [*report.created, *report.updated]:
            self.log.info("%s %s: %s", child.kind.kind, child.name, child.did)
        return report
