"""Validates volumes of a pod and their mounts. Source: ValidateVolumes, ValidateVolumeMounts, ValidateVolumeDevices."""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.apiserver.builtin.claims import validate_claim_template
from kubeloop.apiserver.builtin.pods.environment import VOLUME_FIELDS, validate_object_field, validate_resource_field
from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.builtin.pods.volume_plugins import PLUGINS
from kubeloop.apiserver.builtin.quantities import quantity
from kubeloop.apiserver.validation.formats import (
    check_file_mode,
    check_local_non_reserved_path,
    check_local_path,
    check_no_parent_steps,
    check_one_of,
    validate_dns_label_field,
)
from kubeloop.meta.field_error import Errors, FieldError, duplicate, forbidden, invalid, not_found, required
from kubeloop.meta.names import dns1123_subdomain
from kubeloop.types import JSONObject

# Projected volumes and the files of downward API, ConfigMap and Secret volumes. Source: validateProjectionSources, validateKeyToPath.


def validate_key_to_path(path: str, item: JSONObject) -> Errors:
    """Validate the path of a key."""
    for name in ("key", "path"):
        if not item.get(name):
            yield required(f"{path}.{name}")
    yield from check_local_non_reserved_path(f"{path}.path", item.get("path", ""))
    yield from check_file_mode(f"{path}.mode", item.get("mode"))


def validate_downward_file(path: str, item: JSONObject) -> Errors:
    """Validate a file of the downward API."""
    if not item.get("path"):
        yield required(f"{path}.path")
    yield from check_local_non_reserved_path(f"{path}.path", item.get("path", ""))
    if item.get("fieldRef") is not None:
        yield from validate_object_field(f"{path}.fieldRef", item["fieldRef"], VOLUME_FIELDS)
        if item.get("resourceFieldRef") is not None:
            yield invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
    elif item.get("resourceFieldRef") is not None:
        yield from validate_resource_field(f"{path}.resourceFieldRef", item["resourceFieldRef"], volume=True)
    else:
        yield required(path, "one of fieldRef and resourceFieldRef is required")
    yield from check_file_mode(f"{path}.mode", item.get("mode"))


def validate_projected_volume(path: str, volume: JSONObject, *, any_token_path: bool) -> Errors:
    """Validate a projected volume. ``any_token_path`` accepts any path of a token."""
    yield from check_file_mode(f"{path}.defaultMode", volume.get("defaultMode"))
    taken: set[str] = set()
    for index, source in enumerate(volume.get("sources") or ()):
        here = f"{path}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if source.get(kind) is not None:
                yield from _keys(path, f"{here}.{kind}", source[kind], taken)
        if source.get("downwardAPI") is not None:
            for item in source["downwardAPI"].get("items") or ():
                yield from validate_downward_file(f"{here}.downwardAPI", item)
                if item.get("path"):
                    yield from _claim_path(path, item["path"], item["path"], taken)
        if source.get("serviceAccountToken") is not None:
            yield from _token(path, f"{here}.serviceAccountToken", source["serviceAccountToken"], any_token_path)
        if sum(value is not None for value in source.values()) > 1:
            yield forbidden(here, "may not specify more than 1 volume type per source")


def _claim_path(path: str, shown: str, target: str, taken: set[str]) -> Errors:
    if target in taken:
        yield invalid(path, shown, "conflicting duplicate paths")
    taken.add(target)


def _keys(volume_path: str, path: str, source: JSONObject, taken: set[str]) -> Errors:
    if not source.get("name"):
        yield required(f"{path}.name")
    for index, item in enumerate(source.get("items") or ()):
        yield from validate_key_to_path(f"{path}.items[{index}]", item)
        if item.get("path"):
            yield from _claim_path(volume_path, source.get("name", ""), item["path"], taken)


def _token(volume_path: str, path: str, token: JSONObject, any_path: bool) -> Errors:
    seconds = token.get("expirationSeconds") or 0
    if seconds < 600:
        yield invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds > 1 << 32:
        yield invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    if not token.get("path"):
        yield required(f"{volume_path}.path")
    elif not any_path:
        yield from check_local_non_reserved_path(f"{volume_path}.path", token["path"])


_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
#: In upstream's order, with the paths that upstream misspells.
_SOURCES = (
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
)
_SECOND_PATHS = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
_FIRST_PATHS = {"gcePersistentDisk": "persistentDisk"}


def validate_volumes(
    path: str, value: list[JSONObject], metadata: JSONObject | None, options: PodOptions
) -> tuple[dict[str, JSONObject], list[FieldError]]:
    """Validate the volumes of a pod.

    Args:
        path: Path of the list.
        value: The volumes.
        metadata: Metadata of a pod; None for templates.
        options: Options of the validation.

    Returns:
        The valid volumes by name, for the validation of mounts, and the errors.
    """
    pod_name = (metadata or {}).get("name", "")
    created = {f"{pod_name}-{volume.get('name', '')}" for volume in value if pod_name and volume.get("ephemeral") is not None}
    errors: list[FieldError] = []
    valid: dict[str, JSONObject] = {}
    for index, volume in enumerate(value):
        here, name = f"{path}[{index}]", volume.get("name", "")
        own = list(_source(here, volume, pod_name, options))
        own += validate_dns_label_field(f"{here}.name", name) if name else [required(f"{here}.name")]
        if name in valid:
            own.append(duplicate(f"{here}.name", name))
        if own:
            errors += own
        else:
            valid[name] = volume
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and claim.get("claimName", "") in created:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid(f"{here}.persistentVolumeClaim.claimName", claim["claimName"], detail))
    return valid, errors


def _source(path: str, volume: JSONObject, pod_name: str, options: PodOptions) -> Errors:
    count = 0
    empty = volume.get("emptyDir")
    if empty is not None:
        count = 1
        if empty.get("sizeLimit") is not None and quantity(empty["sizeLimit"]) < 0:
            yield forbidden(f"{path}.emptyDir.sizeLimit", "SizeLimit field must be a valid resource quantity")
    for name in _SOURCES:
        source = volume.get(name)
        if source is None:
            continue
        if count:
            yield forbidden(f"{path}.{_SECOND_PATHS.get(name, name)}", "may not specify more than 1 volume type")
        else:
            count = 1
            yield from _one_source(f"{path}.{_FIRST_PATHS.get(name, name)}", name, source, options)
            if name == "ephemeral" and pod_name and volume.get("name"):
                claim = f"{pod_name}-{volume['name']}"
                for message in dns1123_subdomain(claim):
                    yield invalid(f"{path}.name", volume["name"], f'PVC name "{claim}": {message}')
        if (
            name == "iscsi"
            and source.get("initiatorName") is not None
            and len(f"{volume.get('name', '')}:{source.get('targetPortal', '')}") > 64
        ):
            detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."
            yield invalid(f"{path}.name", volume.get("name", ""), detail)
    if not count:
        yield required(path, "must specify a volume type")


def _one_source(path: str, name: str, source: JSONObject, options: PodOptions) -> Errors:
    if name == "projected":
        yield from validate_projected_volume(path, source, any_token_path=options.any_token_path)
    elif name == "image":
        if options.is_pod and not source.get("reference"):
            yield required(f"{path}.reference")
        yield from validate_pull_policy(f"{path}.pullPolicy", source.get("pullPolicy", ""))
    elif name in _OWN:
        yield from _OWN[name](path, source)
    else:
        yield from PLUGINS[name](path, source)


def validate_pull_policy(path: str, policy: str) -> Errors:
    """Validate the pull policy of an image volume."""
    if not policy:
        yield required(path)
    else:
        yield from check_one_of(path, policy, ("Always", "IfNotPresent", "Never"))


def validate_host_path(path: str, source: JSONObject) -> Errors:
    """Validate a hostPath volume."""
    if not source.get("path"):
        yield required(f"{path}.path")
        return
    yield from check_no_parent_steps(f"{path}.path", source["path"])
    if source.get("type") is not None:
        yield from check_one_of(f"{path}.type", source["type"], _HOST_PATH_TYPES)


def _git_repo(path: str, source: JSONObject) -> Errors:
    if not source.get("repository"):
        yield required(f"{path}.repository")
    yield from check_local_path(f"{path}.directory", source.get("directory", ""))


def _files(path: str, source: JSONObject, name: str) -> Errors:
    if not source.get(name):
        yield required(f"{path}.{name}")
    yield from check_file_mode(f"{path}.defaultMode", source.get("defaultMode"))
    for index, item in enumerate(source.get("items") or ()):
        yield from validate_key_to_path(f"{path}.items[{index}]", item)


def _downward(path: str, source: JSONObject) -> Errors:
    yield from check_file_mode(f"{path}.defaultMode", source.get("defaultMode"))
    for item in source.get("items") or ():
        yield from validate_downward_file(path, item)


def _ephemeral(path: str, source: JSONObject) -> Errors:
    template = source.get("volumeClaimTemplate")
    if template is None:
        yield required(f"{path}.volumeClaimTemplate")
    else:
        yield from validate_claim_template(f"{path}.volumeClaimTemplate", template)


def _claim(path: str, source: JSONObject) -> Errors:
    if not source.get("claimName"):
        yield required(f"{path}.claimName")


_OWN: dict[str, Callable[[str, JSONObject], Errors]] = {
    "hostPath": validate_host_path,
    "gitRepo": _git_repo,
    "secret": lambda path, source: _files(path, source, "secretName"),
    "configMap": lambda path, source: _files(path, source, "name"),
    "downwardAPI": _downward,
    "ephemeral": _ephemeral,
    "persistentVolumeClaim": _claim,
}


def validate_mounts(path: str, container: JSONObject, known: dict[str, JSONObject]) -> Errors:
    """Validate the volume mounts of a container. ``known`` are the volumes by name."""
    devices = {device.get("name", ""): device.get("devicePath", "") for device in container.get("volumeDevices") or ()}
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        item_path, name, mount_path = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield required(f"{item_path}.name")
        if name not in known:
            yield not_found(f"{item_path}.name", name)
        if not mount_path:
            yield required(f"{item_path}.mountPath")
        if mount_path in seen:
            yield invalid(f"{item_path}.mountPath", mount_path, "must be unique")
        seen.add(mount_path)
        if name in devices:
            yield invalid(f"{item_path}.name", name, "must not already exist in volumeDevices")
        if mount_path in devices.values():
            yield invalid(f"{item_path}.mountPath", mount_path, "must not already exist as a path in volumeDevices")
        # Upstream leaves the index out of the paths from here on.
        if mount.get("subPath"):
            yield from check_local_path(f"{path}.subPath", mount["subPath"])
        if mount.get("subPathExpr"):
            if mount.get("subPath"):
                yield invalid(f"{item_path}.subPathExpr", mount["subPathExpr"], "subPathExpr and subPath are mutually exclusive")
            yield from check_local_path(f"{path}.subPathExpr", mount["subPathExpr"])
        yield from _propagation(f"{path}.mountPropagation", mount, container)
        yield from _read_only(f"{path}.recursiveReadOnly", mount)


def _propagation(path: str, mount: JSONObject, container: JSONObject) -> Errors:
    mode = mount.get("mountPropagation")
    if mode is None:
        return
    yield from check_one_of(path, mode, ("Bidirectional", "HostToContainer", "None"))
    if mode == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
        yield forbidden(path, "Bidirectional mount propagation is available only to privileged containers")


def _read_only(path: str, mount: JSONObject) -> Errors:
    mode = mount.get("recursiveReadOnly")
    if mode in (None, "Disabled"):
        return
    if mode in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            yield forbidden(path, "may only be specified when readOnly is true")
        if mount.get("mountPropagation") not in (None, "None"):
            yield forbidden(path, "may only be specified when mountPropagation is None or not specified")
    else:
        yield from check_one_of(path, mode, ("Disabled", "Enabled", "IfPossible"))


def validate_devices(path: str, container: JSONObject, known: dict[str, JSONObject]) -> Errors:
    """Validate the volume devices of a container. ``known`` are the volumes by name."""
    mounted = {mount.get("name", ""): mount.get("mountPath", "") for mount in container.get("volumeMounts") or ()}
    paths: set[str] = set()
    names: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices") or ()):
        item_path, name, device_path = f"{path}[{index}]", device.get("name", ""), device.get("devicePath", "")
        if not name:
            yield required(f"{item_path}.name")
        if name in names:
            yield invalid(f"{item_path}.name", name, "must be unique")
        volume = known.get(name)
        if volume is None:
            yield not_found(f"{item_path}.name", name)
        elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield invalid(f"{item_path}.name", name, detail)
        if not device_path:
            yield required(f"{item_path}.devicePath")
        if device_path in paths:
            yield invalid(f"{item_path}.devicePath", device_path, "must be unique")
        if ".." in device_path.split("/"):
            yield invalid(f"{item_path}.devicePath", device_path, "can not contain backsteps ('..')")
        else:
            paths.add(device_path)
        if name in mounted:
            yield invalid(f"{item_path}.name", name, "must not already exist in volumeMounts")
        if device_path in mounted.values():
            yield invalid(f"{item_path}.devicePath", device_path, "must not already exist as a path in volumeMounts")
        if name:
            names.add(name)
