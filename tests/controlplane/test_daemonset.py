"""DaemonSets by fake time: placement, rolling updates, history, ended pods, faults, thousands of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.apps.v1 import (
    ControllerRevision,
    DaemonSet,
    DaemonSetSpec,
    DaemonSetUpdateStrategy,
    RollingUpdateDaemonSet,
)
from kubeloop.api.core.v1 import Event, Node, Pod
from kubeloop.client import Client
from kubeloop.controller import controller_of
from kubeloop.controlplane.controller_utils import ReconcilePacer
from kubeloop.controlplane.scheduling.scheduler import Scheduler
from kubeloop.controlplane.workloads.daemonset import DaemonSetController
from kubeloop.controlplane.workloads.history import REVISION_LABEL
from kubeloop.meta import Forbidden, IntOrString, LabelSelector, ObjectKey, ObjectMeta, Status
from kubeloop.timing import FakeClock
from tests.controlplane.played_pods import set_phase, start_pods
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.workloads import pod, template


def daemon_set(name: str, *, pod_fields: dict[str, Any] | None = None, **spec: Any) -> DaemonSet:
    pods = template(name)
    for field, value in (pod_fields or {}).items():
        setattr(pods.spec, field, value)
    return DaemonSet(
        metadata=ObjectMeta(name=name), spec=DaemonSetSpec(selector=LabelSelector(match_labels={"app": name}), template=pods, **spec)
    )


def rolling(*, surge: IntOrString | None = None, unavailable: IntOrString | None = None) -> DaemonSetUpdateStrategy:
    update = RollingUpdateDaemonSet(max_surge=surge, max_unavailable=unavailable)
    return DaemonSetUpdateStrategy(type="RollingUpdate", rolling_update=update)


def is_rolled_out(daemon_set: DaemonSet) -> bool:
    status = daemon_set.status
    desired = status.desired_number_scheduled
    return (
        desired > 0
        and status.observed_generation == daemon_set.metadata.generation
        and (status.updated_number_scheduled or 0, status.number_available or 0) == (desired, desired)
    )


async def set_image(client: Client, image: str, name: str = "agent") -> None:
    change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}
    await client.patch(DaemonSet, name, change, type="strategic")


def target(pod: Pod) -> str:
    """The node that a pod runs on, or that its affinity names."""
    if pod.spec.node_name:
        return pod.spec.node_name
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.node_affinity is not None
    required = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert required is not None
    return required.node_selector_terms[0].match_fields[0].values[0]


async def placed(cluster: FakeTimeCluster) -> list[tuple[str, str | None]]:
    """Node and image of each pod."""
    pods = await cluster.client.list(Pod)
    return sorted((target(one), one.spec.containers[0].image) for one in pods if one.metadata.deletion_timestamp is None)


async def status(cluster: FakeTimeCluster, name: str = "agent") -> tuple[int | None, ...]:
    """Desired, current, ready, up to date, available, misscheduled."""
    found = (await cluster.client.get(DaemonSet, name)).status
    scheduled = (found.desired_number_scheduled, found.current_number_scheduled, found.number_ready)
    return (*scheduled, found.updated_number_scheduled or 0, found.number_available or 0, found.number_misscheduled)


async def messages(cluster: FakeTimeCluster, reason: str) -> list[str]:
    return sorted(str(one.message) for one in await cluster.client.list(Event) if one.reason == reason)


async def test_each_node_gets_a_pod_that_the_scheduler_binds_there() -> None:
    async with simulation(DaemonSetController(), Scheduler()) as cluster:
        for name in ("a", "b"):
            await cluster.add_node(name)
        await cluster.client.create(daemon_set("agent"))
        await start_pods(cluster)
        pods = await cluster.client.list(Pod)
        assert sorted(one.spec.node_name or "" for one in pods) == ["a", "b"]
        (revision,) = await cluster.client.list(ControllerRevision)
        labels = {"app": "agent", "pod-template-generation": "1", REVISION_LABEL: revision.metadata.labels[REVISION_LABEL]}
        assert [one.metadata.labels for one in pods] == [labels, labels]
        assert pods[0].metadata.generate_name == "agent-"
        assert {(one.key, one.effect) for one in pods[0].spec.tolerations} == {
            ("node.kubernetes.io/not-ready", "NoExecute"),
            ("node.kubernetes.io/unreachable", "NoExecute"),
            ("node.kubernetes.io/disk-pressure", "NoSchedule"),
            ("node.kubernetes.io/memory-pressure", "NoSchedule"),
            ("node.kubernetes.io/pid-pressure", "NoSchedule"),
            ("node.kubernetes.io/unschedulable", "NoSchedule"),
        }
        assert revision.metadata.name == f"agent-{labels[REVISION_LABEL]}"
        assert await status(cluster) == (2, 2, 2, 2, 2, 0)
        assert await messages(cluster, "SuccessfulCreate") == sorted(f"Created pod: {one.metadata.name}" for one in pods)
        await cluster.add_node("c")
        await start_pods(cluster)
        assert [node for node, _ in await placed(cluster)] == ["a", "b", "c"]


async def test_pods_leave_nodes_that_no_longer_fit_and_stay_where_a_taint_only_keeps_new_ones_away() -> None:
    async with simulation(DaemonSetController(), Scheduler()) as cluster:
        for name in ("a", "b", "c"):
            await cluster.add_node(name, labels={"role": "edge"})
        await cluster.client.create(daemon_set("agent", pod_fields={"node_selector": {"role": "edge"}}))
        await start_pods(cluster)
        await cluster.client.patch(Node, "a", {"metadata": {"labels": {"role": None}}})
        await cluster.client.patch(Node, "b", {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})
        await cluster.client.patch(Node, "c", {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}})
        await cluster.pass_time(5)
        pods = await cluster.client.list(Pod)
        assert [(one.spec.node_name, one.metadata.deletion_timestamp is not None) for one in sorted(pods, key=target)] == [
            ("a", True),
            ("b", False),
            ("c", True),
        ]
        found = (await cluster.client.get(DaemonSet, "agent")).status
        assert (found.desired_number_scheduled, found.number_misscheduled) == (0, 3)


async def test_an_update_replaces_as_many_pods_at_once_as_may_be_unavailable() -> None:
    async with simulation(DaemonSetController()) as cluster:
        for name in ("a", "b", "c", "d"):
            await cluster.add_node(name)
        await cluster.client.create(daemon_set("agent", update_strategy=rolling(unavailable="50%")))
        await start_pods(cluster)
        await set_image(cluster.client, "x:2")
        await cluster.pass_time(3)
        assert [image for _, image in await placed(cluster)] == ["x:2", "x:2", "x:1", "x:1"]
        assert await status(cluster) == (4, 4, 2, 2, 2, 0)
        await start_pods(cluster)
        assert {image for _, image in await placed(cluster)} == {"x:2"}
        assert is_rolled_out(await cluster.client.get(DaemonSet, "agent"))


async def test_a_surge_starts_the_new_pod_before_the_old_one_goes() -> None:
    async with simulation(DaemonSetController()) as cluster:
        for name in ("a", "b"):
            await cluster.add_node(name)
        await cluster.client.create(daemon_set("agent", update_strategy=rolling(surge=1, unavailable=0)))
        await start_pods(cluster)
        await set_image(cluster.client, "x:2")
        await cluster.pass_time(3)
        assert await placed(cluster) == [("a", "x:1"), ("a", "x:2"), ("b", "x:1")]
        await start_pods(cluster)
        assert await placed(cluster) == [("a", "x:2"), ("b", "x:2")]


async def test_on_delete_replaces_a_pod_only_when_the_user_deletes_it() -> None:
    async with simulation(DaemonSetController()) as cluster:
        for name in ("a", "b"):
            await cluster.add_node(name)
        await cluster.client.create(daemon_set("agent", update_strategy=DaemonSetUpdateStrategy(type="OnDelete")))
        await start_pods(cluster)
        await set_image(cluster.client, "x:2")
        await cluster.pass_time(5)
        assert await placed(cluster) == [("a", "x:1"), ("b", "x:1")]
        (chosen,) = [one for one in await cluster.client.list(Pod) if target(one) == "b"]
        await cluster.client.delete(chosen)
        await cluster.pass_time(5)
        assert await placed(cluster) == [("a", "x:1"), ("b", "x:2")]


async def test_a_rollback_uses_the_earlier_revision_and_old_ones_beyond_the_limit_go() -> None:
    async with simulation(DaemonSetController()) as cluster:
        await cluster.add_node("a")
        await cluster.client.create(daemon_set("agent", revision_history_limit=1))
        await start_pods(cluster)
        (first,) = await cluster.client.list(ControllerRevision)
        for image in ("x:2", "x:1", "x:3"):
            await set_image(cluster.client, image)
            await start_pods(cluster)
        revisions = {one.metadata.name: one.revision for one in await cluster.client.list(ControllerRevision)}
        assert revisions.pop(first.metadata.name) == 3
        assert list(revisions.values()) == [4]


async def test_a_failed_pod_is_replaced_with_growing_delays_and_a_succeeded_one_at_once() -> None:
    async with simulation(DaemonSetController()) as cluster:
        await cluster.add_node("a")
        await cluster.client.create(daemon_set("agent"))
        await cluster.pass_time(1)
        found: list[float] = []
        for _ in range(5):
            (current,) = await cluster.client.list(Pod)
            await set_phase(cluster, current.metadata.name, "Failed")
            begun = cluster.clock.now()
            await cluster.drive(cluster.client.wait_gone(Pod, current.metadata.name, timeout=100))
            found.append(round(cluster.clock.now() - begun))
            await cluster.pass_time(0.2)
        assert found == [0, 1, 2, 4, 8]
        (current,) = await cluster.client.list(Pod)
        await set_phase(cluster, current.metadata.name, "Succeeded")
        await cluster.pass_time(0.5)
        (again,) = await cluster.client.list(Pod)
        assert again.metadata.uid != current.metadata.uid
        text = f"Found succeeded daemon pod default/{current.metadata.name} on node a, will try to delete it"
        assert await messages(cluster, "SucceededDaemonPod") == [text]
        assert len(await messages(cluster, "FailedDaemonPod")) == 5


async def test_a_pod_is_available_after_min_ready_seconds() -> None:
    async with simulation(DaemonSetController()) as cluster:
        await cluster.add_node("a")
        await cluster.client.create(daemon_set("agent", min_ready_seconds=30))
        await start_pods(cluster)
        assert await status(cluster) == (1, 1, 1, 1, 0, 0)
        await cluster.pass_time(32)
        assert await status(cluster) == (1, 1, 1, 1, 1, 0)


async def test_orphans_are_adopted_and_pods_with_other_labels_released() -> None:
    async with simulation(DaemonSetController()) as cluster:
        await cluster.add_node("a")
        await cluster.client.create(pod("lonely", {"app": "agent"}, node_name="a"))
        made = await cluster.client.create(daemon_set("agent", update_strategy=DaemonSetUpdateStrategy(type="OnDelete")))
        await start_pods(cluster)
        (mine,) = await cluster.client.list(Pod)
        assert (mine.metadata.name, mine.metadata.owner_references[0].uid) == ("lonely", made.metadata.uid)
        assert await status(cluster) == (1, 1, 1, 0, 1, 0)
        await cluster.client.patch(Pod, "lonely", {"metadata": {"labels": {"app": "other"}}})
        await cluster.pass_time(5)
        assert controller_of(await cluster.client.get(Pod, "lonely")) is None
        assert len(await placed(cluster)) == 2
        await cluster.client.patch(Pod, "lonely", {"metadata": {"labels": {"app": "agent"}}})
        await cluster.pass_time(5)
        assert len(await placed(cluster)) == 1, "the pod that is adopted runs, so the one without a node goes"


async def test_pods_for_a_node_that_is_gone_before_they_are_scheduled_are_deleted() -> None:
    async with simulation(DaemonSetController()) as cluster:
        for name in ("a", "b"):
            await cluster.add_node(name)
        await cluster.client.create(daemon_set("agent"))
        await cluster.pass_time(2)
        await cluster.client.delete(Node, "b")
        await cluster.pass_time(2)
        assert [node for node, _ in await placed(cluster)] == ["a"]


async def test_equal_revisions_are_merged_and_unlabelled_ones_get_their_label() -> None:
    async with simulation(DaemonSetController()) as cluster:
        await cluster.add_node("a")
        await cluster.client.create(daemon_set("agent"))
        await start_pods(cluster)
        (first,) = await cluster.client.list(ControllerRevision)
        first.metadata.name, first.metadata.resource_version, first.revision = "agent-copy", "", 5
        first.metadata.labels = {"app": "agent"}
        await cluster.client.create(first)
        await cluster.pass_time(5)
        assert len([*await cluster.client.list(ControllerRevision)]) == 2, "as upstream, a new revision does not reconcile its owner"
        await cluster.client.patch(DaemonSet, "agent", {"metadata": {"annotations": {"n": "1"}}})
        await cluster.pass_time(5)
        (left,) = await cluster.client.list(ControllerRevision)
        assert (left.metadata.name, left.metadata.labels[REVISION_LABEL], left.revision) == ("agent-copy", "agent-copy", 5)
        (mine,) = await cluster.client.list(Pod)
        assert mine.metadata.labels[REVISION_LABEL] == "agent-copy"


async def test_a_taken_revision_name_raises_the_collision_count() -> None:
    async with simulation(DaemonSetController()) as cluster:
        await cluster.client.create(daemon_set("agent"))
        await cluster.pass_time(2)
        (first,) = await cluster.client.list(ControllerRevision)
        await cluster.stop()
        await cluster.client.delete(first)
        first.metadata.resource_version, first.metadata.owner_references, first.metadata.labels = "", [], {}
        first.data = {"other": True}
        await cluster.client.create(first)
        await cluster.start(DaemonSetController())
        await cluster.pass_time(5)
        found = {one.metadata.name for one in await cluster.client.list(ControllerRevision)}
        assert len(found) == 2
        assert (await cluster.client.get(DaemonSet, "agent")).status.collision_count == 1


async def test_a_refused_pod_is_reported_and_tried_again() -> None:
    async with simulation() as cluster:
        await cluster.add_node("a")
        quota = Forbidden(Status(reason="Forbidden", code=403, message="exceeded quota: pods"))
        cluster.faults.refuse(quota, times=3, matching=lambda request: request.method == "POST" and request.path.endswith("/pods"))
        await cluster.start(DaemonSetController())
        await cluster.client.create(daemon_set("agent"))
        await start_pods(cluster)
        assert await messages(cluster, "FailedCreate") == ["Error creating: exceeded quota: pods"]
        assert is_rolled_out(await cluster.client.get(DaemonSet, "agent"))


async def test_two_controllers_make_one_pod_for_each_node_and_come_to_rest() -> None:
    async with simulation(DaemonSetController()) as cluster:
        for number in range(5):
            await cluster.add_node(f"n{number}")
        await cluster.start(DaemonSetController())
        await cluster.client.create(daemon_set("agent"))
        await start_pods(cluster)
        await cluster.pass_time(60)
        assert [node for node, _ in await placed(cluster)] == [f"n{number}" for number in range(5)]
        cluster.faults.calls.clear()
        await cluster.pass_time(600)
        assert cluster.faults.writes == []


async def test_reconciles_of_large_sets_are_spaced_and_those_of_small_ones_are_not() -> None:
    clock = FakeClock()
    pacer, key = ReconcilePacer(clock), ObjectKey("", "shop", "agent")
    assert [pacer.seconds_left(key, 10) for _ in range(3)] == [0, 0, 0]
    assert pacer.seconds_left(key, 1000) == 0
    assert pacer.seconds_left(key, 1000) == pytest.approx(0.25)
    assert pacer.seconds_left(ObjectKey("", "shop", "other"), 50_000) == 0
    assert pacer.seconds_left(ObjectKey("", "shop", "other"), 50_000) == pytest.approx(1)
    await clock.advance(0.25)
    assert pacer.seconds_left(key, 1000) == 0
