"""Volumes of pods as folders of this machine: made, filled, updated, and bound to the mount paths of containers.

Source: Kubernetes pkg/volume, pkg/kubelet/volumemanager, pkg/kubelet/token (renewal), pkg/volume/util/subpath.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from kubeloop.api.core.v1 import ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret
from kubeloop.client import Client
from kubeloop.codec import to_dict
from kubeloop.kubelet.environment import ConfigurationError, ConfigurationSources, PodFields, expand
from kubeloop.kubelet.runtime import BindMount
from kubeloop.kubelet.volume_files import volume_payload, volume_references, write_payload
from kubeloop.meta import ApiError, Forbidden, NotFound
from kubeloop.types import JSONObject

#: Plug-in names of the folders below ``volumes``, as kubelet's.
_PLUGINS = {
    "emptyDir": "kubernetes.io~empty-dir",
    "configMap": "kubernetes.io~configmap",
    "secret": "kubernetes.io~secret",
    "projected": "kubernetes.io~projected",
    "downwardAPI": "kubernetes.io~downward-api",
}
_FILLED = ("configMap", "secret", "projected", "downwardAPI")
#: Tokens are renewed after this part of their lifetime, and at the latest after a day.
_RENEWAL, _LONGEST = 0.8, timedelta(hours=24)


class VolumeError(Exception):
    """A volume cannot be mounted; the text is that of the Event FailedMount."""


@dataclass
class _Token:
    value: str
    renew_at: datetime


@dataclass
class PodVolumes:
    """The volumes of one pod: the path of each on this machine."""

    paths: dict[str, Path] = field(default_factory=dict)
    tokens: dict[tuple[str, str], _Token] = field(default_factory=dict)


class ObjectReader:
    """Reads what pods refer to, with the node's own rights."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def sources(self, namespace: str, references: Iterable[tuple[str, str]]) -> ConfigurationSources:
        """Return the data of ConfigMaps and Secrets; missing ones are None.

        Raises:
            ApiError: The server does not answer the request.
        """
        wanted = sorted(set(references))
        found = await asyncio.gather(*(self._data(kind, name, namespace) for kind, name in wanted))
        return ConfigurationSources(dict(zip(wanted, found, strict=True)))

    async def _data(self, kind: str, name: str, namespace: str) -> dict[str, bytes] | None:
        try:
            if kind == "ConfigMap":
                config_map = await self._client.get(ConfigMap, name, namespace=namespace)
                return {**{key: value.encode() for key, value in config_map.data.items()}, **config_map.binary_data}
            secret = await self._client.get(Secret, name, namespace=namespace)
            return dict(secret.data)
        except NotFound:
            return None
        except Forbidden as error:
            # The authorizer learns the references of a pod from its own watch, which may be a moment behind.
            raise VolumeError(str(error)) from None

    async def host_path(self, claim: str, namespace: str) -> JSONObject:
        """Return the ``hostPath`` source of a claim's volume.

        Raises:
            VolumeError: The claim is not bound, or its volume is of another type.
        """
        try:
            bound = await self._client.get(PersistentVolumeClaim, claim, namespace=namespace)
        except (NotFound, Forbidden):
            raise VolumeError(f'persistentvolumeclaim "{claim}" not found') from None
        if bound.status.phase != "Bound" or not bound.spec.volume_name:
            raise VolumeError(f"PVC {namespace}/{claim} has non-bound phase ({bound.status.phase}) or empty pvc.Spec.VolumeName")
        volume = to_dict(await self._client.get(PersistentVolume, bound.spec.volume_name))
        spec = volume["spec"]
        if spec.get("hostPath"):
            return dict(spec["hostPath"])
        if spec.get("local"):
            return {"path": spec["local"]["path"], "type": "Directory"}
        kind = next((name for name in spec if name not in _COMMON), "unknown")
        raise VolumeError(f"volume {volume['metadata']['name']} is of type {kind}; process pods mount hostPath and local volumes")

    async def token(self, pod: Pod, source: JSONObject) -> tuple[str, datetime]:
        """Return a new token of the pod's service account, and when it expires."""
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
    """Makes the volumes of pods below ``pods/UID/volumes`` of the kubelet's folder, and writes changes of their sources into them."""

    def __init__(self, folder: Path, reader: ObjectReader, now: Callable[[], datetime]) -> None:
        self._folder = folder
        self._reader = reader
        self._now = now

    def pod_folder(self, uid: str) -> Path:
        return self._folder / "pods" / uid

    async def mount(self, pod: Pod, tree: JSONObject, volumes: PodVolumes, fields: PodFields) -> None:
        """Make the volumes of a pod, or update the volumes whose contents come from the API server.

        Args:
            pod: The pod.
            tree: The pod as a tree.
            volumes: Its volumes so far; completed.
            fields: Addresses and node resources for the downward API.

        Raises:
            VolumeError: A volume cannot be made; the others may be.
            ApiError: The server does not answer a request.
        """
        spec = tree["spec"]
        group = (spec.get("securityContext") or {}).get("fsGroup")
        for volume in spec.get("volumes") or ():
            try:
                volumes.paths[volume["name"]] = await self._mount(pod, tree, volume, volumes, fields, group)
            except ConfigurationError as error:
                raise VolumeError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from None
            except VolumeError as error:
                raise VolumeError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from None
            except OSError as error:
                text = f"{error.filename or self._folder}: {(error.strerror or str(error)).lower()}"
                raise VolumeError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {text}') from None

    async def _mount(
        self, pod: Pod, tree: JSONObject, volume: JSONObject, volumes: PodVolumes, fields: PodFields, group: int | None
    ) -> Path:
        name = volume["name"]
        kind = next((one for one in volume if one != "name"), "emptyDir")
        if kind in _PLUGINS:
            folder: Path = self.pod_folder(pod.metadata.uid) / "volumes" / _PLUGINS[kind] / name
            _make_folder(folder, kind, group)
            if kind in _FILLED:
                references = [(kind, source["name"]) for kind, source in volume_references(volume)]
                sources = await self._reader.sources(pod.metadata.namespace, references)
                tokens = await self._tokens(pod, volume, volumes)
                payload = volume_payload(tree, volume, sources, fields, tokens)
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
                        result[token["path"]] = known.value  # the former token is valid for a while
                        continue
                    raise VolumeError(f"failed to fetch token: {error}") from None
                known = volumes.tokens[key] = _Token(value, now + min((expires - now) * _RENEWAL, _LONGEST))
            result[token["path"]] = known.value
        return result

    def unmount(self, uid: str) -> None:
        """Delete the folder of a pod that is gone, with its volumes; what other volumes refer to stays."""
        shutil.rmtree(self.pod_folder(uid), ignore_errors=True)

    def known_pods(self) -> list[str]:
        """Return the uids of the pods that have a folder."""
        folder = self._folder / "pods"
        return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


def _make_folder(folder: Path, kind: str, group: int | None) -> None:
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777 if kind == "emptyDir" else 0o755)
    if group is not None and kind == "emptyDir" and os.geteuid() == 0:
        os.chown(folder, -1, group)
        folder.chmod(0o2777)


def checked_host_path(source: JSONObject) -> Path:
    """Return the path of a hostPath volume, made or checked as its type says.

    Raises:
        VolumeError: The path does not have the type.
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
        # A container runtime makes the missing source of a bind mount.
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    return path


def container_mounts(container: JSONObject, volumes: PodVolumes, environment: dict[str, str]) -> list[BindMount]:
    """Return the bind mounts of a container's volumes.

    Args:
        container: The container.
        volumes: The volumes of its pod.
        environment: Its variables, for ``subPathExpr``.

    Raises:
        ConfigurationError: A volume is not mounted, or a subPath leaves its volume.
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
