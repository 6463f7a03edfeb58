"""Files of volumes whose contents come from ConfigMaps, Secrets, tokens and the downward API, and the atomic update of such volumes.

Source: Kubernetes pkg/volume (configmap, secret, downwardapi, projected), pkg/volume/util/atomic_writer.go.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kubeloop.kubelet.environment import ConfigurationError, ConfigurationSources, PodFields, field_value, resource_value
from kubeloop.types import JSONObject

DEFAULT_MODE = 0o644
_DATA, _NEW_DATA = "..data", "..data_tmp"


@dataclass(frozen=True)
class VolumeFile:
    """The content and mode of one file of a volume."""

    data: bytes
    mode: int = DEFAULT_MODE


Payload = dict[str, VolumeFile]


def object_files(kind: str, source: JSONObject, data: Mapping[str, bytes] | None, default_mode: int) -> Payload:
    """Return the files that a volume gets from a ConfigMap or Secret, by path.

    Args:
        kind: ``ConfigMap`` or ``Secret``.
        source: The volume's source: ``items`` selects keys, ``optional`` allows missing keys.
        data: The object's data; None if the object is optional and does not exist.
        default_mode: The mode of files for which ``items`` has no mode.

    Raises:
        ConfigurationError: A key does not exist.
    """
    data = data or {}
    items = source.get("items")
    if not items:
        return {key: VolumeFile(value, default_mode) for key, value in data.items()}
    result: Payload = {}
    for item in items:
        if item["key"] in data:
            result[item["path"]] = VolumeFile(data[item["key"]], item.get("mode") or default_mode)
        elif not source.get("optional"):
            subject = "configmap references non-existent config key" if kind == "ConfigMap" else "references non-existent secret key"
            raise ConfigurationError(f"{subject}: {item['key']}")
    return result


def downward_files(pod: JSONObject, items: list[JSONObject], fields: PodFields, default_mode: int) -> Payload:
    """Return the files of a downward API source.

    Args:
        pod: The pod.
        items: ``path`` with ``fieldRef`` or ``resourceFieldRef``.
        fields: Addresses and node resources.
        default_mode: The mode of files for which ``items`` has no mode.

    Raises:
        ConfigurationError: A field, container or resource does not exist.
    """
    result: Payload = {}
    for item in items:
        if item.get("fieldRef"):
            text = field_value(pod, item["fieldRef"]["fieldPath"], fields)
        else:
            text = resource_value(pod, item["resourceFieldRef"], fields)
        result[item["path"]] = VolumeFile(text.encode(), item.get("mode") or default_mode)
    return result


def volume_references(volume: JSONObject) -> list[tuple[str, JSONObject]]:
    """Return the ConfigMaps and Secrets whose data a volume contains, each as its kind and its source with a ``name``."""
    result: list[tuple[str, JSONObject]] = []
    if volume.get("configMap"):
        result.append(("ConfigMap", volume["configMap"]))
    if volume.get("secret"):
        source = volume["secret"]
        result.append(("Secret", {**source, "name": source["secretName"]}))
    for source in (volume.get("projected") or {}).get("sources") or ():
        for kind, name in (("ConfigMap", "configMap"), ("Secret", "secret")):
            if source.get(name):
                result.append((kind, source[name]))
    return result


def volume_payload(
    pod: JSONObject, volume: JSONObject, sources: ConfigurationSources, fields: PodFields, tokens: Mapping[str, str]
) -> Payload:
    """Return the files of a ConfigMap, Secret, downward API or projected volume.

    Args:
        pod: The pod.
        volume: The volume.
        sources: The ConfigMaps and Secrets that the volume refers to.
        fields: Addresses and node resources for the downward API.
        tokens: Tokens of ``serviceAccountToken`` sources, by their path.

    Raises:
        ConfigurationError: An object or key does not exist, or a source is not implemented.
    """
    if volume.get("downwardAPI") is not None:
        source = volume["downwardAPI"]
        return downward_files(pod, source.get("items") or [], fields, source.get("defaultMode") or DEFAULT_MODE)
    projected = volume.get("projected")
    mode = ((projected or volume.get("configMap") or volume.get("secret") or {}).get("defaultMode")) or DEFAULT_MODE
    result: Payload = {}
    for kind, source in volume_references(volume):
        data = sources.data(kind, source["name"], optional=bool(source.get("optional")))
        result |= object_files(kind, source, data, mode)
    for source in (projected or {}).get("sources") or ():
        if source.get("downwardAPI") is not None:
            result |= downward_files(pod, source["downwardAPI"].get("items") or [], fields, mode)
        elif source.get("serviceAccountToken"):
            path = source["serviceAccountToken"]["path"]
            result[path] = VolumeFile(tokens[path].encode(), mode)
        elif not (source.get("configMap") or source.get("secret")):
            raise ConfigurationError(f"the projected source {next(iter(source), '')} is not implemented by process pods")
    return result


def write_payload(folder: Path, payload: Payload, now: datetime, *, group: int | None = None) -> bool:
    """Replace the files of a volume atomically, so that a reader never sees a mixture; return whether contents or paths changed.

    The files are in a folder named after the time, to which ``..data`` links; each visible name links through ``..data``.

    Args:
        folder: The volume's folder, which exists.
        payload: Files by their path below the folder.
        now: The time in the name of the new folder.
        group: The group that owns the files (fsGroup); None leaves the group unchanged.

    Raises:
        OSError: The folder cannot be written.
    """
    current = folder / _DATA
    if current.is_symlink() and _read_payload(current.resolve()) == {path: one.data for path, one in payload.items()}:
        return False
    old = current.readlink().name if current.is_symlink() else ""
    fresh = folder / f"..{now:%Y_%m_%d_%H_%M_%S}.{now.microsecond:06}{os.urandom(2).hex()}"
    fresh.mkdir(mode=0o755)
    for path, one in payload.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(one.data)
        mode = one.mode | (0o440 if group is not None else 0)
        if group is not None:
            with contextlib.suppress(PermissionError):
                os.chown(target, -1, group)
        target.chmod(mode)
    link = folder / _NEW_DATA
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    link.rename(current)
    names = {path.split("/", 1)[0] for path in payload}
    for name in names:
        visible = folder / name
        if not visible.is_symlink():
            visible.symlink_to(f"{_DATA}/{name}")
    for entry in folder.iterdir():
        if entry.is_symlink() and not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    if old:
        shutil.rmtree(folder / old, ignore_errors=True)
    return True


def _read_payload(folder: Path) -> dict[str, bytes]:
    try:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    except OSError:
        return {}
