"""Controllers that are killed between any two writes, or run twice, reach the state of a controller that is never killed."""

from __future__ import annotations

from typing import Literal

import pytest

from kubeloop.api.apps.v1 import ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet
from kubeloop.api.core.v1 import (
    ConfigMap,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    ReplicationController,
    ResourceQuota,
    ResourceQuotaSpec,
    ServiceAccount,
)
from kubeloop.api.policy.v1 import PodDisruptionBudget, PodDisruptionBudgetSpec
from kubeloop.api.rbac.v1 import AggregationRule, ClusterRole, PolicyRule
from kubeloop.controller import set_controller_reference
from kubeloop.controlplane.accounts.service_accounts import ClusterRoleAggregator, RootCertificatePublisher, ServiceAccountController
from kubeloop.controlplane.garbage_collection.garbage_collector import GarbageCollector
from kubeloop.controlplane.garbage_collection.namespace import NamespaceController
from kubeloop.controlplane.nodes.pod_gc import PodGarbageCollector
from kubeloop.controlplane.policy.disruption import DisruptionController
from kubeloop.controlplane.policy.quota import QuotaController
from kubeloop.controlplane.storage.volume_binder import PersistentVolumeBinder
from kubeloop.controlplane.storage.volumes import ClaimProtectionController, EphemeralVolumeController, VolumeProtectionController
from kubeloop.controlplane.workloads.daemonset import DaemonSetController
from kubeloop.controlplane.workloads.deployment import DeploymentController
from kubeloop.controlplane.workloads.replicaset import ReplicaSetController, ReplicationManager
from kubeloop.controlplane.workloads.statefulset import StatefulSetController
from kubeloop.meta import LabelSelector, ObjectMeta, Quantity, Resource
from tests.controlplane.kills import KillScenario, ReadyPods, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster
from tests.controlplane.storage import claim, volume
from tests.controlplane.test_daemonset import daemon_set
from tests.controlplane.test_replication_controller import replication_controller
from tests.controlplane.test_statefulset import retention, stateful_set
from tests.controlplane.workloads import deployment, pod, read, replica_set


async def scale_replica_set(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(replica_set("r", 2))
    await cluster.pass_time(5)
    await cluster.client.set_scale(ReplicaSet, "r", 1)


async def roll_deployment(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(deployment("d", 1))
    await cluster.pass_time(10)
    await cluster.client.patch(Deployment, "d", {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})


async def scale_replication_controller(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(replication_controller("r", 2))
    await cluster.pass_time(5)
    await cluster.client.set_scale(ReplicationController, "r", 1)


async def roll_stateful_set(cluster: FakeTimeCluster) -> None:
    policy = retention("Delete", "Retain")
    await cluster.client.create(stateful_set("s", 2, claims=["data"], persistent_volume_claim_retention_policy=policy))
    await cluster.pass_time(10)
    await cluster.client.patch(StatefulSet, "s", {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})
    await cluster.pass_time(20)
    await cluster.client.set_scale(StatefulSet, "s", 1)


async def roll_daemon_set(cluster: FakeTimeCluster) -> None:
    for name in ("a", "b"):
        await cluster.add_node(name)
    await cluster.client.create(daemon_set("d"))
    await cluster.pass_time(10)
    await cluster.client.patch(DaemonSet, "d", {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})


async def delete_namespace(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(Namespace(metadata=ObjectMeta(name="shop")))
    for number in range(2):
        await cluster.client.create(ConfigMap(metadata=ObjectMeta(name=f"c{number}", namespace="shop")))
    await cluster.client.create(pod("p"), namespace="shop")
    await cluster.pass_time(5)
    await cluster.client.delete(Namespace, "shop")


async def delete_owners(cluster: FakeTimeCluster) -> None:
    """Delete three owners, each with a child: in the background, in the foreground, and as orphans."""
    owners = []
    policies: tuple[Literal["Background", "Foreground", "Orphan"], ...] = ("Background", "Foreground", "Orphan")
    for policy in policies:
        owner = await cluster.client.create(ConfigMap(metadata=ObjectMeta(name=policy.lower())))
        child = ConfigMap(metadata=ObjectMeta(name=f"{policy.lower()}-child", namespace="default"))
        set_controller_reference(owner, child)
        await cluster.client.create(child)
        owners.append((owner, policy))
    await cluster.pass_time(5)
    for owner, policy in owners:
        await cluster.client.delete(ConfigMap, owner.metadata.name, propagation_policy=policy)


async def create_namespaces(cluster: FakeTimeCluster) -> None:
    for name in ("one", "two"):
        await cluster.client.create(Namespace(metadata=ObjectMeta(name=name)))
    await cluster.pass_time(5)
    await cluster.client.delete(ServiceAccount, "default", namespace="one")


async def count_quota(cluster: FakeTimeCluster) -> None:
    hard = {"pods": Quantity("5"), "count/configmaps": Quantity("5")}
    await cluster.client.create(ResourceQuota(metadata=ObjectMeta(name="q"), spec=ResourceQuotaSpec(hard=hard)))
    await cluster.pass_time(5)
    for name in ("a", "b"):
        await cluster.client.create(pod(name))
    await cluster.pass_time(5)
    await cluster.client.delete(Pod, "a")


async def guard_pods(cluster: FakeTimeCluster) -> None:
    for name in ("a", "b"):
        await cluster.client.create(pod(name, {"app": "web"}))
    spec = PodDisruptionBudgetSpec(min_available=1, selector=LabelSelector(match_labels={"app": "web"}))
    await cluster.client.create(PodDisruptionBudget(metadata=ObjectMeta(name="b"), spec=spec))
    await cluster.pass_time(5)
    await cluster.client.delete(Pod, "a")


async def bind_and_release(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(volume("kept"))
    await cluster.client.create(volume("removed", persistentVolumeReclaimPolicy="Delete", source={"hostPath": {"path": "/tmp/x"}}))
    await cluster.pass_time(5)
    for name in ("kept", "removed"):
        await cluster.client.create(claim(name, volumeName=name))
    await cluster.pass_time(20)
    for name in ("kept", "removed"):
        await cluster.client.delete(PersistentVolumeClaim, name)


async def create_ephemeral_volume(cluster: FakeTimeCluster) -> None:
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    volumes = [{"name": name, "ephemeral": {"volumeClaimTemplate": template}} for name in ("a", "b")]
    document = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}], "volumes": volumes}}
    await cluster.client.create(read(Pod, document))


async def aggregate_roles(cluster: FakeTimeCluster) -> None:
    rules = [PolicyRule(verbs=["get"], api_groups=[""], resources=[resource]) for resource in ("pods", "secrets")]
    selected = AggregationRule(cluster_role_selectors=[LabelSelector(match_labels={"for": "all"})])
    await cluster.client.create(ClusterRole(metadata=ObjectMeta(name="all"), aggregation_rule=selected))
    for number, rule in enumerate(rules):
        await cluster.client.create(ClusterRole(metadata=ObjectMeta(name=f"part-{number}", labels={"for": "all"}), rules=[rule]))
        await cluster.pass_time(5)
    await cluster.client.delete(ClusterRole, "part-0")


async def lose_node(cluster: FakeTimeCluster) -> None:
    await cluster.add_node("n")
    for name in ("a", "b"):
        await cluster.client.create(pod(name, node_name="n"))
    await cluster.pass_time(5)
    await cluster.client.delete(Node, "n")
    await cluster.pass_time(120)


COLLECTED: list[type[Resource]] = [ConfigMap, Pod, ReplicaSet]

SCENARIOS = [
    pytest.param(KillScenario(lambda: [ReplicaSetController()], scale_replica_set, (ReplicaSet, Pod)), id="ReplicaSet"),
    pytest.param(
        KillScenario(
            lambda: [DeploymentController(), ReplicaSetController()],
            roll_deployment,
            (Deployment, ReplicaSet, Pod),
            companions=lambda: [ReadyPods()],
        ),
        id="Deployment",
    ),
    pytest.param(
        KillScenario(lambda: [ReplicationManager()], scale_replication_controller, (ReplicationController, Pod)),
        id="ReplicationController",
    ),
    pytest.param(
        KillScenario(
            lambda: [StatefulSetController()],
            roll_stateful_set,
            (StatefulSet, ControllerRevision, Pod, PersistentVolumeClaim),
            companions=lambda: [ReadyPods()],
        ),
        id="StatefulSet",
    ),
    pytest.param(
        KillScenario(
            lambda: [DaemonSetController()], roll_daemon_set, (DaemonSet, ControllerRevision, Pod), companions=lambda: [ReadyPods()]
        ),
        id="DaemonSet",
    ),
    pytest.param(KillScenario(lambda: [NamespaceController()], delete_namespace, (Namespace, ConfigMap, Pod)), id="namespace"),
    pytest.param(KillScenario(lambda: [GarbageCollector(COLLECTED)], delete_owners, (ConfigMap,)), id="garbage collector"),
    pytest.param(
        KillScenario(
            lambda: [ServiceAccountController(), RootCertificatePublisher("authority")],
            create_namespaces,
            (Namespace, ServiceAccount, ConfigMap),
        ),
        id="service accounts",
    ),
    pytest.param(KillScenario(lambda: [ClusterRoleAggregator()], aggregate_roles, (ClusterRole,)), id="aggregated roles"),
    pytest.param(KillScenario(lambda: [PodGarbageCollector()], lose_node, (Node, Pod)), id="pods of a node that is gone"),
    pytest.param(KillScenario(lambda: [QuotaController()], count_quota, (ResourceQuota,)), id="quota"),
    pytest.param(
        KillScenario(lambda: [DisruptionController()], guard_pods, (PodDisruptionBudget,), companions=lambda: [ReadyPods()]),
        id="disruption",
    ),
    pytest.param(
        KillScenario(
            lambda: [PersistentVolumeBinder(), ClaimProtectionController(), VolumeProtectionController()],
            bind_and_release,
            (PersistentVolume, PersistentVolumeClaim),
        ),
        id="volumes",
    ),
    pytest.param(
        KillScenario(lambda: [EphemeralVolumeController()], create_ephemeral_volume, (Pod, PersistentVolumeClaim)), id="ephemeral volumes"
    ),
]


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_controllers_survive_a_kill_after_each_write_and_a_second_replica(scenario: KillScenario) -> None:
    assert len(await assert_survives_kills(scenario)) > 1
