"""Pods with volumes: they wait for their claims, go where their volumes are, and have volumes bound that wait for a pod."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from kubeloop.api.core.v1 import Event, PersistentVolume, PersistentVolumeClaim, Pod
from kubeloop.client import ALL_NAMESPACES
from kubeloop.controller import KeyController
from kubeloop.controlplane.scheduling.queue import QueuedPod, SchedulingQueue
from kubeloop.controlplane.scheduling.scheduler import Scheduler
from kubeloop.controlplane.storage.volume_binder import PersistentVolumeBinder
from kubeloop.meta import InternalError, ObjectKey, Resource
from kubeloop.testing.calls import on
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.storage import HOSTNAME, claim, storage_class, user, volume

NOT_HELPFUL = "no new claims to deallocate, preemption: 0/{0} nodes are available: {0} Preemption is not helpful for scheduling."
UNBOUND = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
LOCAL = storage_class("local", delayed=True)
DISKS = storage_class("disks", "example.com/disks", delayed=True)
SELECTED = "volume.kubernetes.io/selected-node"


async def create(cluster: FakeTimeCluster, *objects: Resource) -> None:
    for one in objects:
        await cluster.client.create(one)


async def place(cluster: FakeTimeCluster, name: str = "p") -> str:
    """Return the node of a pod, or why it has none."""
    found = await cluster.client.get(Pod, name)
    why = next(
        (f"{one.reason}: {one.message}" for one in found.status.conditions if one.type == "PodScheduled" and one.status == "False"), ""
    )
    return found.spec.node_name or why


async def nominated_node(cluster: FakeTimeCluster, name: str = "p") -> str:
    return (await cluster.client.get(Pod, name)).status.nominated_node_name or ""


async def volume_of(cluster: FakeTimeCluster, name: str) -> str | None:
    found = await cluster.client.get(PersistentVolumeClaim, name)
    return found.spec.volume_name if found.status.phase == "Bound" else None


async def test_a_pod_waits_until_its_claim_is_bound() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, claim(), user("p", "data"))
        await cluster.pass_time(590)
        assert await place(cluster) == f"Unschedulable: {UNBOUND}"
        # Without any event it is tried again after five minutes.
        assert ("FailedScheduling", UNBOUND, 2) in {
            (one.reason, one.message, one.series and one.series.count) for one in await cluster.client.list(Event, namespace=ALL_NAMESPACES)
        }
        await create(cluster, volume("v"))
        await cluster.pass_time(5)
        assert await place(cluster) == "n"


async def test_a_pod_goes_on_when_the_class_of_its_claim_is_created_after_it() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, claim(storageClassName="local"), user("p", "data"))
        await cluster.pass_time(5)
        assert await place(cluster) == f"Unschedulable: {UNBOUND}"
        await create(cluster, LOCAL, volume("v", storageClassName="local"))
        await cluster.pass_time(5)
        assert (await place(cluster), await volume_of(cluster, "data")) == ("n", "v")


async def test_a_pod_that_waits_for_its_claim_counts_the_nodes_that_are_added() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, claim(), user("p", "data"))
        await cluster.pass_time(5)
        await cluster.add_node("m")
        await cluster.pass_time(5)
        assert await place(cluster) == f"Unschedulable: {UNBOUND.replace('0/1', '0/2')}"


async def test_a_change_that_may_help_every_pod_tries_each_pod_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    pop = SchedulingQueue.pop

    def record(self: SchedulingQueue, now: float) -> QueuedPod | None:
        queued = pop(self, now)
        tried.extend([queued.facts.name] if queued is not None else [])
        return queued

    monkeypatch.setattr(SchedulingQueue, "pop", record)
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("n")
        names = [f"p{number}" for number in range(30)]
        for name in names:
            await create(cluster, claim(name), user(name, name))
        await cluster.pass_time(5)
        tried.clear()
        await create(cluster, LOCAL)
        await cluster.pass_time(60)
        assert sorted(tried) == sorted(names)


async def test_a_claim_that_its_author_marks_as_bound_lets_a_pod_go_on() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, volume("v"), claim(), user("p", "data"))
        await cluster.pass_time(5)
        await cluster.client.patch(PersistentVolumeClaim, "data", {"spec": {"volumeName": "v"}})
        await cluster.pass_time(5)
        assert await place(cluster) == f"Unschedulable: {UNBOUND}"
        await cluster.client.patch(PersistentVolumeClaim, "data", {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}})
        await cluster.pass_time(5)
        assert await place(cluster) == "n"


async def test_a_pod_goes_where_its_volume_is() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("a", labels={HOSTNAME: "a"})
        await create(cluster, volume("v", node="b"), claim(), user("p", "data"))
        await cluster.pass_time(5)
        other = f"0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity. {NOT_HELPFUL.format(1)}"
        assert await place(cluster) == f"Unschedulable: {other}"
        await cluster.add_node("b", labels={HOSTNAME: "b"})
        await cluster.pass_time(5)
        assert await place(cluster) == "b"


async def test_a_claim_that_waits_for_a_pod_gets_a_volume_on_the_node_of_the_pod() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        for name in "ab":
            await cluster.add_node(name, labels={HOSTNAME: name})
        await create(cluster, LOCAL, claim(storageClassName="local"), volume("v", node="b", storageClassName="local"))
        await cluster.pass_time(60)
        assert await volume_of(cluster, "data") is None
        await create(cluster, user("p", "data"))
        await cluster.pass_time(5)
        assert (await place(cluster), await volume_of(cluster, "data")) == ("b", "v")


async def test_each_claim_of_a_pod_gets_a_volume_and_the_smallest_claim_does_not_take_the_largest_volume() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("n")
        claims = [claim("large", "5Gi", storageClassName="local"), claim("small", storageClassName="local")]
        volumes = [volume("v9", "9Gi", storageClassName="local"), volume("v2", "2Gi", storageClassName="local")]
        await create(cluster, LOCAL, *claims, *volumes, user("p", "large", "small"))
        await cluster.pass_time(5)
        assert (await place(cluster), await volume_of(cluster, "large"), await volume_of(cluster, "small")) == ("n", "v9", "v2")


async def test_a_pod_whose_claim_waits_for_it_waits_until_a_volume_suits() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, LOCAL, claim(storageClassName="local"), user("p", "data"))
        await cluster.pass_time(5)
        none = f"0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind. {NOT_HELPFUL.format(1)}"
        assert await place(cluster) == f"Unschedulable: {none}"
        await create(cluster, volume("v", storageClassName="local"))
        await cluster.pass_time(5)
        assert (await place(cluster), await volume_of(cluster, "data")) == ("n", "v")


async def test_a_provisioner_finds_the_node_in_the_claim_and_the_pod_starts_there_with_the_volume_that_it_makes() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        for name in "ab":
            await cluster.add_node(name, labels={HOSTNAME: name})
        await create(cluster, DISKS, claim(storageClassName="disks"))
        await create(cluster, user("p", "data", nodeSelector={HOSTNAME: "b"}))
        await cluster.pass_time(5)
        made = await cluster.client.get(PersistentVolumeClaim, "data")
        assert made.metadata.annotations[SELECTED] == "b"
        assert made.metadata.annotations["volume.kubernetes.io/storage-provisioner"] == "example.com/disks"
        assert (await place(cluster), await nominated_node(cluster)) == ("", "b")
        reference = {"namespace": "default", "name": "data", "uid": made.metadata.uid}
        await create(cluster, volume("pvc-1", node="b", storageClassName="disks", claimRef=reference))
        await cluster.pass_time(5)
        assert (await place(cluster), await volume_of(cluster, "data")) == ("b", "pvc-1")
        assert await nominated_node(cluster) == ""


async def test_a_pod_without_volumes_to_bind_is_not_nominated() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, user("p"))
        await cluster.pass_time(5)
        assert await place(cluster) == "n"
        assert [call.verb for call in cluster.faults.writes if call.resource.resource == "pods"] == ["create", "create"]


async def test_a_pod_is_bound_although_its_nomination_cannot_be_written() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("n", labels={HOSTNAME: "n"})
        await create(cluster, LOCAL, volume("v", node="n", storageClassName="local"), claim(storageClassName="local"))
        cluster.faults.refuse(InternalError, matching=on("patch", Pod))
        await create(cluster, user("p", "data"))
        await cluster.pass_time(5)
        assert await place(cluster) == "n"


async def test_a_nomination_ends_with_the_failure_of_the_binding_and_other_pods_get_the_room() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler(), Provisioner("n")) as cluster:
        await cluster.add_node("n", labels={HOSTNAME: "n"})
        await create(cluster, DISKS, claim(storageClassName="disks"), user("p", "data"))
        await cluster.pass_time(0.5)
        assert await place(cluster) == f'{FAILED}provisioning failed for PVC "data"'
        assert await nominated_node(cluster) == ""


class Provisioner(KeyController[PersistentVolumeClaim], name="provisioner"):
    """Makes volumes for the nodes of claims. It removes a node for which it can make none, so that the scheduler chooses another one."""

    def __init__(self, *unreachable: str) -> None:
        self._unreachable = unreachable
        self.refusals: list[tuple[str, float]] = []

    async def reconcile(self, key: ObjectKey) -> None:
        found = self.lister(PersistentVolumeClaim).by_key(key)
        node = found.metadata.annotations.pop(SELECTED, "") if found is not None else ""
        if found is None or not node or found.spec.volume_name:
            return
        if node in self._unreachable:
            await self.client.update(found)
            self.refusals.append((node, self.clock.now()))
        else:
            reference = {"namespace": found.metadata.namespace, "name": found.metadata.name, "uid": found.metadata.uid}
            await self.client.create(volume("made", node=node, storageClassName="disks", claimRef=reference))


FAILED = 'SchedulerError: running PreBind plugin "VolumeBinding": binding volumes: '


async def test_a_pod_gets_another_node_when_the_provisioner_refuses_the_first() -> None:
    provisioner = Provisioner("a")
    async with simulation(PersistentVolumeBinder(), Scheduler(), provisioner) as cluster:
        for name in "ab":
            await cluster.add_node(name, labels={HOSTNAME: name})
        await create(cluster, DISKS, claim(storageClassName="disks"), user("p", "data"))
        await cluster.pass_time(0.5)
        assert await place(cluster) == f'{FAILED}provisioning failed for PVC "data"'
        await cluster.pass_time(5)
        assert (await place(cluster), await volume_of(cluster, "data")) == ("b", "made")
        assert [node for node, _ in provisioner.refusals] == ["a"]


async def test_refused_nodes_are_tried_in_turn_with_back_off() -> None:
    provisioner = Provisioner("a", "b")
    async with simulation(PersistentVolumeBinder(), Scheduler(), provisioner) as cluster:
        for name in "ab":
            await cluster.add_node(name, labels={HOSTNAME: name})
        await create(cluster, DISKS, claim(storageClassName="disks"), user("p", "data"))
        await cluster.pass_time(30)
        nodes, times = zip(*provisioner.refusals, strict=True)
        assert nodes == ("a", "b", "a", "b", "a", "b")
        assert [round(after - before) for before, after in itertools.pairwise(times)] == [1, 2, 4, 8, 10]
        await cluster.add_node("c", labels={HOSTNAME: "c"})
        await cluster.pass_time(10)
        assert await place(cluster) == "c"


async def test_a_pod_has_no_room_on_the_node_that_the_provisioner_refused() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler(), Provisioner("n")) as cluster:
        await cluster.add_node("n", cpu="1")
        wanted = [{"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "1"}}}]
        await create(cluster, DISKS, claim(storageClassName="disks"), user("p", "data", containers=wanted))
        await cluster.pass_time(0.5)
        await create(cluster, user("q", containers=wanted))
        await cluster.pass_time(0.1)
        assert await place(cluster, "q") == "n"


async def test_a_provisioner_may_refuse_a_node_after_the_scheduler_was_started_again() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        for name in "ab":
            await cluster.add_node(name, labels={HOSTNAME: name})
        await create(cluster, DISKS, claim(storageClassName="disks"), user("p", "data"))
        await cluster.pass_time(5)
        await cluster.stop()
        await cluster.start(Scheduler(), PersistentVolumeBinder())
        await cluster.pass_time(5)
        provisioner = Provisioner("a")
        await cluster.start(provisioner)
        await cluster.pass_time(0.5)
        assert await place(cluster) == f'{FAILED}provisioning failed for PVC "data"'
        await cluster.pass_time(5)
        assert (await place(cluster), [node for node, _ in provisioner.refusals]) == ("b", ["a"])


async def test_a_claim_that_waits_in_a_late_cache_is_not_taken_for_refused() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        for name in "ab":
            await cluster.add_node(name, labels={HOSTNAME: name})
        await create(cluster, DISKS, claim(storageClassName="disks"))
        await cluster.pass_time(5)
        async with cluster.faults.hidden_changes(matching=on("watch", PersistentVolumeClaim)):
            await create(cluster, user("p", "data"))
            await cluster.pass_time(120)
            await cluster.add_node("c")
            await cluster.pass_time(5)
            assert await place(cluster) == ""
        made = await cluster.client.get(PersistentVolumeClaim, "data")
        assert made.metadata.annotations[SELECTED] == "a"


async def test_a_volume_that_is_reserved_in_a_late_cache_is_not_taken_for_reset() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("a")
        await create(cluster, LOCAL, claim(storageClassName="local"))
        made = await cluster.client.create(volume("v", storageClassName="local"))
        made.status.phase = "Available"
        await cluster.client.update_status(made)
        await cluster.pass_time(5)
        async with cluster.faults.hidden_changes(matching=on("watch", PersistentVolume)):
            await create(cluster, user("p", "data"))
            await cluster.pass_time(120)
            await cluster.add_node("c")
            await cluster.pass_time(5)
            assert await place(cluster) == ""


async def test_a_volume_whose_reservation_is_removed_fails_the_pod_until_it_is_reserved_again() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, LOCAL, claim(storageClassName="local"))
        made = await cluster.client.create(volume("v", storageClassName="local"))
        made.status.phase = "Available"
        await cluster.client.update_status(made)
        await create(cluster, user("p", "data"))
        await cluster.pass_time(5)
        await cluster.client.patch(PersistentVolume, "v", {"spec": {"claimRef": None}})
        await cluster.pass_time(0.5)
        assert await place(cluster) == f'{FAILED}ClaimRef got reset for pv "v"'
        await cluster.pass_time(1)
        assert (await cluster.client.get(PersistentVolume, "v")).spec.claim_ref is not None


async def test_a_pod_whose_volumes_are_not_bound_in_time_goes_to_another_node() -> None:
    async with simulation(Scheduler()) as cluster:
        for name in "ab":
            await cluster.add_node(name, labels={HOSTNAME: name})
        await create(cluster, LOCAL, claim(storageClassName="local"))
        made = await cluster.client.create(volume("v", storageClassName="local"))
        made.status.phase = "Available"
        await cluster.client.update_status(made)
        wanted = [{"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "4"}}}]
        await create(cluster, user("p", "data", containers=wanted))
        await cluster.pass_time(605)
        await create(cluster, user("q", containers=wanted))
        await cluster.pass_time(5)
        assert await place(cluster, "q") == "a"


async def test_a_pod_says_so_when_its_volumes_are_not_bound_within_ten_minutes() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, DISKS, claim(storageClassName="disks"), user("p", "data"))
        await cluster.pass_time(590)
        assert await place(cluster) == ""
        await cluster.pass_time(20)
        assert await place(cluster) == 'SchedulerError: running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
        cluster.faults.calls.clear()
        await cluster.pass_time(3600)
        # Each further attempt takes ten minutes again; an Event counts it, and the pod is nominated to the node meanwhile.
        writes = Counter(call.resource.resource for call in cluster.faults.writes)
        assert set(writes) == {"events", "pods"}
        assert writes["pods"] in (10, 11, 12)


async def test_a_pod_that_waits_for_its_volumes_has_its_room_on_the_node() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("n", cpu="1")
        wanted = [{"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "1"}}}]
        await create(cluster, DISKS, claim(storageClassName="disks"))
        await create(cluster, user("p", "data", containers=wanted))
        await cluster.pass_time(5)
        await create(cluster, user("q", containers=wanted))
        await cluster.pass_time(5)
        assert "Insufficient cpu" in await place(cluster, "q")
        await cluster.client.delete(Pod, "p", grace_period_seconds=0)
        await cluster.pass_time(5)
        assert await place(cluster, "q") == "n"


async def test_a_scheduler_that_is_killed_after_it_reserved_a_volume_is_continued_by_the_next() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, LOCAL, claim(storageClassName="local"))
        made = await cluster.client.create(volume("v", storageClassName="local"))
        made.status.phase = "Available"
        await cluster.client.update_status(made)
        await create(cluster, user("p", "data"))
        await cluster.pass_time(5)
        reserved = (await cluster.client.get(PersistentVolume, "v")).spec.claim_ref
        assert reserved is not None
        assert reserved.name == "data"
        await cluster.stop()
        await cluster.start(Scheduler(), PersistentVolumeBinder())
        await cluster.pass_time(5)
        assert (await place(cluster), await volume_of(cluster, "data")) == ("n", "v")


async def test_pods_that_share_a_claim_are_all_placed() -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, LOCAL, claim(storageClassName="local"), volume("v", storageClassName="local"))
        await create(cluster, user("p", "data"), user("q", "data"))
        await cluster.pass_time(5)
        assert [await place(cluster, name) for name in "pq"] == ["n", "n"]


@pytest.mark.parametrize("times", [1, 3])
async def test_a_refused_reservation_is_tried_again(times: int) -> None:
    async with simulation(PersistentVolumeBinder(), Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, LOCAL, claim(storageClassName="local"), volume("v", storageClassName="local"))
        await cluster.pass_time(5)
        cluster.faults.refuse(InternalError, times=times, matching=on("update", PersistentVolume))
        await create(cluster, user("p", "data"))
        await cluster.pass_time(30)
        assert (await place(cluster), await volume_of(cluster, "data")) == ("n", "v")


async def test_a_volume_that_another_claim_gets_meanwhile_is_not_taken_away_from_it() -> None:
    async with simulation(Scheduler()) as cluster:
        await cluster.add_node("n")
        await create(cluster, LOCAL, claim("first", storageClassName="local"), claim("second", "2Gi", storageClassName="local"))
        for name, size in (("v1", "1Gi"), ("v2", "2Gi")):
            made = await cluster.client.create(volume(name, size, storageClassName="local"))
            made.status.phase = "Available"
            await cluster.client.update_status(made)
        await cluster.pass_time(5)
        release = cluster.faults.hold(matching=on("update", PersistentVolume, name="v1"))
        await create(cluster, user("p", "first", "second"))
        await cluster.pass_time(1)
        other = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "other", "uid": "u"}
        await cluster.client.patch(PersistentVolume, "v2", {"spec": {"claimRef": other}})
        await cluster.pass_time(1)
        release()
        await cluster.pass_time(5)
        found = (await cluster.client.get(PersistentVolume, "v2")).spec.claim_ref
        assert found is not None
        assert found.name == "other"
        assert "didn't find available persistent volumes to bind" in await place(cluster)
