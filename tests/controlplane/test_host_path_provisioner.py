"""Host-path volumes: made for claims, used where the scheduler chose, deleted after their claims, and grown."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeloop.api.core.v1 import Event, Node, PersistentVolume, PersistentVolumeClaim, Pod
from kubeloop.api.storage.v1 import StorageClass, VolumeAttributesClass
from kubeloop.client import Client
from kubeloop.controlplane.scheduling.scheduler import Scheduler
from kubeloop.controlplane.storage.expansion import HostPathResizer, VolumeExpander
from kubeloop.controlplane.storage.host_path_provisioner import (
    FINALIZER,
    PROVISIONED_BY,
    PROVISIONER,
    HostPathProvisioner,
    StandardClassCreator,
    creation_fault,
)
from kubeloop.controlplane.storage.volume_binder import PersistentVolumeBinder
from kubeloop.controlplane.storage.volumes import (
    CLASS_FINALIZER,
    AttributesClassProtectionController,
    ClaimProtectionController,
    VolumeProtectionController,
)
from kubeloop.meta import Quantity, Resource
from tests.controlplane.kills import KillScenario, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.storage import HOSTNAME, claim, storage_class, user, volume
from tests.controlplane.workloads import read


def controllers() -> tuple[Any, ...]:
    protection = ClaimProtectionController(), VolumeProtectionController()
    return PersistentVolumeBinder(), HostPathProvisioner(), *protection


async def create(cluster: FakeTimeCluster, *objects: Resource) -> None:
    for one in objects:
        await cluster.client.create(one)
    await cluster.pass_time(5)


async def the_volume(cluster: FakeTimeCluster) -> PersistentVolume:
    (found,) = await cluster.client.list(PersistentVolume)
    return found


async def the_claim(cluster: FakeTimeCluster, name: str = "data") -> PersistentVolumeClaim:
    return await cluster.client.get(PersistentVolumeClaim, name)


async def events(cluster: FakeTimeCluster) -> list[tuple[str, str, str]]:
    found = await cluster.client.list(Event, namespace="default")
    return [(one.source.component or "", one.reason or "", one.message or "") for one in found]


async def test_a_claim_gets_a_volume_that_goes_with_it() -> None:
    async with simulation(*controllers()) as cluster:
        await create(cluster, storage_class("fast", PROVISIONER), claim(storageClassName="fast"))
        bound, made = await the_claim(cluster), await the_volume(cluster)
        assert (bound.status.phase, bound.spec.volume_name, bound.status.capacity) == (
            "Bound",
            f"pvc-{bound.metadata.uid}",
            {"storage": Quantity("1Gi")},
        )
        assert made.metadata.annotations == {PROVISIONED_BY: PROVISIONER}
        assert set(made.metadata.finalizers) == {"kubernetes.io/pv-protection", FINALIZER}
        assert made.spec.host_path is not None
        assert (made.spec.host_path.path, made.spec.host_path.type) == (
            f"/tmp/kubeloop-volumes/{made.metadata.name}",  # a path on nodes
            "DirectoryOrCreate",
        )
        assert made.spec.node_affinity is None
        said = await events(cluster)
        assert ("persistentvolume-controller", "ExternalProvisioning") in {one[:2] for one in said}
        assert (PROVISIONER, "Provisioning", 'External provisioner is provisioning volume for claim "default/data"') in said
        assert (PROVISIONER, "ProvisioningSucceeded", f"Successfully provisioned volume {made.metadata.name}") in said
        await cluster.client.delete(PersistentVolumeClaim, "data")
        await cluster.pass_time(5)
        assert await cluster.client.list(PersistentVolume) == []


async def test_the_class_of_the_documentation_provisions_and_grows() -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
    (block,) = re.findall(r"```yaml\n(apiVersion: storage.k8s.io/v1\nkind: StorageClass\n.*?)```", page, re.DOTALL)
    async with simulation(*controllers(), HostPathResizer(), Scheduler()) as cluster:
        await cluster.add_node("a")
        await create(cluster, read(StorageClass, yaml.safe_load(block)), claim(storageClassName="fast"), user("p", "data"))
        assert (await the_claim(cluster)).status.phase == "Bound"
        await grow(cluster)
        assert (await the_volume(cluster)).spec.capacity == {"storage": Quantity("2Gi")}


async def test_a_volume_of_a_class_that_retains_stays() -> None:
    async with simulation(*controllers()) as cluster:
        kept = storage_class("fast", PROVISIONER)
        kept.reclaim_policy = "Retain"
        await create(cluster, kept, claim(storageClassName="fast"))
        assert FINALIZER not in (await the_volume(cluster)).metadata.finalizers
        await cluster.client.delete(PersistentVolumeClaim, "data")
        await cluster.pass_time(60)
        assert (await the_volume(cluster)).status.phase == "Released"


async def test_a_volume_that_waits_for_its_consumer_is_made_for_the_node_of_the_pod() -> None:
    async with simulation(*controllers(), Scheduler()) as cluster:
        await cluster.add_node("a", labels={HOSTNAME: "host-a"})
        await create(cluster, storage_class("fast", PROVISIONER, delayed=True), claim(storageClassName="fast"))
        assert await cluster.client.list(PersistentVolume) == []
        await create(cluster, user("p", "data"))
        assert (await cluster.client.get(Pod, "p")).spec.node_name == "a"
        affinity = (await the_volume(cluster)).spec.node_affinity
        assert affinity is not None
        assert affinity.required is not None
        (term,) = affinity.required.node_selector_terms
        assert [(one.key, one.operator, one.values) for one in term.match_expressions] == [(HOSTNAME, "In", ["host-a"])]


async def test_a_node_that_is_gone_is_chosen_again() -> None:
    async with simulation(*controllers()) as cluster:
        chosen = claim(storageClassName="fast", annotations={"volume.kubernetes.io/selected-node": "gone"})
        await create(cluster, storage_class("fast", PROVISIONER, delayed=True), chosen)
        assert "volume.kubernetes.io/selected-node" not in (await the_claim(cluster)).metadata.annotations
        text = 'failed to provision volume with StorageClass "fast": failed to get target node: nodes "gone" not found'
        assert (PROVISIONER, "ProvisioningFailed", text) in await events(cluster)


REFUSED = [
    pytest.param({"volumeMode": "Block"}, f"{PROVISIONER} does not support block volume provisioning", id="a block volume"),
    pytest.param({"selector": {"matchLabels": {"a": "b"}}}, "claim.Spec.Selector is not supported", id="a selector"),
    pytest.param(
        {"dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}},
        f"{PROVISIONER} cannot provision a claim with a data source",
        id="a copy of another claim",
    ),
]


@pytest.mark.parametrize(("spec", "message"), REFUSED)
async def test_what_a_directory_cannot_be_is_refused(spec: dict[str, Any], message: str) -> None:
    async with simulation(*controllers()) as cluster:
        await create(cluster, storage_class("fast", PROVISIONER), claim(storageClassName="fast", **spec))
        text = f'failed to provision volume with StorageClass "fast": {message}'
        assert (PROVISIONER, "ProvisioningFailed", text) in await events(cluster)
        assert await cluster.client.list(PersistentVolume) == []
        calls = len(cluster.faults.calls)
        await cluster.pass_time(600)
        assert len(cluster.faults.calls) - calls < 40, "it backs off"


async def test_classes_of_other_provisioners_are_left_alone() -> None:
    async with simulation(*controllers()) as cluster:
        foreign = volume("foreign", persistentVolumeReclaimPolicy="Delete", claimRef={"namespace": "default", "name": "gone", "uid": "u"})
        foreign.metadata.annotations = {PROVISIONED_BY: "example.com/disks"}
        await create(cluster, storage_class("slow", "example.com/disks"), claim(storageClassName="slow"), foreign)
        await cluster.pass_time(60)
        assert [one.metadata.name for one in await cluster.client.list(PersistentVolume)] == ["foreign"]


async def test_directories_of_deleted_volumes_are_removed_only_where_the_provisioner_puts_them(tmp_path: Path) -> None:
    root = tmp_path / "volumes"
    others = PersistentVolumeBinder(), ClaimProtectionController(), VolumeProtectionController()
    async with simulation(HostPathProvisioner(root), *others) as cluster:
        fast = storage_class("fast", PROVISIONER)
        fast.parameters = {"directory": str(root)}
        await create(cluster, fast, claim(storageClassName="fast"))
        directory = root / (await the_volume(cluster)).metadata.name
        await asyncio.to_thread(_fill, directory)
        elsewhere = tmp_path / "forged"
        await asyncio.to_thread(_fill, elsewhere)
        gone = {"namespace": "default", "name": "gone", "uid": "u"}
        source = {"hostPath": {"path": str(elsewhere)}}
        forged = volume("forged", persistentVolumeReclaimPolicy="Delete", claimRef=gone, source=source)
        forged.metadata.annotations = {PROVISIONED_BY: PROVISIONER}
        await create(cluster, forged)
        await cluster.client.delete(PersistentVolumeClaim, "data")
        for _ in range(500):  # A thread removes the directory: fake time does not wait for it.
            if not await cluster.client.list(PersistentVolume):
                break
            await asyncio.sleep(0.01)
            await cluster.pass_time(1)
        assert (directory.exists(), elsewhere.exists()) == (False, True)


def _fill(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "data").write_text("x")


MOUNTS = """\
1 0 0:1 / / rw - ext4 /dev/vda rw
2 1 0:2 / /proc rw - proc proc rw
"""


@pytest.mark.parametrize(
    ("directory", "fault"),
    [
        pytest.param("/proc/volumes", "/proc is in a file system of the kernel (proc)", id="a folder of the kernel"),
        pytest.param("{tmp}/file/volumes", "{tmp}/file is not a directory", id="below a file"),
        pytest.param("{tmp}/link/volumes", "/proc is in a file system of the kernel (proc)", id="behind a link"),
        pytest.param("{tmp}/a/b", "", id="a missing folder"),
        pytest.param("{tmp}", "", id="a folder"),
    ],
)
def test_a_directory_that_nobody_can_make_is_known(tmp_path: Path, directory: str, fault: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/proc")
    assert creation_fault(Path(directory.format(tmp=tmp_path)), MOUNTS) == fault.format(tmp=tmp_path)
    assert not (tmp_path / "a").exists()


async def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function without a thread, for which fake time would not wait."""
    return function(*arguments, **options)


@pytest.mark.parametrize(
    ("runtime", "boot", "reason"),
    [
        pytest.param("process://1", "", "ProvisioningFailed", id="fails for processes of this machine"),
        pytest.param("containerd://2", "", "ProvisioningSucceeded", id="is not checked for containers"),
        pytest.param("process://1", "other", "ProvisioningSucceeded", id="is not checked for another machine"),
    ],
)
async def test_a_directory_that_cannot_be_made(runtime: str, boot: str, reason: str) -> None:
    info = {"containerRuntimeVersion": runtime, "bootID": boot or Path("/proc/sys/kernel/random/boot_id").read_text().strip()}
    async with simulation(PersistentVolumeBinder(), HostPathProvisioner(in_thread=call)) as cluster:
        node = await cluster.client.create(read(Node, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "process"}}))
        await cluster.client.patch(Node, node.metadata.name, {"status": {"nodeInfo": info}}, subresource="status")
        made = storage_class("kernel", PROVISIONER)
        made.parameters = {"directory": "/proc/volumes"}
        await create(cluster, made, claim(storageClassName="kernel"))
        await cluster.pass_time(2)
        found = {name: message for _, name, message in await events(cluster)}
        assert reason in found
        if reason == "ProvisioningFailed":
            assert "/proc is in a file system of the kernel (proc)" in found[reason]
            assert await cluster.client.list(PersistentVolume) == []


async def test_the_standard_class_is_created_unless_there_is_a_default() -> None:
    async with simulation(StandardClassCreator()) as cluster:
        (made,) = await cluster.client.list(StorageClass)
        assert (made.metadata.name, made.provisioner, made.volume_binding_mode) == ("standard", PROVISIONER, "WaitForFirstConsumer")
        await cluster.stop()
        await cluster.start(StandardClassCreator())
        assert len(await cluster.client.list(StorageClass)) == 1
    async with simulation() as cluster:
        await cluster.client.create(storage_class("mine", default=True))
        await cluster.start(StandardClassCreator())
        assert [one.metadata.name for one in await cluster.client.list(StorageClass)] == ["mine"]


# ------------------------------------------------------------------------------------------------------------------------ growth


def growing() -> StorageClass:
    made = storage_class("fast", PROVISIONER)
    made.allow_volume_expansion = True
    return made


async def grow(cluster: FakeTimeCluster, size: str = "2Gi") -> None:
    await cluster.client.patch(PersistentVolumeClaim, "data", {"spec": {"resources": {"requests": {"storage": size}}}})
    await cluster.pass_time(5)


def conditions(claim: PersistentVolumeClaim) -> dict[str, str | None]:
    return {condition.type: condition.message for condition in claim.status.conditions if condition.status == "True"}


async def test_a_volume_grows_in_the_steps_of_a_driver() -> None:
    async with simulation(*controllers(), VolumeExpander(), HostPathResizer()) as cluster:
        await create(cluster, growing(), claim(storageClassName="fast"))
        await grow(cluster)
        waiting, grown = await the_claim(cluster), await the_volume(cluster)
        assert conditions(waiting) == {
            "Resizing": None,
            "FileSystemResizePending": "Waiting for user to (re-)start a pod to finish file system resize of volume on node.",
        }
        assert waiting.status.capacity == {"storage": Quantity("1Gi")}
        assert waiting.status.allocated_resources == {"storage": Quantity("2Gi")}
        assert waiting.status.allocated_resource_statuses == {"storage": "NodeResizePending"}
        assert grown.spec.capacity == {"storage": Quantity("2Gi")}
        assert grown.metadata.annotations["volume.alpha.kubernetes.io/pre-resize-capacity"] == "1Gi"
        await create(cluster, user("p", "data", nodeName="a"))
        await cluster.client.patch(Pod, "p", {"status": {"phase": "Running"}}, subresource="status")
        await cluster.pass_time(5)
        done, grown = await the_claim(cluster), await the_volume(cluster)
        assert (conditions(done), done.status.capacity) == ({}, {"storage": Quantity("2Gi")})
        assert done.status.allocated_resource_statuses == {}
        assert "volume.alpha.kubernetes.io/pre-resize-capacity" not in grown.metadata.annotations
        said = {(component, reason): message for component, reason, message in await events(cluster)}
        assert said["volume_expand", "ExternalExpanding"] == "waiting for an external controller to expand this PVC"
        resizer = f"external-resizer {PROVISIONER}"
        assert said[resizer, "Resizing"] == f"External resizer is resizing volume {grown.metadata.name}"
        assert said[resizer, "FileSystemResizeRequired"] == "Require file system resize of volume on node"
        text = f'MountVolume.NodeExpandVolume succeeded for volume "{grown.metadata.name}" a'
        assert said[resizer, "FileSystemResizeSuccessful"] == text


async def test_a_claim_that_grows_once_more_while_it_waits_gets_the_last_size() -> None:
    async with simulation(*controllers(), HostPathResizer()) as cluster:
        await create(cluster, growing(), claim(storageClassName="fast"))
        await grow(cluster)
        await grow(cluster, "3Gi")
        assert (await the_volume(cluster)).spec.capacity == {"storage": Quantity("3Gi")}
        found = await the_claim(cluster)
        assert found.status.allocated_resources == {"storage": Quantity("3Gi")}
        assert found.status.allocated_resource_statuses == {"storage": "NodeResizePending"}
        assert (await the_volume(cluster)).metadata.annotations["volume.alpha.kubernetes.io/pre-resize-capacity"] == "1Gi"


async def test_volumes_of_plug_ins_that_became_drivers_name_their_driver() -> None:
    async with simulation(PersistentVolumeBinder(), VolumeExpander()) as cluster:
        made = volume("v", storageClassName="fast", source={"awsElasticBlockStore": {"volumeID": "aws://zone/vol"}})
        await create(cluster, growing(), made, claim(storageClassName="fast", volumeName="v"))
        await grow(cluster)
        text = "CSI migration enabled for kubernetes.io/aws-ebs; waiting for external resizer to expand the pvc"
        assert ("volume_expand", "ExternalExpanding", text) in await events(cluster)
        assert (await the_claim(cluster)).metadata.annotations["volume.kubernetes.io/storage-resizer"] == "ebs.csi.aws.com"


async def test_an_attributes_class_goes_when_no_claim_names_it() -> None:
    async with simulation(AttributesClassProtectionController()) as cluster:
        made = read(VolumeAttributesClass, {"metadata": {"name": "gold"}, "driverName": "example.com/disks", "parameters": {"iops": "9"}})
        await create(cluster, made, claim(volumeAttributesClassName="gold"))
        assert (await cluster.client.get(VolumeAttributesClass, "gold")).metadata.finalizers == [CLASS_FINALIZER]
        await cluster.client.delete(VolumeAttributesClass, "gold")
        await cluster.pass_time(60)
        assert (await cluster.client.get(VolumeAttributesClass, "gold")).metadata.deletion_timestamp is not None
        await cluster.client.patch(PersistentVolumeClaim, "data", {"metadata": {"finalizers": None}})
        await cluster.client.delete(PersistentVolumeClaim, "data")
        await cluster.drive(cluster.client.wait_gone(VolumeAttributesClass, "gold", timeout=10))


# ------------------------------------------------------------------------------------------------------------------------- kills


async def live(cluster: FakeTimeCluster) -> None:
    """Make, grow and delete a volume; another stays."""
    await cluster.client.create(growing())
    for name in ("data", "stays"):
        await cluster.client.create(claim(name, storageClassName="fast"))
    await cluster.pass_time(10)
    await cluster.client.create(user("p", "stays", nodeName="a"))
    await cluster.client.patch(Pod, "p", {"status": {"phase": "Running"}}, subresource="status")
    await cluster.client.patch(PersistentVolumeClaim, "stays", {"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
    await cluster.client.delete(PersistentVolumeClaim, "data")


async def test_provisioning_growth_and_deletion_survive_a_kill_after_each_write() -> None:
    scenario = KillScenario(
        lambda: [HostPathProvisioner(), HostPathResizer(), VolumeExpander()],
        live,
        (PersistentVolume, PersistentVolumeClaim, Pod, Node),
        companions=lambda: [PersistentVolumeBinder(), ClaimProtectionController(), VolumeProtectionController()],
    )
    writes = await assert_survives_kills(scenario)
    assert sum(one.startswith("create PersistentVolume") for one in writes) == 2


@pytest.mark.server
async def test_a_pod_runs_with_a_provisioned_volume(client: Client) -> None:
    """The test starts the provisioner itself where the real kube-controller-manager works."""
    from kubeloop.controller import Manager
    from tests.realserver.controller_manager import upstream_is_wanted

    name = str(client.namespace)
    await client.create(storage_class(name, PROVISIONER, delayed=True))
    try:
        async with Manager(client, [HostPathProvisioner()] if upstream_is_wanted() else []):
            await client.create(claim(storageClassName=name))
            await client.create(user("p", "data"))
            await client.wait_for(Pod, "p", lambda pod: pod.status.phase == "Running", timeout=60)
            found = await client.wait_for(PersistentVolumeClaim, "data", lambda claim: claim.status.phase == "Bound", timeout=60)
            await client.delete(Pod, "p")
            await client.delete(PersistentVolumeClaim, "data")
            await client.wait_gone(PersistentVolume, str(found.spec.volume_name), timeout=60)
    finally:
        await client.delete(StorageClass, name)
