"""The Service and the StatefulSet of a network."""

from __future__ import annotations

from examples.bitcoin_tutorial.stage1_types.types import BitcoinNetwork
from examples.bitcoin_tutorial.stage3_deployment.controller import IMAGE
from kubeloop import ObjectMeta
from kubeloop.api.apps.v1 import StatefulSet, StatefulSetSpec
from kubeloop.api.core.v1 import (
    Container,
    EnvVar,
    EnvVarSource,
    ObjectFieldSelector,
    PodSpec,
    PodTemplateSpec,
    Probe,
    Service,
    ServiceSpec,
    TCPSocketAction,
)
from kubeloop.meta import LabelSelector

#: Port of the JSON-RPC interface of a daemon.
PORT = 18332


def service_name(network: BitcoinNetwork) -> str:
    return f"{network.metadata.name}-svc"


def stateful_set_name(network: BitcoinNetwork) -> str:
    return f"{network.metadata.name}-sts"


def service_of(network: BitcoinNetwork) -> Service:
    """Return the headless Service, which gives each pod a DNS name."""
    return Service(
        metadata=ObjectMeta(name=service_name(network), namespace=network.metadata.namespace),
        spec=ServiceSpec(cluster_ip="None", selector={"app": network.metadata.name}),
    )


def stateful_set_of(network: BitcoinNetwork) -> StatefulSet:
    """Return the StatefulSet, whose pods are called NAME-sts-0, NAME-sts-1 and so on."""
    labels = {"app": network.metadata.name}
    container = Container(
        name=f"{stateful_set_name(network)}-ctr",
        image=IMAGE,
        image_pull_policy="IfNotPresent",
        # A daemon listens on the address of its pod only: process pods share the network of their machine.
        env=[EnvVar(name="POD_IP", value_from=EnvVarSource(field_ref=ObjectFieldSelector(field_path="status.podIP")))],
        readiness_probe=Probe(tcp_socket=TCPSocketAction(port=PORT), period_seconds=1),
    )
    return StatefulSet(
        metadata=ObjectMeta(name=stateful_set_name(network), namespace=network.metadata.namespace),
        spec=StatefulSetSpec(
            replicas=network.spec.nodes,
            service_name=service_name(network),
            selector=LabelSelector(match_labels=labels),
            pod_management_policy="Parallel",
            template=PodTemplateSpec(metadata=ObjectMeta(labels=labels), spec=PodSpec(containers=[container])),
        ),
    )
