"""The scheduler by fake time: preemption, back-off, gates, profiles, late bindings, and kills between its writes."""

from __future__ import annotations

from collections.abc import Iterable
from unittest.mock import Mock

import pytest

from kubeloop.api.core.v1 import Event, Pod
from kubeloop.api.policy.v1 import PodDisruptionBudget
from kubeloop.api.scheduling.v1 import PriorityClass
from kubeloop.client import ALL_NAMESPACES
from kubeloop.controlplane.scheduling.configuration import configuration_from
from kubeloop.controlplane.scheduling.scheduler import Scheduler
from kubeloop.meta import InternalError
from kubeloop.serving.request import Request
from kubeloop.testing.calls import on
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.workloads import read

PREEMPTING = "default-scheduler: preempting to accommodate a higher priority pod"


def pod(name: str, cpu: str = "1", priority: int = 0, **spec: object) -> Pod:
    container = {"name": "c", "image": "x:1", "resources": {"requests": {"cpu": cpu}}}
    chosen = {"containers": [container], "priority": priority, "terminationGracePeriodSeconds": 0, **spec}
    return read(Pod, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": chosen})


async def places(cluster: FakeTimeCluster) -> dict[str, str]:
    """Return the node of each pod, or the reason of its condition PodScheduled."""
    found = {}
    async for one in cluster.client.list(Pod):
        why = next((each.reason or "" for each in one.status.conditions if each.type == "PodScheduled"), "")
        found[one.metadata.name] = one.spec.node_name or why
    return found


async def messages(cluster: FakeTimeCluster, reason: str) -> list[str]:
    events = [one async for one in cluster.client.list(Event, namespace=ALL_NAMESPACES)]
    return [one.message or "" for one in events if one.reason == reason]


async def condition(cluster: FakeTimeCluster, name: str, kind: str = "PodScheduled") -> tuple[str | None, str | None]:
    found = await cluster.client.get(Pod, name)
    return next(((one.reason, one.message) for one in found.status.conditions if one.type == kind), (None, None))


async def create(cluster: FakeTimeCluster, pods: Iterable[Pod]) -> None:
    for one in pods:
        await cluster.client.create(one)


async def priorities(cluster: FakeTimeCluster) -> None:
    """Create the classes of priorities that tests use; admission gives a pod the priority of its class."""
    for name, value in (("high", 1000), ("middle", 100)):
        document = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        await cluster.client.create(read(PriorityClass, document))


def important(name: str, cpu: str = "4", kind: str = "high", **spec: object) -> Pod:
    container = {"name": "c", "image": "x:1", "resources": {"requests": {"cpu": cpu}}}
    chosen = {"containers": [container], "priorityClassName": kind, "terminationGracePeriodSeconds": 0, **spec}
    return read(Pod, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": chosen})


async def test_a_pod_of_higher_priority_preempts_and_gets_the_node() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        await priorities(cluster)
        await create(cluster, [pod("low", "3")])
        await cluster.pass_time(5)
        await create(cluster, [important("high")])
        await cluster.pass_time(5)
        assert await places(cluster) == {"high": "n"}
        uid = (await cluster.client.get(Pod, "high")).metadata.uid
        assert await messages(cluster, "Preempted") == [f"Preempted by pod {uid} on node n"]
        assert await messages(cluster, "FailedScheduling") == ["0/1 nodes are available: 1 Insufficient cpu."]


async def test_a_pod_waits_for_its_nominated_node_until_its_victim_has_ended() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        await priorities(cluster)
        await create(cluster, [pod("low", "3")])
        await cluster.client.patch(Pod, "low", {"metadata": {"finalizers": ["example.com/wait"]}})
        await cluster.pass_time(5)
        await create(cluster, [important("high"), important("middle", "3", "middle")])
        await cluster.pass_time(5)
        waiting = await cluster.client.get(Pod, "high")
        assert (waiting.spec.node_name, waiting.status.nominated_node_name) == (None, "n")
        assert await condition(cluster, "low", "DisruptionTarget") == ("PreemptionByScheduler", PREEMPTING)
        await cluster.client.patch(Pod, "low", {"metadata": {"finalizers": None}})
        await cluster.pass_time(15)
        # The room is not for the pod of lower priority, which waits as well.
        assert await places(cluster) == {"high": "n", "middle": "Unschedulable"}


async def test_a_pod_whose_budget_is_exhausted_is_spared_where_another_one_is_not() -> None:
    async with simulation(Scheduler()) as cluster:
        for name in "ab":
            await cluster.add_node(name)
        await priorities(cluster)
        await create(cluster, [pod("guarded", "3", nodeName="a"), pod("other", "3", nodeName="b")])
        budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}}
        await cluster.client.create(read(PodDisruptionBudget, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **budget}))
        await cluster.pass_time(5)
        await create(cluster, [important("high")])
        await cluster.pass_time(5)
        assert await places(cluster) == {"guarded": "a", "high": "b"}


async def test_a_pod_that_never_preempts_waits() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        await priorities(cluster)
        await create(cluster, [pod("low", "3")])
        await cluster.pass_time(5)
        document = {"metadata": {"name": "never"}, "value": 5000, "preemptionPolicy": "Never"}
        await cluster.client.create(read(PriorityClass, {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **document}))
        await create(cluster, [important("high", kind="never")])
        await cluster.pass_time(5)
        assert await places(cluster) == {"low": "n", "high": "Unschedulable"}
        _, message = await condition(cluster, "high")
        postscript = "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."
        assert message == f"0/1 nodes are available: 1 Insufficient cpu. {postscript}"


async def test_a_refusal_that_is_written_late_does_not_follow_the_binding() -> None:
    async with simulation(Scheduler()) as cluster:
        cluster.faults.delay(20, matching=lambda request: request.method == "PATCH" and request.path.endswith("/pods/p/status"))
        await create(cluster, [pod("p")])
        await cluster.pass_time(5)
        await cluster.add_node("n")
        await cluster.pass_time(60)
        found = await cluster.client.get(Pod, "p")
        assert [(one.type, one.status) for one in found.status.conditions] == [("PodScheduled", "True")]


async def test_a_pod_that_waits_without_any_node_gets_the_first_one() -> None:
    async with simulation(Scheduler()) as cluster:
        await create(cluster, [pod("a"), pod("b")])
        await cluster.pass_time(5)
        assert await condition(cluster, "a") == ("Unschedulable", "no nodes available to schedule pods")
        await cluster.add_node("n1", cpu="1")
        await cluster.pass_time(15)
        assert sorted((await places(cluster)).values()) == ["Unschedulable", "n1"]
        assert (await condition(cluster, "b"))[1] != "no nodes available to schedule pods"


async def test_events_have_the_form_of_kube_schedulers() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n1")
        await create(cluster, [pod("a")])
        await cluster.pass_time(5)
        (event,) = [one async for one in cluster.client.list(Event)]
        assert (event.reporting_component, event.action, event.count) == ("default-scheduler", "Binding", None)
        assert event.event_time is not None


async def test_a_pod_with_gates_is_scheduled_when_they_are_gone() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, [pod("p", schedulingGates=[{"name": "example.com/wait"}])])
        await cluster.pass_time(600)
        assert await places(cluster) == {"p": "SchedulingGated"}
        await cluster.client.patch(Pod, "p", {"spec": {"schedulingGates": None}})
        await cluster.pass_time(1)
        assert await places(cluster) == {"p": "n"}


async def test_each_profile_schedules_the_pods_that_name_it() -> None:
    packing = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu"}]}}
    only_fit = {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}
    profiles = [
        {"schedulerName": "spreading", "plugins": {"score": only_fit}},
        {"schedulerName": "packing", "plugins": {"score": only_fit}, "pluginConfig": [{"name": "NodeResourcesFit", "args": packing}]},
    ]
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    async with simulation(Scheduler(configuration_from({**header, "profiles": profiles}))) as cluster:
        for name in "ab":
            await cluster.add_node(name)
        await create(cluster, [pod("first", nodeName="a")])
        await cluster.pass_time(1)
        await create(cluster, [pod("s", schedulerName="spreading"), pod("other")])
        await cluster.pass_time(1)
        await create(cluster, [pod("q", nodeName="a"), pod("p", schedulerName="packing")])
        await cluster.pass_time(1)
        assert await places(cluster) == {"first": "a", "q": "a", "s": "b", "p": "a", "other": ""}


async def test_a_node_counts_pods_whose_binding_is_still_on_its_way() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        release = cluster.faults.hold(matching=on("create", "pods/binding"))
        await create(cluster, [pod("a", "3"), pod("b", "3")])
        await cluster.pass_time(1)
        assert (await condition(cluster, "b"))[1] == (
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: "
            "1 No preemption victims found for incoming pod."
        )
        release()
        await cluster.pass_time(1)
        assert await places(cluster) == {"a": "n", "b": "Unschedulable"}


async def test_a_refused_binding_is_tried_again_after_its_back_off() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        cluster.faults.refuse(InternalError, times=1, matching=on("create", "pods/binding"))
        await create(cluster, [pod("p")])
        await cluster.pass_time(0.5)
        reason, message = await condition(cluster, "p")
        assert reason == "SchedulerError"
        assert (message or "").startswith('binding rejected: running Bind plugin "DefaultBinder":')
        await cluster.pass_time(1)
        assert await places(cluster) == {"p": "n"}


async def test_an_error_in_a_decision_is_reported_and_the_pod_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        defect = Mock(side_effect=ArithmeticError("a defect"))
        with monkeypatch.context() as broken:
            broken.setattr("kubeloop.controlplane.scheduling.scheduler.find_nodes", defect)
            await create(cluster, [pod("p")])
            await cluster.pass_time(0.5)
        assert await condition(cluster, "p") == ("SchedulerError", "a defect")
        await create(cluster, [pod("q")])
        await cluster.pass_time(1)
        assert await places(cluster) == {"p": "n", "q": "n"}


async def test_a_deleted_pod_makes_room_for_a_waiting_pod_and_events_that_cannot_help_try_nothing() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, [pod("a", "3")])
        await cluster.pass_time(1)
        await create(cluster, [pod("b", "3")])
        await cluster.pass_time(20)
        cluster.faults.calls.clear()
        await cluster.add_node("tainted", taints=[])
        await cluster.client.patch(Pod, "a", {"metadata": {"labels": {"x": "y"}}})
        await cluster.pass_time(1)
        assert await places(cluster) == {"a": "n", "b": "tainted"}
        await create(cluster, [pod("c", "3")])
        await cluster.pass_time(20)
        await cluster.client.delete(Pod, "a", grace_period_seconds=0)
        await cluster.pass_time(1)
        assert await places(cluster) == {"b": "tainted", "c": "n"}


async def test_a_namesake_of_a_deleted_pod_is_scheduled() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n", cpu="1")
        await create(cluster, [pod("p")])
        await cluster.pass_time(1)
        await cluster.client.delete(Pod, "p", grace_period_seconds=0)
        await create(cluster, [pod("p")])
        await cluster.pass_time(1)
        assert await places(cluster) == {"p": "n"}


async def test_a_preemption_that_fails_is_tried_again_with_back_off() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        await priorities(cluster)
        await create(cluster, [pod("low", "3")])
        await cluster.pass_time(5)
        cluster.faults.refuse(InternalError, times=1000, matching=on("delete", Pod))
        cluster.faults.calls.clear()
        await create(cluster, [important("high")])
        await cluster.pass_time(20)
        assert len([call for call in cluster.faults.calls if call.verb == "delete"]) in range(3, 7)


WRITES = ["the condition of its victim", "the deletion of its victim", "the status of the pod", "the binding"]


@pytest.mark.parametrize("after", range(4), ids=[f"before it wrote {one}" for one in WRITES])
async def test_a_scheduler_that_is_killed_is_continued_by_the_next(after: int) -> None:
    async with simulation() as cluster:
        await cluster.add_node("n")
        await priorities(cluster)
        await create(cluster, [pod("low", "3", nodeName="n"), important("high")])
        seen: list[str] = []

        def reaches(request: Request) -> bool:
            written = request.method in ("POST", "PATCH", "DELETE") and "/pods/" in request.path
            seen.extend([request.path] if written else [])
            return written and len(seen) > after

        cluster.faults.refuse(InternalError, times=1000, matching=reaches)
        await cluster.start(Scheduler())
        await cluster.pass_time(3)
        assert len(seen) > after
        assert await places(cluster) != {"high": "n"}
        await cluster.stop()
        after = 1_000_000
        await cluster.start(Scheduler())
        await cluster.pass_time(20)
        assert await places(cluster) == {"high": "n"}
