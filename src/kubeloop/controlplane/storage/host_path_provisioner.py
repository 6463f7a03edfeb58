"""Host-path provisioner: creates and deletes volumes of storage classes with the provisioner ``kubeloop.dev/host-path``.

It follows the protocol of external provisioners, so that the binder, the scheduler and users can treat it like any other.
Source: sigs.k8s.io/sig-storage-lib-external-provisioner (controller.go); Kubernetes, "Dynamic Volume Provisioning".
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from kubeloop.api.core.v1 import (
    HostPathVolumeSource,
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    VolumeNodeAffinity,
)
from kubeloop.api.storage.v1 import StorageClass
from kubeloop.client import DeleteOptions
from kubeloop.controller import Controller, KeyController, WatchedKind, remove_finalizer, resource_version_changed
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents
from kubeloop.controlplane.scheduling.facts import SELECTED_NODE
from kubeloop.meta import AlreadyExists, ApiError, KubeloopError, NotFound, ObjectKey, ObjectMeta

PROVISIONER = "kubeloop.dev/host-path"
#: The finalizer of volumes that the provisioner deletes, so that it also cleans up volumes that a user deletes first.
FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
#: The parameter of a storage class with the parent directory of its volumes, and the default.
DIRECTORY_PARAMETER, DIRECTORY = "directory", "/tmp/kubeloop-volumes"  # noqa: S108  # a path on nodes
#: The class that ``StandardClassCreator`` creates: the name that kind and minikube use.
STANDARD_CLASS = "standard"
_REQUESTED_OF = ("volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner")
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_HOSTNAME = "kubernetes.io/hostname"
_BOOT_ID, _MOUNTS = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/mountinfo")
#: File systems in which users cannot create folders, or whose folders are no files.
_KERNEL_FILE_SYSTEMS = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "devpts", "debugfs", "tracefs", "securityfs", "configfs", "pstore"})


class ProvisioningFailed(KubeloopError):
    """A volume cannot be created; the message is that of an Event."""


class HostPathProvisioner(
    KeyController[PersistentVolumeClaim],
    watches=[
        WatchedKind(PersistentVolume, to=lambda volume: [ObjectKey("", "", volume.name)], predicates=(resource_version_changed,)),
    ],
    reads=[StorageClass, Node],
    workers=4,
    name="host-path-provisioner",
):
    """Provisions hostPath volumes for claims, and deletes volumes of deleted claims. Keys with a namespace are claims, others volumes.

    Guarantees:
        A claim gets one volume, whose name is derived from the claim's uid, so that neither a restart nor a second replica of the
        controller creates another volume.
        A volume of a class with WaitForFirstConsumer can be used only on the node that the scheduler chose.
        A volume is deleted only if this provisioner created it, its reclaim policy is Delete, and its claim was deleted.

    Args:
        root: Local folder below which directories of deleted volumes are removed, if nodes share this machine's files. None: no files
            are removed.
    """

    def __init__(self, root: Path | None = None, *, in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread) -> None:
        """Create the controller.

        Args:
            root: The folder below which directories of deleted volumes are removed. None: none is removed.
            in_thread: Calls a function that accesses the file system, with its arguments, such as ``asyncio.to_thread``: a path may be on
                a file server that does not respond. Tests by fake time, which does not wait for threads, call the function directly.
        """
        self._root = root
        self._in_thread = in_thread

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component=PROVISIONER)]

    async def reconcile(self, key: ObjectKey) -> None:
        if key.namespace:
            claim = self.lister(PersistentVolumeClaim).by_key(key)
            if claim is not None and _is_requested(claim):
                await self._provision(claim)
        elif (volume := self.lister(PersistentVolume).get(key.name)) is not None and _is_expendable(volume):
            await self._delete(volume)

    # --------------------------------------------------------------------------------------------------------------- provisioning

    async def _provision(self, claim: PersistentVolumeClaim) -> None:
        """Create the volume of a claim.

        Raises:
            ProvisioningFailed: The claim is not supported, or its node does not exist. An Event reports that, and the claim is retried.
        """
        name = f"pvc-{claim.metadata.uid}"
        if self.lister(PersistentVolume).get(name) is not None:
            return
        storage_class = self.lister(StorageClass).get(_class_name(claim))
        if storage_class is None or storage_class.provisioner != PROVISIONER:
            return
        delayed = storage_class.volume_binding_mode == "WaitForFirstConsumer"
        if delayed and not claim.metadata.annotations.get(SELECTED_NODE):
            return
        text = f'External provisioner is provisioning volume for claim "{claim.metadata.namespace}/{claim.metadata.name}"'
        self.events.normal(claim, "Provisioning", text)
        try:
            _check(claim)
            node = await self._selected_node(claim) if delayed else None
            await self._check_directory(storage_class, node)
            await self.client.create(_volume(name, claim, storage_class, node))
        except AlreadyExists:
            return
        except KubeloopError as error:
            reason = error.status.message if isinstance(error, ApiError) else str(error)
            text = f'failed to provision volume with StorageClass "{storage_class.metadata.name}": {reason}'
            self.events.warning(claim, "ProvisioningFailed", text)
            raise
        self.events.normal(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {name}")

    async def _check_directory(self, storage_class: StorageClass, node: Node | None) -> None:
        """Refuse a directory that cannot be created, if the claim's pods run as processes of this machine. Nothing is written.

        Raises:
            ProvisioningFailed: With the reason.
        """
        nodes = [node] if node is not None else self.lister(Node).list()
        boot = _read(_BOOT_ID).strip()
        if not boot or not nodes or not all(_is_on_machine(one, boot) for one in nodes):
            return
        directory = Path(storage_class.parameters.get(DIRECTORY_PARAMETER, DIRECTORY))
        if fault := await self._in_thread(creation_fault, directory, _read(_MOUNTS)):
            raise ProvisioningFailed(f"failed to create a directory in {directory}: {fault}")

    async def _selected_node(self, claim: PersistentVolumeClaim) -> Node:
        """Return the node that the scheduler chose for a claim. If the node does not exist, request another choice by the scheduler.

        Raises:
            ProvisioningFailed: The node does not exist.
        """
        name = claim.metadata.annotations[SELECTED_NODE]
        node = self.lister(Node).get(name)
        if node is not None:
            return node
        try:
            return await self.client.get(Node, name)
        except NotFound as error:
            del claim.metadata.annotations[SELECTED_NODE]
            await self.client.update(claim)
            raise ProvisioningFailed(f"failed to get target node: {error.status.message}") from error

    # ------------------------------------------------------------------------------------------------------------------- deletion

    async def _delete(self, volume: PersistentVolume) -> None:
        try:
            await self._remove_directory(volume)
        except OSError as error:
            self.events.warning(volume, "VolumeFailedDelete", str(error.strerror or error))
            raise
        if volume.metadata.deletion_timestamp is None:
            await self.client.delete(volume, options=DeleteOptions(uid=volume.metadata.uid))
        await remove_finalizer(self.client, volume, FINALIZER)

    async def _remove_directory(self, volume: PersistentVolume) -> None:
        """Remove a volume's directory if this provisioner chose it: users may have changed the path in the volume."""
        source = volume.spec.host_path
        if self._root is None or source is None:
            return
        directory = self._root / volume.metadata.name
        if Path(source.path) == directory and directory.resolve() == self._root.resolve() / volume.metadata.name:
            await self._in_thread(shutil.rmtree, directory, ignore_errors=False, onerror=_unless_missing)


class StandardClassCreator(Controller[StorageClass], name="standard-storage-class"):
    """Creates the default storage class ``standard`` of the host-path provisioner when it starts, as kind and minikube do.

    It does nothing in a cluster that already has a default class.
    """

    async def start(self) -> None:
        classes = await self.client.list(StorageClass)
        if any(one.metadata.name == STANDARD_CLASS or _is_default(one) for one in classes):
            return
        metadata = ObjectMeta(name=STANDARD_CLASS, annotations={"storageclass.kubernetes.io/is-default-class": "true"})
        made = StorageClass(
            metadata=metadata,
            provisioner=PROVISIONER,
            reclaim_policy="Delete",
            volume_binding_mode="WaitForFirstConsumer",
            allow_volume_expansion=True,
        )
        try:
            await self.client.create(made)
        except AlreadyExists:
            return

    async def reconcile(self, storage_class: StorageClass) -> None:
        """Do nothing: users may change or delete the class."""


def _is_on_machine(node: Node, boot: str) -> bool:
    """Return whether a node's pods are processes of the machine that was booted with this id."""
    facts = node.status.node_info
    return facts.boot_id == boot and facts.container_runtime_version.startswith("process://")


def creation_fault(directory: Path, mounts: str) -> str:
    """Return why no user can create folders in a directory; empty if some user might.

    Args:
        directory: The directory, which need not exist.
        mounts: The text of /proc/self/mountinfo.
    """
    try:
        place = directory
        while not place.exists() and place != place.parent:
            place = place.parent
        place = place.resolve()
        if not place.is_dir():
            return f"{place} is not a directory"
        read_only = bool(os.statvfs(place).f_flag & os.ST_RDONLY)
    except OSError:
        return ""  # The kubelet's user may have more rights than this process.
    types: dict[Path, str] = {}
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        types[Path(fields.split()[4])] = rest.split()[0]
    kind = next((types[parent] for parent in (place, *place.parents) if parent in types), "")
    if kind in _KERNEL_FILE_SYSTEMS:
        return f"{place} is in a file system of the kernel ({kind})"
    return f"{place} is in a read-only file system" if read_only else ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _is_default(storage_class: StorageClass) -> bool:
    return storage_class.metadata.annotations.get("storageclass.kubernetes.io/is-default-class") == "true"


def _is_requested(claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume binder has requested a volume for a claim from this provisioner."""
    asked = next((claim.metadata.annotations[key] for key in _REQUESTED_OF if key in claim.metadata.annotations), "")
    return asked == PROVISIONER and not claim.spec.volume_name and claim.metadata.deletion_timestamp is None


def _is_expendable(volume: PersistentVolume) -> bool:
    return (
        volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER
        and volume.spec.persistent_volume_reclaim_policy == "Delete"
        and volume.status.phase in ("Released", "Failed")
        and (volume.metadata.deletion_timestamp is None or FINALIZER in volume.metadata.finalizers)
    )


def _class_name(claim: PersistentVolumeClaim) -> str:
    return claim.metadata.annotations.get(_CLASS_ANNOTATION, claim.spec.storage_class_name or "")


def _check(claim: PersistentVolumeClaim) -> None:
    """Check that a directory can satisfy a claim.

    Raises:
        ProvisioningFailed: The claim has a selector, a data source, or the volume mode Block.
    """
    if claim.spec.selector is not None:
        raise ProvisioningFailed("claim.Spec.Selector is not supported")
    if claim.spec.volume_mode == "Block":
        raise ProvisioningFailed(f"{PROVISIONER} does not support block volume provisioning")
    if claim.spec.data_source is not None or claim.spec.data_source_ref is not None:
        raise ProvisioningFailed(f"{PROVISIONER} cannot provision a claim with a data source")


def _volume(name: str, claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node | None) -> PersistentVolume:
    policy = storage_class.reclaim_policy or "Delete"
    directory = storage_class.parameters.get(DIRECTORY_PARAMETER, DIRECTORY)
    affinity = None
    if node is not None:
        hostname = node.metadata.labels.get(_HOSTNAME, node.metadata.name)
        expression = NodeSelectorRequirement(key=_HOSTNAME, operator="In", values=[hostname])
        term = NodeSelectorTerm(match_expressions=[expression])
        affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=[term]))
    reference = ObjectReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        resource_version=claim.metadata.resource_version,
    )
    return PersistentVolume(
        metadata=ObjectMeta(name=name, annotations={PROVISIONED_BY: PROVISIONER}, finalizers=[FINALIZER] if policy == "Delete" else []),
        spec=PersistentVolumeSpec(
            access_modes=claim.spec.access_modes,
            capacity={"storage": claim.spec.resources.requests["storage"]},
            claim_ref=reference,
            host_path=HostPathVolumeSource(path=str(Path(directory) / name), type="DirectoryOrCreate"),
            mount_options=storage_class.mount_options,
            node_affinity=affinity,
            persistent_volume_reclaim_policy=policy,
            storage_class_name=storage_class.metadata.name,
            volume_mode=claim.spec.volume_mode,
        ),
    )


def _unless_missing(_: object, __: str, failure: tuple[type[BaseException], BaseException, object]) -> None:
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]
