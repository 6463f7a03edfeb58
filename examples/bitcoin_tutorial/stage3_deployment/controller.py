"""The controller: a Deployment with as many pods as a network has nodes."""

from __future__ import annotations

from examples.bitcoin_tutorial.stage1_types.types import BitcoinNetwork
from kubeloop import Controller, ObjectMeta, set_controller_reference
from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.core.v1 import Container, PodSpec, PodTemplateSpec
from kubeloop.meta import LabelSelector

IMAGE = "christianb93/bitcoind:v1.0"


class NetworkController(Controller[BitcoinNetwork], owns=[Deployment], workers=5, name="bitcoin-controller"):
    """Creates the Deployment of a network, and keeps its number of replicas."""

    async def reconcile(self, network: BitcoinNetwork) -> None:
        deployments = self.owned(Deployment, network)
        if not deployments:
            await self.client.create(deployment_of(network))
            self.log.info("Created deployment %s", network.metadata.name)
            return
        (deployment,) = deployments
        if deployment.spec.replicas != network.spec.nodes:
            self.log.info("Adjusting number of replicas from %s to %s", deployment.spec.replicas, network.spec.nodes)
            deployment.spec.replicas = network.spec.nodes
            await self.client.update(deployment)


def deployment_of(network: BitcoinNetwork) -> Deployment:
    """Return the desired Deployment."""
    labels = {"app": network.metadata.name}
    deployment = Deployment(
        metadata=ObjectMeta(name=network.metadata.name, namespace=network.metadata.namespace),
        spec=DeploymentSpec(
            replicas=network.spec.nodes,
            selector=LabelSelector(match_labels=labels),
            template=PodTemplateSpec(
                metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[Container(name="bitcoind", image=IMAGE)])
            ),
        ),
    )
    set_controller_reference(network, deployment)
    return deployment
