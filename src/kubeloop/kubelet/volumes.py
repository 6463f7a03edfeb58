"""Volumes of pods as folders of this machine: their creation, contents, updates, and bind mounts in containers.

Source: Kubernetes pkg/volume, pkg/kubelet/volumemanager, pkg/kubelet/token (renewal), pkg/volume/util/subpath.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from kubeloop.api.core.v1 import ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret
from kubeloop.client import Client
from kubeloop.codec import to_dict
from kubeloop.kubelet.environment import ConfigurationError, ConfigurationSources, PodFields, expand
from kubeloop.kubelet.memory_volumes import mount_memory, unmount_memory
from kubeloop.kubelet.runtime import BindMount
from kubeloop.kubelet.volume_files import volume_payload, volume_references, write_payload
from kubeloop.meta import ApiError, DeadlineError, Forbidden, NotFound, Quantity
from kubeloop.types import JSONObject

#: Names of the folders below ``volumes`` for each type of volume: the kubelet's plug-in names.
_PLUGINS = {
    "emptyDir": "kubernetes.io~empty-dir",
    "configMap": "kubernetes.io~configmap",
    "secret": "kubernetes.io~secret",
    "projected": "kubernetes.io~projected",
    "downwardAPI": "kubernetes.io~downward-api",
}
#: Types of volumes whose files come from the API server; they are updated while the pod runs.
FILLED_KINDS = ("configMap", "secret", "projected", "downwardAPI")
#: Kind and name of an object in the pod's namespace: a ConfigMap, Secret or PersistentVolumeClaim.
ObjectReference = tuple[str, str]
#: Seconds between two reads of a claim, and of one watch of another object: the Node authorizer allows no watch of claims.
_CLAIM_POLL, _WATCH = 1.0, 3600.0
#: Tokens are renewed after this fraction of their lifetime, and after a day at the latest.
_RENEWAL, _LONGEST = 0.8, timedelta(hours=24)


class VolumeError(Exception):
    """A volume cannot be mounted; the text is the message of the Event FailedMount.

    ``versions`` are the resource versions of the objects that the volume needs; empty for an object that does not exist.
    """

    def __init__(self, message: str, versions: Mapping[ObjectReference, str] | None = None) -> None:
        super().__init__(message)
        self.versions = dict(versions or {})


@dataclass
class _Token:
    value: str
    renew_at: datetime


@dataclass
class PodVolumes:
    """The volumes of one pod: their paths on this machine by name, and their service account tokens by volume and path."""

    paths: dict[str, Path] = field(default_factory=dict)
    tokens: dict[tuple[str, str], _Token] = field(default_factory=dict)


class ObjectReader:
    """Reads the objects that pods refer to (ConfigMaps, Secrets, claims) and requests tokens, with the node's credentials."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def sources(self, namespace: str, references: Iterable[tuple[str, str]]) -> ConfigurationSources:
        """Return the data of ConfigMaps and Secrets of a namespace, from references by kind and name; None for a missing object.

        Raises:
            VolumeError: The node may not read an object.
            ApiError: Another error of the server.
        """
        wanted = sorted(set(references))
        found = await asyncio.gather(*(self._data(kind, name, namespace) for kind, name in wanted))
        data = dict(zip(wanted, (data for data, _ in found), strict=True))
        return ConfigurationSources(data, dict(zip(wanted, (version for _, version in found), strict=True)))

    async def _data(self, kind: str, name: str, namespace: str) -> tuple[dict[str, bytes] | None, str]:
        try:
            if kind == "ConfigMap":
                config_map = await self._client.get(ConfigMap, name, namespace=namespace)
                texts = {key: value.encode() for key, value in config_map.data.items()}
                return {**texts, **config_map.binary_data}, config_map.metadata.resource_version
            secret = await self._client.get(Secret, name, namespace=namespace)
            return dict(secret.data), secret.metadata.resource_version
        except NotFound:
            return None, ""
        except Forbidden as error:
            # The node authorizer learns the references of a pod from its own watch, which may lag behind.
            raise VolumeError(str(error)) from None

    async def host_path(self, claim: str, namespace: str) -> JSONObject:
        """Return the path and type of the hostPath or local volume to which a claim is bound.

        Raises:
            VolumeError: The claim does not exist, is not bound, or its volume is of another type.
        """
        reference = ("PersistentVolumeClaim", claim)
        try:
            bound = await self._client.get(PersistentVolumeClaim, claim, namespace=namespace)
        except (NotFound, Forbidden):
            raise VolumeError(f'persistentvolumeclaim "{claim}" not found', {reference: ""}) from None
        versions = {reference: bound.metadata.resource_version}
        if bound.status.phase != "Bound" or not bound.spec.volume_name:
            text = f"PVC {namespace}/{claim} has non-bound phase ({bound.status.phase}) or empty pvc.Spec.VolumeName"
            raise VolumeError(text, versions)
        try:
            volume = to_dict(await self._client.get(PersistentVolume, bound.spec.volume_name))
        except (NotFound, Forbidden):
            raise VolumeError(f'persistentvolume "{bound.spec.volume_name}" not found', versions) from None
        spec = volume["spec"]
        if spec.get("hostPath"):
            return dict(spec["hostPath"])
        if spec.get("local"):
            return {"path": spec["local"]["path"], "type": "Directory"}
        kind = next((name for name in spec if name not in _COMMON), "unknown")
        raise VolumeError(f"volume {volume['metadata']['name']} is of type {kind}; process pods mount hostPath and local volumes")

    async def wait_changed(self, namespace: str, reference: ObjectReference, version: str) -> None:
        """Wait until an object exists with another resource version.

        Args:
            namespace: The object's namespace.
            reference: The object's kind and name.
            version: The known resource version; empty if the object did not exist.

        Raises:
            KubeloopError: The node may not watch the object, or the client is closed.
        """
        kind, name = reference
        if kind != "PersistentVolumeClaim":
            watched: type[ConfigMap | Secret] = ConfigMap if kind == "ConfigMap" else Secret
            while True:
                with contextlib.suppress(DeadlineError):
                    await self._client.wait_for(
                        watched, name, lambda stored: stored.metadata.resource_version != version, timeout=_WATCH, namespace=namespace
                    )
                    return
        while True:
            await self._client.clock.sleep(_CLAIM_POLL)
            with contextlib.suppress(NotFound, Forbidden):
                claim = await self._client.get(PersistentVolumeClaim, name, namespace=namespace)
                if claim.metadata.resource_version != version:
                    return

    async def token(self, pod: Pod, source: JSONObject) -> tuple[str, datetime]:
        """Request a token of the pod's service account for a projected source; return the token and its expiration time."""
        audience = source.get("audience")
        request = await self._client.service_accounts.create_token(
            pod.spec.service_account_name or "default",
            namespace=pod.metadata.namespace,
            audiences=[audience] if audience else (),
            expiration_seconds=source.get("expirationSeconds") or 3600,
            bound_to=pod,
        )
        expires = request.status.expiration_timestamp
        assert expires is not None, "a token has an expiry"
        return request.status.token, expires


_COMMON = frozenset(
    {
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeMode",
        "nodeAffinity",
        "mountOptions",
    }
)


class VolumeManager:
    """Creates the volumes of pods in ``pods/UID/volumes`` of the kubelet's folder, and updates their files when the sources change."""

    def __init__(self, folder: Path, reader: ObjectReader, now: Callable[[], datetime]) -> None:
        self._folder = folder
        self._reader = reader
        self._now = now

    def pod_folder(self, uid: str) -> Path:
        return self._folder / "pods" / uid

    async def mount(self, pod: Pod, tree: JSONObject, volume: JSONObject, volumes: PodVolumes, fields: PodFields) -> Path:
        """Create a volume of a pod, or update it if its contents come from the API server; return its path on this machine.

        Args:
            pod: The pod.
            tree: The pod as a JSON object.
            volume: The volume.
            volumes: The pod's volumes so far, whose tokens are used and renewed.
            fields: Addresses and node resources for the downward API.

        Raises:
            VolumeError: The volume cannot be created or updated.
            ApiError: A request to the server failed.
        """
        group, versions = (tree["spec"].get("securityContext") or {}).get("fsGroup"), {}
        try:
            return await self._mount(pod, tree, volume, volumes, fields, group)
        except VolumeError as error:
            text, versions = str(error), error.versions
        except ConfigurationError as error:
            text = str(error)
        except OSError as error:
            text = f"{error.filename or self._folder}: {(error.strerror or str(error)).lower()}"
        raise VolumeError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {text}', versions)

    async def wait_changed(self, namespace: str, reference: ObjectReference, version: str) -> None:
        """Wait until an object exists with another resource version; see ``ObjectReader.wait_changed``."""
        await self._reader.wait_changed(namespace, reference, version)

    async def _mount(
        self, pod: Pod, tree: JSONObject, volume: JSONObject, volumes: PodVolumes, fields: PodFields, group: int | None
    ) -> Path:
        name = volume["name"]
        kind = volume_kind(volume)
        if kind in _PLUGINS:
            folder: Path = self.pod_folder(pod.metadata.uid) / "volumes" / _PLUGINS[kind] / name
            _make_folder(folder, kind, group)
            if (volume.get("emptyDir") or {}).get("medium") == "Memory":
                mount_memory(folder, Quantity(volume["emptyDir"].get("sizeLimit") or 0).value())
            if kind in FILLED_KINDS:
                references = [(kind, source["name"]) for kind, source in volume_references(volume)]
                sources = await self._reader.sources(pod.metadata.namespace, references)
                tokens = await self._tokens(pod, volume, volumes)
                try:
                    payload = volume_payload(tree, volume, sources, fields, tokens)
                except ConfigurationError as error:
                    raise VolumeError(str(error), sources.versions) from None
                write_payload(folder, payload, self._now(), group=group if os.geteuid() == 0 else None)
            return folder
        if kind == "hostPath":
            return checked_host_path(volume["hostPath"])
        if kind == "persistentVolumeClaim":
            source = await self._reader.host_path(volume["persistentVolumeClaim"]["claimName"], pod.metadata.namespace)
        elif kind == "ephemeral":
            source = await self._reader.host_path(f"{pod.metadata.name}-{name}", pod.metadata.namespace)
        else:
            raise VolumeError(f"process pods have no volumes of type {kind}")
        return checked_host_path({"type": "DirectoryOrCreate", **{key: value for key, value in source.items() if value}})

    async def _tokens(self, pod: Pod, volume: JSONObject, volumes: PodVolumes) -> dict[str, str]:
        result = {}
        for source in (volume.get("projected") or {}).get("sources") or ():
            token = source.get("serviceAccountToken")
            if not token:
                continue
            key, now = (volume["name"], token["path"]), self._now()
            known = volumes.tokens.get(key)
            if known is None or now >= known.renew_at:
                try:
                    value, expires = await self._reader.token(pod, token)
                except ApiError as error:
                    if known is not None:
                        result[token["path"]] = known.value  # the previous token is still valid for a while
                        continue
                    raise VolumeError(f"failed to fetch token: {error}") from None
                known = volumes.tokens[key] = _Token(value, now + min((expires - now) * _RENEWAL, _LONGEST))
            result[token["path"]] = known.value
        return result

    def unmount(self, uid: str) -> None:
        """Delete the folder of a pod, with its volumes. Paths of hostPath volumes and claims stay."""
        unmount_memory(self.pod_folder(uid))
        shutil.rmtree(self.pod_folder(uid), ignore_errors=True)

    def known_pods(self) -> list[str]:
        """Return the uids of the pods that have a folder."""
        folder = self._folder / "pods"
        return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


def volume_kind(volume: JSONObject) -> str:
    """Return the type of a volume: the name of its source, such as ``configMap``."""
    return next((one for one in volume if one != "name"), "emptyDir")


def _make_folder(folder: Path, kind: str, group: int | None) -> None:
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777 if kind == "emptyDir" else 0o755)
    if group is not None and kind == "emptyDir" and os.geteuid() == 0:
        os.chown(folder, -1, group)
        folder.chmod(0o2777)


def checked_host_path(source: JSONObject) -> Path:
    """Return the path of a hostPath volume, after creating or checking it according to its type.

    Raises:
        VolumeError: The path does not exist or is not of the type.
        OSError: The path cannot be created.
    """
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    elif kind == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644)
    checks = {
        "DirectoryOrCreate": ("a directory", stat.S_ISDIR),
        "Directory": ("a directory", stat.S_ISDIR),
        "FileOrCreate": ("a file", stat.S_ISREG),
        "File": ("a file", stat.S_ISREG),
        "Socket": ("a socket file", stat.S_ISSOCK),
        "CharDevice": ("a character device", stat.S_ISCHR),
        "BlockDevice": ("a block device", stat.S_ISBLK),
    }
    if kind in checks:
        description, matches = checks[kind]
        if not path.exists() or not matches(path.stat().st_mode):
            raise VolumeError(f"hostPath type check failed: {path} is not {description}")
    elif not path.exists():
        # As a container runtime does for the missing source of a bind mount.
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    return path


def container_mounts(container: JSONObject, volumes: PodVolumes, environment: dict[str, str]) -> list[BindMount]:
    """Return the bind mounts of a container's volumes.

    Args:
        container: The container.
        volumes: The volumes of its pod.
        environment: The container's variables, which ``subPathExpr`` may use.

    Raises:
        ConfigurationError: The pod has no such volume, or a subPath leads out of its volume or cannot be created.
    """
    result = []
    for mount in container.get("volumeMounts") or ():
        source = volumes.paths.get(mount["name"])
        if source is None:
            raise ConfigurationError(f'cannot find volume "{mount["name"]}" to mount into container "{container["name"]}"')
        part = mount.get("subPath") or expand(mount.get("subPathExpr") or "", environment)
        if part:
            source = _inside(source, part, mount, container)
        result.append(BindMount(source, mount["mountPath"], bool(mount.get("readOnly"))))
    return result


def _inside(volume: Path, part: str, mount: JSONObject, container: JSONObject) -> Path:
    subject = f'failed to prepare subPath for volumeMount "{mount["name"]}" of container "{container["name"]}"'
    if part.startswith("/") or ".." in Path(part).parts:
        raise ConfigurationError(subject)
    target = (volume / part).resolve()
    if not target.is_relative_to(volume.resolve()):
        raise ConfigurationError(subject)
    if not target.exists():
        try:
            target.mkdir(parents=True)
        except OSError as error:
            raise ConfigurationError(f"{subject}: {error.strerror}") from None
    return target
