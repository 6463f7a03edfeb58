"""Binder of volumes: which volume a claim gets, what claims wait for, what becomes of volumes, and what survives crashes and conflicts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeloop.api.core.v1 import Event, PersistentVolume, PersistentVolumeClaim
from kubeloop.client import ALL_NAMESPACES
from kubeloop.controlplane.storage.volume_binder import PersistentVolumeBinder
from kubeloop.controlplane.storage.volumes import ClaimProtectionController, VolumeProtectionController
from kubeloop.meta import Conflict, InternalError, Resource
from kubeloop.serving.request import Request
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.storage import claim, storage_class, user, volume
from tests.controlplane.workloads import read

COMPLETED, BY_CONTROLLER = "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"
RESERVED = {"namespace": "default", "name": "data"}


def is_bound(claim: PersistentVolumeClaim) -> bool:
    return claim.status.phase == "Bound"


async def create(cluster: FakeTimeCluster, *objects: Resource) -> None:
    for one in objects:
        await cluster.client.create(one)


async def binding(cluster: FakeTimeCluster, name: str = "data") -> tuple[str, str]:
    """Return phase of a claim and name of its volume."""
    found = await cluster.client.get(PersistentVolumeClaim, name)
    return found.status.phase or "", found.spec.volume_name or ""


async def phase(cluster: FakeTimeCluster, name: str) -> str:
    return (await cluster.client.get(PersistentVolume, name)).status.phase or ""


async def reports(cluster: FakeTimeCluster) -> set[tuple[str | None, str | None]]:
    return {(event.reason, event.message) for event in await cluster.client.list(Event, namespace=ALL_NAMESPACES)}


@pytest.mark.parametrize(
    ("volumes", "new_claim", "expected"),
    [
        pytest.param(
            [volume("big", "5Gi"), volume("fits", "2Gi"), volume("small")], claim(size="2Gi"), "fits", id="the smallest that fits"
        ),
        pytest.param([volume("small")], claim(size="2Gi"), "", id="none that is too small"),
        pytest.param(
            [volume("many", accessModes=["ReadWriteOnce", "ReadOnlyMany"]), volume("one", "9Gi")],
            claim(),
            "one",
            id="one with fewer access modes before a smaller one",
        ),
        pytest.param([volume("v", accessModes=["ReadOnlyMany"])], claim(), "", id="none with other access modes"),
        pytest.param(
            [volume("fast", storageClassName="fast"), volume("none")], claim(storageClassName="fast"), "fast", id="one of its class"
        ),
        pytest.param([volume("fast", storageClassName="fast")], claim(), "", id="none of a class if it has no class"),
        pytest.param([volume("v")], claim(storageClassName=""), "v", id="one without a class if it asks for none"),
        pytest.param([volume("v", volumeMode="Block")], claim(), "", id="none of another volumeMode"),
        pytest.param(
            [volume("a", labels={"disk": "hdd"}), volume("b", labels={"disk": "ssd"})],
            claim(selector={"matchLabels": {"disk": "ssd"}}),
            "b",
            id="a volume that its selector matches",
        ),
        pytest.param(
            [volume("small"), volume("mine", "9Gi", claimRef=RESERVED)], claim(), "mine", id="a volume that names it before a smaller one"
        ),
        pytest.param([volume("v", claimRef=RESERVED | {"name": "other"})], claim(), "", id="none that names another claim"),
        pytest.param([volume("v", claimRef=RESERVED | {"uid": "old"})], claim(), "", id="none that names an older claim of its name"),
        pytest.param([volume("a"), volume("b", "2Gi")], claim(volumeName="b"), "b", id="the volume that it names"),
        pytest.param([volume("a")], claim(volumeName="b"), "", id="none but the volume that it names"),
    ],
)
@pytest.mark.parametrize("order", ["volumes first", "claim first"])
async def test_a_claim_gets(volumes: list[PersistentVolume], new_claim: PersistentVolumeClaim, expected: str, order: str) -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        if order == "volumes first":
            await create(cluster, *volumes)
            await cluster.pass_time(1)
            await create(cluster, new_claim)
        else:
            await create(cluster, new_claim, *volumes)
        await cluster.pass_time(5)
        assert await binding(cluster) == (("Bound", expected) if expected else ("Pending", new_claim.spec.volume_name or ""))


async def test_the_volume_of_the_documentation_lets_a_claim_go_on() -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
    (block,) = re.findall(r"```yaml\n(apiVersion: v1\nkind: PersistentVolume\n.*?)```", page, re.DOTALL)
    async with simulation(PersistentVolumeBinder()) as cluster:
        await create(cluster, read(PersistentVolume, yaml.safe_load(block)), claim(size="10Gi"))
        await cluster.pass_time(5)
        assert await binding(cluster) == ("Bound", "disk-1")


async def test_claim_and_volume_say_to_what_they_are_bound() -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        await create(cluster, volume("v", "2Gi"), claim())
        bound = await cluster.drive(cluster.client.wait_for(PersistentVolumeClaim, "data", is_bound, timeout=10))
        assert bound.metadata.annotations == {COMPLETED: "yes", BY_CONTROLLER: "yes"}
        assert (bound.status.access_modes, {key: str(value) for key, value in bound.status.capacity.items()}) == (
            ["ReadWriteOnce"],
            {"storage": "2Gi"},
        )
        found = await cluster.client.get(PersistentVolume, "v")
        reference = found.spec.claim_ref
        assert reference is not None
        assert (reference.kind, reference.api_version, reference.namespace, reference.name, reference.uid) == (
            "PersistentVolumeClaim",
            "v1",
            "default",
            "data",
            bound.metadata.uid,
        )
        assert (found.metadata.annotations, found.status.phase) == ({BY_CONTROLLER: "yes"}, "Bound")


WAITING = (
    "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system administrator. "
    "If volume creation is delayed, please verify that the provisioner is running and correctly registered."
)


@pytest.mark.parametrize(
    ("existing", "new_claim", "expected"),
    [
        pytest.param(
            [], claim(), ("FailedBinding", "no persistent volumes available for this claim and no storage class is set"), id="no class"
        ),
        pytest.param(
            [],
            claim(storageClassName="fast"),
            ("ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found'),
            id="a class that does not exist",
        ),
        pytest.param(
            [storage_class("fast", "example.com/disks")],
            claim(storageClassName="fast"),
            ("ExternalProvisioning", WAITING.format("example.com/disks")),
            id="a class with a provisioner",
        ),
        pytest.param(
            [storage_class("fast", "kubernetes.io/aws-ebs")],
            claim(storageClassName="fast"),
            ("ExternalProvisioning", WAITING.format("ebs.csi.aws.com")),
            id="a class whose provisioner became a CSI driver",
        ),
        pytest.param(
            [storage_class("local")],
            claim(storageClassName="local"),
            ("ProvisioningFailed", "no volume plugin matched name: kubernetes.io/no-provisioner"),
            id="a class without a provisioner",
        ),
        pytest.param(
            [storage_class("local", delayed=True)],
            claim(storageClassName="local"),
            ("WaitForFirstConsumer", "waiting for first consumer to be created before binding"),
            id="a class that waits for a pod",
        ),
        pytest.param(
            [storage_class("local", delayed=True), user("p", "data"), user("q", "data")],
            claim(storageClassName="local"),
            ("WaitForPodScheduled", "waiting for pods p,q to be scheduled"),
            id="pods without a node",
        ),
        pytest.param(
            [volume("v", claimRef=RESERVED | {"name": "other"})],
            claim(volumeName="v"),
            ("FailedBinding", 'volume "v" already bound to a different claim.'),
            id="it names a volume of another claim",
        ),
        pytest.param(
            [volume("v")],
            claim(size="2Gi", volumeName="v"),
            ("VolumeMismatch", 'Cannot bind to requested volume "v": requested PV is too small'),
            id="it names a volume that is too small",
        ),
        pytest.param(
            [volume("v", storageClassName="fast")],
            claim(volumeName="v"),
            ("VolumeMismatch", 'Cannot bind to requested volume "v": storageClassName does not match'),
            id="it names a volume of another class",
        ),
        pytest.param(
            [volume("v", volumeMode="Block")],
            claim(volumeName="v"),
            ("VolumeMismatch", 'Cannot bind to requested volume "v": incompatible volumeMode'),
            id="it names a volume of another mode",
        ),
        pytest.param(
            [volume("v", accessModes=["ReadOnlyMany"])],
            claim(volumeName="v"),
            ("VolumeMismatch", 'Cannot bind to requested volume "v": incompatible accessMode'),
            id="it names a volume with other access modes",
        ),
    ],
)
async def test_a_claim_says_what_it_waits_for(
    existing: list[Resource], new_claim: PersistentVolumeClaim, expected: tuple[str, str]
) -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        await create(cluster, *existing, new_claim)
        await cluster.pass_time(5)
        assert await reports(cluster) == {expected}
        assert (await binding(cluster))[0] == "Pending"
        events = await cluster.client.list(Event, namespace=ALL_NAMESPACES)
        assert [(one.count, one.source.component) for one in events] == [(1, "persistentvolume-controller")]


async def test_an_external_provisioner_finds_its_claim_and_the_volume_that_it_makes_is_bound() -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        await create(cluster, storage_class("fast", "example.com/disks"), claim(storageClassName="fast"))
        await cluster.pass_time(5)
        made = await cluster.client.get(PersistentVolumeClaim, "data")
        assert made.metadata.annotations == dict.fromkeys(
            ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"), "example.com/disks"
        )
        await create(cluster, volume("pvc-1", storageClassName="fast", claimRef=RESERVED | {"uid": made.metadata.uid}))
        await cluster.pass_time(5)
        assert (await binding(cluster), await phase(cluster, "pvc-1")) == (("Bound", "pvc-1"), "Bound")


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        pytest.param("1Gi", "1Gi", id="the size before the resize while the file system is not resized"),
        pytest.param("large", "2Gi", id="the size of the volume if the annotation is no size"),
        pytest.param(None, "2Gi", id="the size of the volume without the annotation"),
    ],
)
async def test_a_claim_of_a_resized_volume_has(annotation: str | None, expected: str) -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        offered = volume("v", "2Gi")
        if annotation is not None:
            offered.metadata.annotations["volume.alpha.kubernetes.io/pre-resize-capacity"] = annotation
        await create(cluster, offered, claim())
        await cluster.pass_time(5)
        assert await binding(cluster) == ("Bound", "v")
        found = await cluster.client.get(PersistentVolumeClaim, "data")
        assert {name: str(size) for name, size in found.status.capacity.items()} == {"storage": expected}


async def test_a_claim_without_a_class_gets_the_default_class_that_is_created_later() -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        await create(cluster, claim(), claim("none", storageClassName=""))
        await cluster.pass_time(5)
        await create(cluster, storage_class("fast", "example.com/disks", default=True))
        await cluster.pass_time(5)
        found = {
            one.metadata.name: one.spec.storage_class_name
            for one in await cluster.client.list(PersistentVolumeClaim, namespace=ALL_NAMESPACES)
        }
        assert found == {"data": "fast", "none": ""}


@pytest.mark.parametrize(
    ("offered", "expected", "event"),
    [
        pytest.param(volume("v"), "Released", None, id="with Retain it is Released"),
        pytest.param(
            volume("v", persistentVolumeReclaimPolicy="Delete"),
            "Failed",
            ("VolumeFailedDelete", "host_path deleter only supports /tmp/.+ but received provided /data"),
            id="with Delete and a path that is not deleted it is Failed",
        ),
        pytest.param(
            volume("v", persistentVolumeReclaimPolicy="Delete", source={"hostPath": {"path": "/tmp/data"}}),
            None,
            None,
            id="with Delete and a path in /tmp it goes",
        ),
        pytest.param(
            volume("v", persistentVolumeReclaimPolicy="Delete", source={"nfs": {"server": "s", "path": "/"}}),
            "Failed",
            ("VolumeFailedDelete", 'error getting deleter volume plugin for volume "v": no deletable volume plugin matched'),
            id="with Delete and a share it is Failed",
        ),
        pytest.param(
            volume("v", persistentVolumeReclaimPolicy="Delete", node="n", source={"local": {"path": "/disk"}}),
            "Failed",
            ("VolumeFailedDelete", 'error getting deleter volume plugin for volume "v": no volume plugin matched'),
            id="with Delete and a local disk it is Failed",
        ),
        pytest.param(
            volume("v", persistentVolumeReclaimPolicy="Delete", source={"csi": {"driver": "example.com", "volumeHandle": "1"}}),
            "Released",
            None,
            id="with Delete and a CSI driver the driver deletes it",
        ),
        pytest.param(
            volume("v", persistentVolumeReclaimPolicy="Recycle"),
            "Failed",
            ("VolumeFailedRecycle", "No recycler plugin found for the volume!"),
            id="with Recycle it is Failed",
        ),
    ],
)
async def test_a_volume_whose_claim_is_deleted(offered: PersistentVolume, expected: str | None, event: tuple[str, str] | None) -> None:
    async with simulation(PersistentVolumeBinder(), ClaimProtectionController(), VolumeProtectionController()) as cluster:
        await create(cluster, offered, claim())
        await cluster.drive(cluster.client.wait_for(PersistentVolumeClaim, "data", is_bound, timeout=10))
        await cluster.client.delete(PersistentVolumeClaim, "data")
        await create_when_gone(cluster, claim())
        await cluster.pass_time(30)
        assert [one.status.phase for one in await cluster.client.list(PersistentVolume)] == ([expected] if expected else [])
        assert (await binding(cluster))[0] == "Pending"
        assert {one for one in await reports(cluster) if one[0] != "FailedBinding"} == ({event} if event else set())


async def create_when_gone(cluster: FakeTimeCluster, new_claim: PersistentVolumeClaim) -> None:
    """Create a claim as soon as the claim of the same name, which is being deleted, is gone."""
    await cluster.drive(cluster.client.wait_gone(PersistentVolumeClaim, new_claim.metadata.name, timeout=10))
    await create(cluster, new_claim)


async def test_a_released_volume_is_available_again_when_its_reference_is_removed() -> None:
    async with simulation(PersistentVolumeBinder(), ClaimProtectionController()) as cluster:
        await create(cluster, volume("v"), claim())
        await cluster.drive(cluster.client.wait_for(PersistentVolumeClaim, "data", is_bound, timeout=10))
        await cluster.client.delete(PersistentVolumeClaim, "data")
        await create_when_gone(cluster, claim())
        await cluster.pass_time(10)
        await cluster.client.patch(PersistentVolume, "v", {"spec": {"claimRef": None}})
        await cluster.pass_time(10)
        assert (await binding(cluster), await phase(cluster, "v")) == (("Bound", "v"), "Bound")


async def test_a_claim_is_lost_with_its_volume_and_bound_again_when_the_volume_comes_back() -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        await create(cluster, volume("v"), claim())
        await cluster.drive(cluster.client.wait_for(PersistentVolumeClaim, "data", is_bound, timeout=10))
        await cluster.client.patch(PersistentVolume, "v", {"metadata": {"finalizers": None}})
        await cluster.client.delete(PersistentVolume, "v")
        await cluster.pass_time(10)
        assert (await binding(cluster))[0] == "Lost"
        assert ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!") in await reports(cluster)
        await create(cluster, volume("v"))
        await cluster.pass_time(10)
        assert (await binding(cluster), await phase(cluster, "v")) == (("Bound", "v"), "Bound")


async def test_of_two_claims_that_were_bound_to_one_volume_the_wrong_one_is_lost() -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        await create(cluster, volume("v"), claim())
        await cluster.drive(cluster.client.wait_for(PersistentVolumeClaim, "data", is_bound, timeout=10))
        await create(cluster, claim("wrong", volumeName="v", annotations={COMPLETED: "yes"}))
        await cluster.pass_time(10)
        assert await binding(cluster, "wrong") == ("Lost", "v")
        assert await binding(cluster) == ("Bound", "v")
        assert ("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly") in await reports(cluster)


async def test_a_volume_of_a_claim_that_got_another_one_is_available_again() -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        await create(cluster, volume("v"), claim())
        bound = await cluster.drive(cluster.client.wait_for(PersistentVolumeClaim, "data", is_bound, timeout=10))
        surplus = volume("surplus", claimRef=RESERVED | {"uid": bound.metadata.uid})
        surplus.metadata.annotations[BY_CONTROLLER] = "yes"
        chosen = volume("chosen", claimRef=RESERVED | {"uid": bound.metadata.uid})
        await create(cluster, surplus, chosen)
        await cluster.pass_time(10)
        references = {one.metadata.name: one.spec.claim_ref for one in await cluster.client.list(PersistentVolume)}
        assert references["surplus"] is None
        assert references["chosen"] is not None
        assert (references["chosen"].name, references["chosen"].uid) == ("data", None)
        assert [await phase(cluster, name) for name in ("v", "surplus", "chosen")] == ["Bound", "Available", "Available"]


async def test_a_volume_whose_mode_does_not_fit_the_claim_that_it_names_says_so() -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        made = await cluster.client.create(claim())
        await create(cluster, volume("v", volumeMode="Block", claimRef=RESERVED | {"uid": made.metadata.uid}))
        await cluster.pass_time(5)
        assert {message for reason, message in await reports(cluster) if reason == "VolumeMismatch"} == {
            'Cannot bind PersistentVolume to requested PersistentVolumeClaim "data" due to incompatible volumeMode.',
            'Cannot bind PersistentVolume "v" to requested PersistentVolumeClaim due to incompatible volumeMode.',
        }


# ------------------------------------------------------------------------------------------- crashes, conflicts, replicas, silence

WRITES = ["the volume", "the status of the volume", "the claim", "the status of the claim"]


def is_write_of_binding(request: Request) -> bool:
    return request.method == "PUT" and "/persistentvolume" in request.path


@pytest.mark.parametrize("after", range(4), ids=[f"before it wrote {one}" for one in WRITES])
async def test_a_binder_that_is_killed_is_continued_by_the_next(after: int) -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        await create(cluster, volume("v"), volume("w"))
        await cluster.pass_time(5)
        seen = 0

        def reaches(request: Request) -> bool:
            nonlocal seen
            seen += is_write_of_binding(request)
            return is_write_of_binding(request) and seen > after

        cluster.faults.refuse(InternalError, times=1000, matching=reaches)
        await create(cluster, claim())
        await cluster.pass_time(5)
        assert (await binding(cluster))[0] == "Pending"
        await cluster.stop()
        seen = -1000
        await cluster.start(PersistentVolumeBinder())
        await cluster.pass_time(5)
        assert (await binding(cluster), await phase(cluster, "v"), await phase(cluster, "w")) == (("Bound", "v"), "Bound", "Available")


@pytest.mark.parametrize("number", range(4), ids=[f"of {one}" for one in WRITES])
async def test_a_binding_survives_a_conflict_in_the_write(number: int) -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        await create(cluster, volume("v"))
        await cluster.pass_time(5)
        seen = 0

        def is_chosen(request: Request) -> bool:
            nonlocal seen
            seen += is_write_of_binding(request)
            return is_write_of_binding(request) and seen == number + 1

        cluster.faults.refuse(Conflict, matching=is_chosen)
        await create(cluster, claim())
        await cluster.pass_time(5)
        assert seen > number
        assert (await binding(cluster), await phase(cluster, "v")) == (("Bound", "v"), "Bound")


async def test_two_binders_at_once_give_each_claim_one_volume() -> None:
    async with simulation(PersistentVolumeBinder()) as cluster:
        await cluster.start(PersistentVolumeBinder())
        for number in range(8):
            await create(cluster, volume(f"v{number}"), claim(f"c{number}"))
        await cluster.pass_time(60)
        volumes = {one.metadata.name: one for one in await cluster.client.list(PersistentVolume)}
        claims = await cluster.client.list(PersistentVolumeClaim, namespace=ALL_NAMESPACES)
        assert {one.status.phase for one in claims} == {one.status.phase for one in volumes.values()} == {"Bound"}
        assert {one.spec.volume_name for one in claims} == set(volumes)
        for one in claims:
            reference = volumes[one.spec.volume_name or ""].spec.claim_ref
            assert reference is not None
            assert reference.uid == one.metadata.uid
        cluster.faults.calls.clear()
        await cluster.pass_time(3600)
        assert cluster.faults.writes == []


async def test_nothing_is_written_while_nothing_changes() -> None:
    others: list[Any] = [storage_class("fast", "example.com/disks"), storage_class("local", delayed=True), user("p", "later")]
    claims = [claim(), claim("none"), claim("fast", storageClassName="fast"), claim("later", storageClassName="local")]
    async with simulation(PersistentVolumeBinder()) as cluster:
        await create(cluster, *others, volume("v"), volume("big", "9Gi", persistentVolumeReclaimPolicy="Delete"), *claims)
        await cluster.pass_time(60)
        cluster.faults.calls.clear()
        await cluster.pass_time(3600)
        assert cluster.faults.writes == []
        await cluster.stop()
        await cluster.start(PersistentVolumeBinder())
        await cluster.pass_time(60)
        assert {call.kind for call in cluster.faults.writes} == {"Event"}, "after a restart what claims wait for is said once more"
