"""StatefulSets over an API server and by fake time: order, revisions, claims, faults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeloop.api.apps.v1 import (
    ControllerRevision,
    RollingUpdateStatefulSetStrategy,
    StatefulSet,
    StatefulSetPersistentVolumeClaimRetentionPolicy,
    StatefulSetSpec,
    StatefulSetUpdateStrategy,
)
from kubeloop.api.core.v1 import (
    Event,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    Pod,
    PodReadinessGate,
    VolumeResourceRequirements,
)
from kubeloop.client import Client
from kubeloop.controlplane.garbage_collection.garbage_collector import GarbageCollector
from kubeloop.controlplane.storage.volumes import ClaimProtectionController
from kubeloop.controlplane.workloads.history import new_revision, template_patch
from kubeloop.controlplane.workloads.statefulset import StatefulSetController
from kubeloop.meta import Forbidden, LabelSelector, ObjectMeta, OwnerReference, Quantity, Status
from tests.controlplane.played_pods import set_phase, start_pods
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.workloads import pod, template

GATE = "example.com/open"


def stateful_set(name: str, replicas: int, *, gate: bool = False, claims: Iterable[str] = (), **spec: Any) -> StatefulSet:
    """With ``gate`` its pods are ready when the test opens their gate."""
    pods = template(name)
    if gate:
        pods.spec.readiness_gates = [PodReadinessGate(condition_type=GATE)]
    room = VolumeResourceRequirements(requests={"storage": Quantity("1Gi")})
    templates = [
        PersistentVolumeClaim(
            metadata=ObjectMeta(name=one),
            spec=PersistentVolumeClaimSpec(access_modes=["ReadWriteOnce"], storage_class_name="manual", resources=room),
        )
        for one in claims
    ]
    selector = LabelSelector(match_labels={"app": name})
    chosen = StatefulSetSpec(
        replicas=replicas, service_name=name, selector=selector, template=pods, volume_claim_templates=templates, **spec
    )
    return StatefulSet(metadata=ObjectMeta(name=name), spec=chosen)


def is_rolled_out(stateful_set: StatefulSet) -> bool:
    status, desired = stateful_set.status, stateful_set.spec.replicas
    return (
        status.observed_generation == stateful_set.metadata.generation
        and (status.replicas, status.ready_replicas or 0, status.updated_replicas or 0) == (desired,) * 3
        and status.current_revision == status.update_revision
    )


async def names(client: Client) -> list[str]:
    return sorted(pod.metadata.name for pod in await client.list(Pod, namespace=client.namespace))


async def images(cluster: FakeTimeCluster) -> dict[str, str | None]:
    return {one.metadata.name: one.spec.containers[0].image for one in await cluster.client.list(Pod)}


async def set_image(client: Client, image: str, name: str = "web") -> None:
    change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}
    await client.patch(StatefulSet, name, change, type="strategic")


async def revisions(client: Client) -> dict[str, int]:
    found = await client.list(ControllerRevision, namespace=client.namespace)
    return {one.metadata.name: one.revision for one in found}


async def messages(cluster: FakeTimeCluster) -> list[tuple[str | None, str | None]]:
    return sorted((one.reason, one.message) for one in await cluster.client.list(Event))


async def test_ordered_pods_come_one_after_the_other_and_go_in_the_opposite_order() -> None:
    async with simulation(StatefulSetController()) as cluster:
        await cluster.client.create(stateful_set("web", 3))
        for expected in (["web-0"], ["web-0", "web-1"], ["web-0", "web-1", "web-2"]):
            await cluster.pass_time(5)
            assert await names(cluster.client) == expected
            await set_phase(cluster, expected[-1], "Running", ready=True)
        await cluster.pass_time(5)
        assert is_rolled_out(await cluster.client.get(StatefulSet, "web"))
        pod = await cluster.client.get(Pod, "web-1")
        assert (pod.metadata.generate_name, pod.spec.hostname, pod.spec.subdomain) == ("web-", "web-1", "web")
        (revision,) = await cluster.client.list(ControllerRevision)
        assert pod.metadata.labels == {
            "app": "web",
            "apps.kubernetes.io/pod-index": "1",
            "controller-revision-hash": revision.metadata.name,
            "statefulset.kubernetes.io/pod-name": "web-1",
        }
        deleted: list[str] = []
        cluster.faults.on_answer(lambda call: deleted.append(call.name) if call.verb == "delete" else None)
        await cluster.client.set_scale(StatefulSet, "web", 0)
        await cluster.pass_time(5)
        assert deleted == ["web-2", "web-1", "web-0"]
        assert (await cluster.client.get(StatefulSet, "web")).status.replicas == 0
        assert await messages(cluster) == sorted(
            (f"Successful{verb}", f"{verb} Pod web-{ordinal} in StatefulSet web successful")
            for verb in ("Create", "Delete")
            for ordinal in range(3)
        )


async def test_an_update_goes_from_the_last_pod_to_the_partition_and_a_rollback_uses_the_old_revision_again() -> None:
    partition = StatefulSetUpdateStrategy(type="RollingUpdate", rolling_update=RollingUpdateStatefulSetStrategy(partition=1))
    async with simulation(StatefulSetController()) as cluster:
        await cluster.client.create(stateful_set("web", 3, update_strategy=partition))
        await start_pods(cluster)
        (first,) = await revisions(cluster.client)
        await set_image(cluster.client, "x:2")
        await cluster.pass_time(3)
        assert await images(cluster) == {"web-0": "x:1", "web-1": "x:1", "web-2": "x:2"}, "the next waits until this one is ready"
        await start_pods(cluster)
        assert await images(cluster) == {"web-0": "x:1", "web-1": "x:2", "web-2": "x:2"}
        status = (await cluster.client.get(StatefulSet, "web")).status
        second = status.update_revision
        assert (status.current_revision, status.current_replicas, status.updated_replicas) == (first, 1, 2)
        await cluster.client.delete(Pod, "web-0")
        await start_pods(cluster)
        assert (await images(cluster))["web-0"] == "x:1", "a pod below the partition has the old template"
        await cluster.client.patch(StatefulSet, "web", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
        await start_pods(cluster)
        assert set((await images(cluster)).values()) == {"x:2"}
        await set_image(cluster.client, "x:1")
        await start_pods(cluster)
        done = await cluster.client.get(StatefulSet, "web")
        assert is_rolled_out(done)
        assert done.status.update_revision == first
        assert await revisions(cluster.client) == {second: 2, first: 3}


async def test_on_delete_replaces_a_pod_only_when_the_user_deletes_it() -> None:
    async with simulation(StatefulSetController()) as cluster:
        await cluster.client.create(stateful_set("web", 2, update_strategy=StatefulSetUpdateStrategy(type="OnDelete")))
        await start_pods(cluster)
        await set_image(cluster.client, "x:2")
        await start_pods(cluster)
        assert set((await images(cluster)).values()) == {"x:1"}
        await cluster.client.delete(Pod, "web-0")
        await start_pods(cluster)
        assert await images(cluster) == {"web-0": "x:2", "web-1": "x:1"}


async def test_revisions_beyond_the_history_limit_are_deleted() -> None:
    async with simulation(StatefulSetController()) as cluster:
        await cluster.client.create(stateful_set("web", 1, revision_history_limit=1))
        await start_pods(cluster)
        for number in (2, 3, 4):
            await set_image(cluster.client, f"x:{number}")
            await start_pods(cluster)
        assert sorted((await revisions(cluster.client)).values()) == [3, 4]


async def test_ended_pods_are_replaced_under_their_name() -> None:
    async with simulation(StatefulSetController()) as cluster:
        await cluster.client.create(stateful_set("web", 2))
        await start_pods(cluster)
        before = await cluster.client.get(Pod, "web-0")
        await set_phase(cluster, "web-0", "Failed")
        await set_phase(cluster, "web-1", "Succeeded")
        await start_pods(cluster)
        assert (await cluster.client.get(Pod, "web-0")).metadata.uid != before.metadata.uid
        assert is_rolled_out(await cluster.client.get(StatefulSet, "web"))


async def test_a_pod_is_available_after_min_ready_seconds_and_the_next_one_waits_for_it() -> None:
    async with simulation(StatefulSetController()) as cluster:
        await cluster.client.create(stateful_set("web", 2, min_ready_seconds=60))
        await cluster.pass_time(1)
        await set_phase(cluster, "web-0", "Running", ready=True)
        await cluster.pass_time(55)
        status = (await cluster.client.get(StatefulSet, "web")).status
        assert (await names(cluster.client), status.ready_replicas, status.available_replicas) == (["web-0"], 1, 0)
        await cluster.pass_time(6)
        assert await names(cluster.client) == ["web-0", "web-1"]
        assert (await cluster.client.get(StatefulSet, "web")).status.available_replicas == 1


async def test_labels_and_volumes_that_a_pod_has_lost_are_restored() -> None:
    async with simulation(StatefulSetController()) as cluster:
        await cluster.client.create(stateful_set("web", 1))
        await start_pods(cluster)
        label = "statefulset.kubernetes.io/pod-name"
        await cluster.client.patch(Pod, "web-0", {"metadata": {"labels": {label: None}}})
        await cluster.pass_time(2)
        assert (await cluster.client.get(Pod, "web-0")).metadata.labels[label] == "web-0"
        assert ("SuccessfulUpdate", "Update Pod web-0 in StatefulSet web successful") in await messages(cluster)


async def test_orphans_with_a_name_of_the_set_are_adopted_and_others_are_left_alone() -> None:
    async with simulation(StatefulSetController()) as cluster:
        made = await cluster.client.create(stateful_set("web", 0))
        await cluster.pass_time(1)
        for name in ("web-7", "webx-0", "web"):
            await cluster.client.create(pod(name, {"app": "web"}))
        await cluster.client.create(pod("web-8", {"app": "other"}))
        await cluster.pass_time(5)
        assert await names(cluster.client) == ["web", "web-8", "webx-0"], "the adopted one was surplus"
        await cluster.client.set_scale(StatefulSet, "web", 1)
        await start_pods(cluster)
        await cluster.client.patch(Pod, "web-0", {"metadata": {"labels": {"app": "gone"}}})
        await cluster.pass_time(5)
        released = await cluster.client.get(Pod, "web-0")
        assert released.metadata.owner_references == []
        assert made.metadata.uid


# ------------------------------------------------------------------------------------------------------------------------ claims


async def owners(client: Client) -> dict[str, list[str]]:
    return {one.metadata.name: [owner.kind for owner in one.metadata.owner_references] for one in await client.list(PersistentVolumeClaim)}


def retention(deleted: str, scaled: str) -> StatefulSetPersistentVolumeClaimRetentionPolicy:
    return StatefulSetPersistentVolumeClaimRetentionPolicy(when_deleted=deleted, when_scaled=scaled)


async def test_each_pod_gets_its_claims_which_stay_by_default() -> None:
    async with simulation(StatefulSetController()) as cluster:
        await cluster.client.create(stateful_set("web", 2, claims=["data", "log"]))
        await start_pods(cluster)
        found = await cluster.client.get(PersistentVolumeClaim, "log-web-1")
        assert (found.metadata.labels, found.metadata.owner_references) == ({"app": "web"}, [])
        pod = await cluster.client.get(Pod, "web-1")
        claims = {one.name: one.persistent_volume_claim.claim_name for one in pod.spec.volumes if one.persistent_volume_claim}
        assert claims == {"data": "data-web-1", "log": "log-web-1"}
        assert ("SuccessfulCreate", "Create Claim log-web-1 Pod web-1 in StatefulSet web success") in await messages(cluster)
        await cluster.client.set_scale(StatefulSet, "web", 0)
        await cluster.pass_time(5)
        assert sorted(await owners(cluster.client)) == ["data-web-0", "data-web-1", "log-web-0", "log-web-1"]


async def test_claims_go_with_pods_that_are_scaled_down_and_with_the_set() -> None:
    collector = GarbageCollector([Pod, PersistentVolumeClaim, StatefulSet])
    async with simulation(StatefulSetController(), collector, ClaimProtectionController()) as cluster:
        policy = retention("Delete", "Delete")
        await cluster.client.create(stateful_set("web", 2, claims=["data"], persistent_volume_claim_retention_policy=policy))
        await start_pods(cluster)
        assert await owners(cluster.client) == {"data-web-0": ["StatefulSet"], "data-web-1": ["StatefulSet"]}
        writes: list[list[str]] = []
        cluster.faults.on_answer(lambda call: writes.append([call.kind, call.verb, call.name]) if call.writes else None)
        await cluster.client.set_scale(StatefulSet, "web", 1)
        await cluster.pass_time(60)
        claim = writes.index(["PersistentVolumeClaim", "update", "data-web-1"])
        assert claim < writes.index(["Pod", "delete", "web-1"]), "the pod owns its claim before it goes"
        assert await owners(cluster.client) == {"data-web-0": ["StatefulSet"]}
        await cluster.client.patch(StatefulSet, "web", {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}})
        await cluster.pass_time(5)
        assert await owners(cluster.client) == {"data-web-0": []}


async def test_a_pod_waits_until_the_claim_of_its_predecessor_is_gone() -> None:
    async with simulation(StatefulSetController()) as cluster:
        policy = retention("Retain", "Delete")
        claim = PersistentVolumeClaim(
            metadata=ObjectMeta(
                name="data-web-0",
                owner_references=[OwnerReference(api_version="v1", kind="Pod", name="web-0", uid="before", controller=True)],
            ),
            spec=stateful_set("web", 1, claims=["data"]).spec.volume_claim_templates[0].spec,
        )
        await cluster.client.create(claim)
        await cluster.client.create(stateful_set("web", 1, claims=["data"], persistent_volume_claim_retention_policy=policy))
        await cluster.pass_time(5)
        assert await names(cluster.client) == []
        await cluster.client.delete(PersistentVolumeClaim, "data-web-0")
        await cluster.client.patch(PersistentVolumeClaim, "data-web-0", {"metadata": {"finalizers": None}})
        await cluster.pass_time(5)
        assert await names(cluster.client) == ["web-0"]


# ------------------------------------------------------------------------------------------------------------------------ faults


async def test_a_refused_pod_is_reported_in_the_words_of_the_real_controller_and_tried_again_ever_later() -> None:
    async with simulation() as cluster:
        quota = Forbidden(Status(reason="Forbidden", code=403, message="exceeded quota: pods"))
        cluster.faults.refuse(quota, times=5, matching=lambda request: request.method == "POST" and request.path.endswith("/pods"))
        await cluster.start(StatefulSetController())
        await cluster.client.create(stateful_set("web", 1))
        await cluster.pass_time(30)
        assert await names(cluster.client) == ["web-0"]
        assert await messages(cluster) == [
            ("FailedCreate", "Create Pod web-0 in StatefulSet web failed error: exceeded quota: pods"),
            ("SuccessfulCreate", "Create Pod web-0 in StatefulSet web successful"),
        ]


async def test_a_taken_revision_name_raises_the_collision_count() -> None:
    async with simulation() as cluster:
        made = await cluster.client.create(stateful_set("web", 1))
        taken = new_revision(made, template_patch(made), 1, 0)
        taken.metadata.owner_references, taken.metadata.labels, taken.data = [], {}, {"other": True}
        await cluster.client.create(taken)
        await cluster.start(StatefulSetController())
        await start_pods(cluster)
        done = await cluster.client.get(StatefulSet, "web")
        assert (done.status.collision_count, is_rolled_out(done)) == (1, True)
        assert done.status.update_revision != taken.metadata.name


async def test_two_controllers_make_no_pod_twice_and_come_to_rest() -> None:
    async with simulation(StatefulSetController()) as cluster:
        await cluster.start(StatefulSetController())
        await cluster.client.create(stateful_set("web", 5, pod_management_policy="Parallel"))
        await start_pods(cluster)
        await cluster.pass_time(60)
        cluster.faults.calls.clear()
        await cluster.pass_time(600)
        assert cluster.faults.writes == []
        assert is_rolled_out(await cluster.client.get(StatefulSet, "web"))
