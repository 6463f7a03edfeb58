"""Strategy of PersistentVolumes. Source: ValidatePersistentVolume, ValidatePersistentVolumeUpdate, pkg/registry/core/persistentvolume."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from typing import Any

from kubeloop.apiserver.builtin.claims import validate_access_modes
from kubeloop.apiserver.builtin.difference import difference
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.scheduling import validate_node_selector
from kubeloop.apiserver.builtin.pods.volume_plugins import (
    PLUGINS,
    needs,
    validate_csi_driver_name,
    validate_flex_volume,
    validate_initiator,
)
from kubeloop.apiserver.builtin.pods.volumes import validate_host_path
from kubeloop.apiserver.builtin.pods.warnings import node_term_warnings
from kubeloop.apiserver.builtin.quantities import quantity
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.empty_values import part_at
from kubeloop.apiserver.validation.formats import (
    check_immutable,
    check_no_parent_steps,
    check_one_of,
    each,
    unsupported,
    validate_dns_label_field,
    validate_subdomain_field,
)
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid, required
from kubeloop.meta.names import dns1123_label, in_range
from kubeloop.schema.internal_values import internal_value
from kubeloop.types import JSONObject

# Sources of persistent volumes. Source: validate*PersistentVolumeSource; most plug-ins no longer work but are validated.


Check = Callable[[str, JSONObject], Errors]

_ISCSI_LIMIT = 64


def validate_volume_source(path: str, spec: JSONObject, volume_name: str) -> Errors:
    """Validate the volume source. There must be exactly one, but upstream ignores a second source beside a flexVolume."""
    count = 0
    for name, check in _SOURCES.items():
        source = spec.get(name)
        if source is None:
            continue
        if count and name != "flexVolume":
            yield forbidden(f"{path}.{_SECOND_PATHS.get(name, name)}", "may not specify more than 1 volume type")
            continue
        count += 1
        here = f"{path}.{_FIRST_PATHS.get(name, name)}"
        yield from _iscsi(here, source, volume_name) if name == "iscsi" else check(here, source)
        if name == "local" and spec.get("nodeAffinity") is None:
            yield required(f"{path}.nodeAffinity", "Local volume requires node affinity")
    if not count:
        yield required(path, "must specify a volume type")


def _secret_with_namespace(*names: str) -> Check:
    def check(path: str, source: JSONObject) -> Errors:
        yield from needs(*names)(path, source)
        if source.get("secretRef") is not None:
            yield from needs("name", "namespace")(f"{path}.secretRef", source["secretRef"])

    return check


def _glusterfs(path: str, source: JSONObject) -> Errors:
    yield from needs("endpoints", "path")(path, source)
    namespace = source.get("endpointsNamespace")
    if namespace == "":
        yield invalid(f"{path}.endpointsNamespace", "", "if the endpointnamespace is set, it must be a valid namespace name")
    elif namespace is not None:
        yield from each(f"{path}.endpointsNamespace", namespace, dns1123_label(namespace))


def _iscsi(path: str, source: JSONObject, volume_name: str) -> Errors:
    name, portal = source.get("initiatorName"), source.get("targetPortal", "")
    if not portal:
        yield required(f"{path}.targetPortal")
    if name is not None and len(f"{volume_name}:{portal}".encode()) > _ISCSI_LIMIT:
        text = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."
        yield invalid(f"{path}.targetportal", portal, text)
    if not source.get("iqn"):
        yield required(f"{path}.iqn")
    else:
        yield from validate_initiator(f"{path}.iqn", source["iqn"], of_volume=True)
    lun = source.get("lun", 0)
    yield from each(f"{path}.lun", lun, in_range(lun, 0, 255))
    secret = source.get("secretRef")
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and secret is None:
        yield required(f"{path}.secretRef")
    if secret is not None:
        yield from needs("name")(f"{path}.secretRef", secret)
    if name is not None:
        yield from validate_initiator(f"{path}.initiatorname", name, of_volume=True)


def _azure_file(path: str, source: JSONObject) -> Errors:
    yield from needs("secretName", "shareName")(path, source)
    if source.get("secretNamespace") == "":
        yield required(f"{path}.secretNamespace")


def _storage_os(path: str, source: JSONObject) -> Errors:
    if not source.get("volumeName"):
        yield required(f"{path}.volumeName")
    else:
        yield from validate_dns_label_field(f"{path}.volumeName", source["volumeName"])
    if source.get("volumeNamespace"):
        yield from validate_dns_label_field(f"{path}.volumeNamespace", source["volumeNamespace"])
    if source.get("secretRef") is not None:
        yield from needs("name", "namespace")(f"{path}.secretRef", source["secretRef"])


def _local(path: str, source: JSONObject) -> Errors:
    if not source.get("path"):
        yield required(f"{path}.path")
    else:
        yield from check_no_parent_steps(f"{path}.path", source["path"])


def _csi(path: str, source: JSONObject) -> Errors:
    yield from validate_csi_driver_name(f"{path}.driver", source.get("driver", ""))
    if not source.get("volumeHandle"):
        yield required(f"{path}.volumeHandle")
    for name in ("controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"):
        secret = source.get(name)
        if secret is None:
            continue
        for part, rule in (("name", validate_subdomain_field), ("namespace", validate_dns_label_field)):
            if not secret.get(part):
                yield required(f"{path}.{name}.{part}")
            else:
                yield from rule(f"{path}.{name}.{part}", secret[part])


_FIRST_PATHS = {"gcePersistentDisk": "persistentDisk"}
_SECOND_PATHS = {"cephfs": "cephFS"}
#: In upstream's order.
_SOURCES: dict[str, Check] = {
    "hostPath": validate_host_path,
    **{name: PLUGINS[name] for name in ("gcePersistentDisk", "awsElasticBlockStore")},
    "glusterfs": _glusterfs,
    **{name: PLUGINS[name] for name in ("flocker", "nfs")},
    "rbd": needs("monitors", "image"),
    "quobyte": PLUGINS["quobyte"],
    "cephfs": needs("monitors"),
    "iscsi": PLUGINS["iscsi"],
    "cinder": _secret_with_namespace("volumeID"),
    "fc": PLUGINS["fc"],
    "flexVolume": validate_flex_volume,
    "azureFile": _azure_file,
    **{name: PLUGINS[name] for name in ("vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk")},
    "scaleIO": needs("gateway", "system", "volumeName"),
    "local": _local,
    "storageos": _storage_os,
    "csi": _csi,
}
SOURCES = tuple(_SOURCES)


_STRUCT = "core.PersistentVolumeSource"
_RECLAIM = ("Delete", "Recycle", "Retain")
_OLD_ANNOTATIONS = {
    "volume.beta.kubernetes.io/storage-class": 'deprecated since v1.8; use "storageClassName" attribute instead',
    "volume.beta.kubernetes.io/mount-options": 'deprecated since v1.31; use "mountOptions" attribute instead',
}
_OLD_PLUGINS = {
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}


class VolumeStrategy(BuiltinStrategy):
    """Strategy of PersistentVolumes. It sets ``status.lastPhaseTransitionTime`` with the phase, unless the writer sets the time."""

    metadata_checks_on_update = ("create", "create")

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": obj["metadata"]["creationTimestamp"]}

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj, any_value=False))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        affinity = (old["spec"].get("nodeAffinity") or {}).get("required")
        any_value = affinity is not None and bool(list(validate_node_selector("", affinity, False)))
        # Upstream validates the whole object twice, and reports each error twice.
        spec = list(_spec(obj, any_value=any_value))
        return [*spec, *spec, *_changes(obj["spec"], old["spec"], part_at(context.sent, "spec"))]

    def prepare_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_status_update(context, obj, old)
        status, before = obj.setdefault("status", {}), old.get("status") or {}
        moved, known = status.get("lastPhaseTransitionTime"), before.get("lastPhaseTransitionTime")
        if status.get("phase") == before.get("phase"):
            if moved is None and known is not None:
                status["lastPhaseTransitionTime"] = known
        elif moved is None or moved == known:
            status["lastPhaseTransitionTime"] = context.time

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        return list(_warnings(obj))


def _spec(obj: JSONObject, *, any_value: bool) -> Errors:
    spec = obj["spec"]
    modes, capacity = spec.get("accessModes") or [], spec.get("capacity") or {}
    if not modes:
        yield required("spec.accessModes")
    yield from validate_access_modes("spec.accessModes", modes)
    if not capacity:
        yield required("spec.capacity")
    if set(capacity) != {"storage"}:
        yield unsupported("spec.capacity", dict(sorted(capacity.items())) or spec.get("capacity"), ("storage",))
    for name, text in capacity.items():
        if quantity(text).value() < 0:
            yield invalid(f"spec.capacity[{name}]", quantity(text).value(), "must be a valid resource quantity")
        if quantity(text) <= 0:
            yield invalid(f"spec.capacity[{name}]", text, "must be greater than zero")
    if spec.get("persistentVolumeReclaimPolicy"):
        yield from check_one_of("spec.persistentVolumeReclaimPolicy", spec["persistentVolumeReclaimPolicy"], _RECLAIM)
    if spec.get("nodeAffinity") is not None:
        yield from _affinity("spec.nodeAffinity", spec["nodeAffinity"], any_value)
    yield from validate_volume_source("spec", spec, obj["metadata"].get("name", ""))
    path = (spec.get("hostPath") or {}).get("path")
    if path and posixpath.normpath(path) in ("/", "//") and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield forbidden("spec.persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")
    if spec.get("storageClassName"):
        yield from validate_subdomain_field("spec.storageClassName", spec["storageClassName"])
    if spec.get("volumeMode") is not None:
        yield from check_one_of("spec.volumeMode", spec["volumeMode"], ("Block", "Filesystem"))
    yield from _attributes_class(spec)


def validate_inline_volume(path: str, spec: JSONObject) -> Errors:
    """Validate the inline volume spec of a VolumeAttachment."""
    context = "in the context of inline volumes"
    if spec.get("claimRef") is not None:
        yield forbidden(f"{path}.claimRef", f"may not be specified {context}")
    if spec.get("capacity"):
        yield forbidden(f"{path}.capacity", f"may not be specified {context}")
    if spec.get("csi") is None:
        yield required(f"{path}.csi", f"has to be specified {context}")
    if not spec.get("accessModes"):
        yield required(f"{path}.accessModes")
    yield from validate_access_modes(f"{path}.accessModes", spec.get("accessModes") or [])
    if spec.get("persistentVolumeReclaimPolicy") not in (None, "", "Retain"):
        yield forbidden(f"{path}.persistentVolumeReclaimPolicy", f"may only be Retain {context}")
    if spec.get("nodeAffinity") is not None:
        yield forbidden(f"{path}.nodeAffinity", f"may not be specified {context}")
    yield from validate_volume_source(path, spec, "")
    if spec.get("storageClassName"):
        yield forbidden(f"{path}.storageClassName", f"may not be specified {context}")
    if spec.get("volumeMode") not in (None, "Filesystem"):
        yield forbidden(f"{path}.volumeMode", f"may not specify volumeMode other than Filesystem {context}")


def _attributes_class(spec: JSONObject) -> Errors:
    name = spec.get("volumeAttributesClassName")
    if name is None:
        return
    if not name:
        yield required("spec.volumeAttributesClassName", "an empty string is disallowed")
    else:
        yield from validate_subdomain_field("spec.volumeAttributesClassName", name)
    if spec.get("csi") is None:
        yield required("spec.csi", "has to be specified when using volumeAttributesClassName")


def _affinity(path: str, affinity: JSONObject, any_value: bool) -> Errors:
    if affinity.get("required") is None:
        yield required(f"{path}.required", "must specify required node constraints")
    else:
        yield from validate_node_selector(f"{path}.required", affinity["required"], any_value)


def _changes(spec: JSONObject, old: JSONObject, sent: Any) -> Errors:
    sources, before = ({name: one[name] for name in SOURCES if one.get(name) is not None} for one in (spec, old))
    if "csi" in sources and "csi" in before and before["csi"].get("controllerExpandSecretRef") is None:
        # A volume from before expansion secrets existed may get one.
        sources["csi"] = {name: value for name, value in sources["csi"].items() if name != "controllerExpandSecretRef"}
    if sources != before:
        text = f"spec.persistentvolumesource is immutable after creation\n{difference(_STRUCT, before, sources, sent)}"
        yield forbidden("spec.persistentvolumesource", text)
    yield from check_immutable("volumeMode", spec.get("volumeMode"), old.get("volumeMode"))
    affinity, known = spec.get("nodeAffinity"), old.get("nodeAffinity")
    if known is not None and not _same_nodes(affinity, known):
        detail = "field is immutable, except for updating from beta label to GA"
        yield invalid(
            "nodeAffinity",
            None if affinity is None else internal_value("core.VolumeNodeAffinity", affinity, part_at(sent, "nodeAffinity")),
            detail,
        )
    if old.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        yield forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden")


_GA_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}


def _same_nodes(new: Any, old: Any) -> bool:
    """Return whether two affinities are equal, except that a label key may get its current name (and, by an upstream fault, none)."""
    if isinstance(new, list) and isinstance(old, list):
        return len(new) == len(old) and all(map(_same_nodes, new, old))
    if not isinstance(new, dict) or not isinstance(old, dict):
        return bool((new or None) == (old or None))
    key, before = new.get("key", ""), old.get("key", "")
    if "operator" in new and key != before and _GA_LABELS.get(before, "") != key:
        return False
    return all(_same_nodes(new.get(name), old.get(name)) for name in (new.keys() | old.keys()) - {"key"})


def _warnings(obj: JSONObject) -> Iterator[str]:
    spec, annotations = obj["spec"], obj["metadata"].get("annotations") or {}
    for key, text in _OLD_ANNOTATIONS.items():
        if key in annotations:
            yield f"metadata.annotations[{key}]: {text}"
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        advice = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."
        yield f"spec.persistentVolumeReclaimPolicy: {advice}"
    terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    for index, term in enumerate(terms):
        yield from node_term_warnings(f"spec.nodeAffinity.required.nodeSelectorTerms[{index}]", term)
    for name, text in _OLD_PLUGINS.items():
        if spec.get(name) is not None:
            yield f"spec.{'storageOS' if name == 'storageos' else name}: {text}"
