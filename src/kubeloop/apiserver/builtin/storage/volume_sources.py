"""Where the data of a persistent volume is. Source: validate*PersistentVolumeSource; most plug-ins no longer work but are checked."""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.apiserver.builtin.pods.paths import no_back_steps
from kubeloop.apiserver.builtin.pods.volume_plugins import PLUGINS, csi_driver_name, flex, initiator, needs
from kubeloop.apiserver.builtin.pods.volumes import host_path
from kubeloop.apiserver.validation.formats import each, label_name_field, subdomain_field
from kubeloop.meta.field_error import Errors, forbidden, invalid, required
from kubeloop.meta.names import dns1123_label, in_range
from kubeloop.types import JSONObject

Check = Callable[[str, JSONObject], Errors]

_ISCSI_LIMIT = 64


def volume_source(path: str, spec: JSONObject, volume_name: str) -> Errors:
    """Exactly one source. A flexVolume beside another goes unnoticed upstream."""
    met = 0
    for name, check in _SOURCES.items():
        source = spec.get(name)
        if source is None:
            continue
        if met and name != "flexVolume":
            yield forbidden(f"{path}.{_SECOND_PATHS.get(name, name)}", "may not specify more than 1 volume type")
            continue
        met += 1
        here = f"{path}.{_FIRST_PATHS.get(name, name)}"
        yield from _iscsi(here, source, volume_name) if name == "iscsi" else check(here, source)
        if name == "local" and spec.get("nodeAffinity") is None:
            yield required(f"{path}.nodeAffinity", "Local volume requires node affinity")
    if not met:
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
        yield from initiator(f"{path}.iqn", source["iqn"], of_volume=True)
    lun = source.get("lun", 0)
    yield from each(f"{path}.lun", lun, in_range(lun, 0, 255))
    secret = source.get("secretRef")
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and secret is None:
        yield required(f"{path}.secretRef")
    if secret is not None:
        yield from needs("name")(f"{path}.secretRef", secret)
    if name is not None:
        yield from initiator(f"{path}.initiatorname", name, of_volume=True)


def _azure_file(path: str, source: JSONObject) -> Errors:
    yield from needs("secretName", "shareName")(path, source)
    if source.get("secretNamespace") == "":
        yield required(f"{path}.secretNamespace")


def _storage_os(path: str, source: JSONObject) -> Errors:
    if not source.get("volumeName"):
        yield required(f"{path}.volumeName")
    else:
        yield from label_name_field(f"{path}.volumeName", source["volumeName"])
    if source.get("volumeNamespace"):
        yield from label_name_field(f"{path}.volumeNamespace", source["volumeNamespace"])
    if source.get("secretRef") is not None:
        yield from needs("name", "namespace")(f"{path}.secretRef", source["secretRef"])


def _local(path: str, source: JSONObject) -> Errors:
    if not source.get("path"):
        yield required(f"{path}.path")
    else:
        yield from no_back_steps(f"{path}.path", source["path"])


def _csi(path: str, source: JSONObject) -> Errors:
    yield from csi_driver_name(f"{path}.driver", source.get("driver", ""))
    if not source.get("volumeHandle"):
        yield required(f"{path}.volumeHandle")
    for name in ("controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"):
        secret = source.get(name)
        if secret is None:
            continue
        for part, rule in (("name", subdomain_field), ("namespace", label_name_field)):
            if not secret.get(part):
                yield required(f"{path}.{name}.{part}")
            else:
                yield from rule(f"{path}.{name}.{part}", secret[part])


_FIRST_PATHS = {"gcePersistentDisk": "persistentDisk"}
_SECOND_PATHS = {"cephfs": "cephFS"}
#: In upstream's order.
_SOURCES: dict[str, Check] = {
    "hostPath": host_path,
    **{name: PLUGINS[name] for name in ("gcePersistentDisk", "awsElasticBlockStore")},
    "glusterfs": _glusterfs,
    **{name: PLUGINS[name] for name in ("flocker", "nfs")},
    "rbd": needs("monitors", "image"),
    "quobyte": PLUGINS["quobyte"],
    "cephfs": needs("monitors"),
    "iscsi": PLUGINS["iscsi"],
    "cinder": _secret_with_namespace("volumeID"),
    "fc": PLUGINS["fc"],
    "flexVolume": flex,
    "azureFile": _azure_file,
    **{name: PLUGINS[name] for name in ("vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk")},
    "scaleIO": needs("gateway", "system", "volumeName"),
    "local": _local,
    "storageos": _storage_os,
    "csi": _csi,
}
SOURCES = tuple(_SOURCES)
