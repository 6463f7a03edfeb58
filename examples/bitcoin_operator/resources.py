"""The Service and the StatefulSet of a network, and the entries of its status."""

from __future__ import annotations

from examples.bitcoin_operator.types import BitcoinNetwork, BitcoinNode
from kubeloop.api.apps.v1 import StatefulSet, StatefulSetSpec
from kubeloop.api.core.v1 import (
    Container,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    ExecAction,
    ObjectFieldSelector,
    Pod,
    PodSpec,
    PodTemplateSpec,
    Probe,
    SecretEnvSource,
    Service,
    ServiceSpec,
)
from kubeloop.meta import LabelSelector, ObjectMeta

IMAGE = "christianb93/bitcoind:v1.0"
#: The version of the Secret with which a pod was started. A changed Secret changes it, so that the StatefulSet replaces the pods.
SECRET_VERSION = "bitcoincontroller.christianb93.github.com/secret-version"
READINESS = ["bitcoin-cli", "-regtest", "-conf=/bitcoin.conf", "getnetworkinfo"]


def service_name(network: BitcoinNetwork) -> str:
    return f"{network.metadata.name}-svc"


def stateful_set_name(network: BitcoinNetwork) -> str:
    return f"{network.metadata.name}-sts"


def service_of(network: BitcoinNetwork) -> Service:
    """Return the headless Service, which gives each pod a DNS name. It has no ports: clients use the daemons' own."""
    return Service(
        metadata=ObjectMeta(name=service_name(network), namespace=network.metadata.namespace),
        spec=ServiceSpec(cluster_ip="None", selector={"app": network.metadata.name}),
    )


def stateful_set_of(network: BitcoinNetwork, secret_version: str) -> StatefulSet:
    """Return the StatefulSet of the daemons. ``secret_version`` is that of the Secret that the pods are started with; empty: none."""
    labels = {"app": network.metadata.name}
    container = Container(
        name=f"{stateful_set_name(network)}-ctr",
        image=IMAGE,
        image_pull_policy="IfNotPresent",
        # A daemon listens on the address of its pod only: pods of one machine may share a network (docs/process-pods.md).
        # The server adds "v1" to a fieldRef without it, and a fieldRef is compared as a whole: each start would send the StatefulSet again.
        env=[EnvVar(name="POD_IP", value_from=EnvVarSource(field_ref=ObjectFieldSelector(api_version="v1", field_path="status.podIP")))],
        readiness_probe=Probe(exec=ExecAction(command=READINESS), initial_delay_seconds=5, period_seconds=5),
    )
    if network.spec.secret:
        container.env_from = [EnvFromSource(secret_ref=SecretEnvSource(name=network.spec.secret, optional=True))]
    annotations = {SECRET_VERSION: secret_version} if network.spec.secret else {}
    return StatefulSet(
        metadata=ObjectMeta(name=stateful_set_name(network), namespace=network.metadata.namespace),
        spec=StatefulSetSpec(
            replicas=network.spec.nodes,
            service_name=service_name(network),
            selector=LabelSelector(match_labels=labels),
            # The daemons do not depend on each other's order, and a network forms in the time of one daemon.
            pod_management_policy="Parallel",
            template=PodTemplateSpec(metadata=ObjectMeta(labels=labels, annotations=annotations), spec=PodSpec(containers=[container])),
        ),
    )


def is_ready(pod: Pod) -> bool:
    """Return whether a pod is Ready, has an address and is not being deleted: a terminating pod leaves the network at once."""
    conditions = pod.status.conditions or []
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in conditions)
    return ready and bool(pod.status.pod_ip) and pod.metadata.deletion_timestamp is None


def node_of(network: BitcoinNetwork, ordinal: int, pod: Pod) -> BitcoinNode:
    """Return the status entry of a pod."""
    return BitcoinNode(
        ordinal=ordinal,
        ready=is_ready(pod),
        ip=pod.status.pod_ip or "",
        node_name=pod.metadata.name,
        dns_name=f"{pod.metadata.name}.{service_name(network)}",
    )
