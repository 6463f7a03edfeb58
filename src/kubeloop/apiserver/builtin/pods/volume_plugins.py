"""Validates the sources of volume plug-ins; most plug-ins no longer work but are still validated. Source: validate*VolumeSource."""

from __future__ import annotations

import re
from collections.abc import Callable

from kubeloop.apiserver.validation.formats import check_one_of, each, unsupported, validate_dns_label_field
from kubeloop.meta.field_error import Errors, invalid, required, too_long
from kubeloop.meta.names import dns1123_subdomain, in_range
from kubeloop.types import JSONObject

Check = Callable[[str, JSONObject], Errors]

_QUALIFIED = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9\-.]+)(:[^,;*&$|\s]+)$", re.ASCII),
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}$", re.ASCII),
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}$", re.ASCII),
}


def needs(*names: str) -> Check:
    """Return a check that the fields are set."""

    def check(path: str, source: JSONObject) -> Errors:
        for name in names:
            if not source.get(name):
                yield required(f"{path}.{name}")

    return check


def _partitioned(name: str) -> Check:
    def check(path: str, source: JSONObject) -> Errors:
        if not source.get(name):
            yield required(f"{path}.{name}")
        if not 0 <= source.get("partition", 0) <= 255:
            yield invalid(f"{path}.partition", source["partition"], "must be between 1 and 255, inclusive")

    return check


def _nfs(path: str, source: JSONObject) -> Errors:
    yield from needs("server", "path")(path, source)
    if not source.get("path", "").startswith("/"):
        yield invalid(f"{path}.path", source.get("path", ""), "must be an absolute path")


def _iscsi(path: str, source: JSONObject) -> Errors:
    if not source.get("targetPortal"):
        yield required(f"{path}.targetPortal")
    if not source.get("iqn"):
        yield required(f"{path}.iqn")
    else:
        yield from validate_initiator(f"{path}.iqn", source["iqn"])
    lun = source.get("lun", 0)
    yield from each(f"{path}.lun", lun, in_range(lun, 0, 255))
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        yield required(f"{path}.secretRef")
    if source.get("initiatorName") is not None:
        yield from validate_initiator(f"{path}.initiatorname", source["initiatorName"])


def validate_initiator(path: str, name: str, *, of_volume: bool = False) -> Errors:
    """Validate the name of an iSCSI initiator. ``of_volume``: for a persistent volume, where upstream has a shorter message."""
    pattern = _QUALIFIED.get(name[:3])
    if pattern is None:
        yield invalid(path, name, "must be valid format" if of_volume else "must be valid format starting with iqn, eui, or naa")
    elif not (pattern.search(name) if name.startswith("iqn") else pattern.match(name)):
        yield invalid(path, name, "must be valid format")


def _flocker(path: str, source: JSONObject) -> Errors:
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uuid:
        yield required(path, "one of datasetName and datasetUUID is required")
    if name and uuid:
        yield invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        yield invalid(f"{path}.datasetName", name, "must not contain '/'")


def _named_secret(*names: str) -> Check:
    def check(path: str, source: JSONObject) -> Errors:
        yield from needs(*names)(path, source)
        secret = source.get("secretRef")
        if secret is not None and not secret.get("name"):
            yield required(f"{path}.secretRef.name")

    return check


def _quobyte(path: str, source: JSONObject) -> Errors:
    pairs = "must be a host:port pair or multiple pairs separated by commas"
    if not source.get("registry"):
        yield required(f"{path}.registry", pairs)
    elif len(source.get("tenant", "")) >= 65:
        yield required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in source["registry"].split(","):
            if not re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*", pair):
                yield invalid(f"{path}.registry", source["registry"], pairs)
    if not source.get("volume"):
        yield required(f"{path}.volume")


def _fibre_channel(path: str, source: JSONObject) -> Errors:
    targets, ids, lun = source.get("targetWWNs") or [], source.get("wwids") or [], source.get("lun")
    if not targets and not ids:
        yield required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both")
    if targets and ids:
        yield invalid(f"{path}.targetWWNs", targets, "targetWWNs and wwids can not be specified simultaneously")
    if targets:
        if lun is None:
            yield required(f"{path}.lun", "lun is required if targetWWNs is specified")
        else:
            yield from each(f"{path}.lun", lun, in_range(lun, 0, 255))


def validate_flex_volume(path: str, source: JSONObject) -> Errors:
    """Validate a flexVolume."""
    if not source.get("driver"):
        yield required(f"{path}.driver")
    for key in source.get("options") or {}:
        if f".{key.partition('/')[0].lower()}".endswith((".kubernetes.io", ".k8s.io")):
            yield invalid(f"{path}.options[{key}]", key, "kubernetes.io and k8s.io namespaces are reserved")


def _azure_disk(path: str, source: JSONObject) -> Errors:
    yield from needs("diskName", "diskURI")(path, source)
    uri, kind = source.get("diskURI", ""), source.get("kind")
    if source.get("cachingMode") is not None:
        yield from check_one_of(f"{path}.cachingMode", source["cachingMode"], ("None", "ReadOnly", "ReadWrite"))
    if kind is None:
        return
    yield from check_one_of(f"{path}.kind", kind, ("Dedicated", "Managed", "Shared"))
    if kind == "Managed":
        if not uri.startswith("/subscriptions/"):
            known = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
            yield unsupported(f"{path}.diskURI", uri, (known,))
    elif not uri.startswith("https://"):
        yield unsupported(f"{path}.diskURI", uri, ("https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",))


def _storage_os(path: str, source: JSONObject) -> Errors:
    if not source.get("volumeName"):
        yield required(f"{path}.volumeName")
    else:
        yield from validate_dns_label_field(f"{path}.volumeName", source["volumeName"])
    if source.get("volumeNamespace"):
        yield from validate_dns_label_field(f"{path}.volumeNamespace", source["volumeNamespace"])
    secret = source.get("secretRef")
    if secret is not None and not secret.get("name"):
        yield required(f"{path}.secretRef.name")


def validate_csi_driver_name(path: str, name: str) -> Errors:
    """Validate the name of a CSI driver."""
    if not name:
        yield required(path)
        return
    if len(name) > 63:
        yield too_long(path, 63)
    yield from each(path, name, dns1123_subdomain(name.lower()))


def _csi(path: str, source: JSONObject) -> Errors:
    yield from validate_csi_driver_name(f"{path}.driver", source.get("driver", ""))
    secret = source.get("nodePublishSecretRef")
    if secret is None:
        return
    if not secret.get("name"):
        yield required(f"{path}.nodePublishSecretRef.name")
    else:
        yield from each(f"{path}.name", secret["name"], dns1123_subdomain(secret["name"]))


PLUGINS: dict[str, Check] = {
    "gcePersistentDisk": _partitioned("pdName"),
    "awsElasticBlockStore": _partitioned("volumeID"),
    "nfs": _nfs,
    "iscsi": _iscsi,
    "glusterfs": needs("endpoints", "path"),
    "flocker": _flocker,
    "rbd": needs("monitors", "image"),
    "cinder": _named_secret("volumeID"),
    "cephfs": needs("monitors"),
    "quobyte": _quobyte,
    "fc": _fibre_channel,
    "flexVolume": validate_flex_volume,
    "azureFile": needs("secretName", "shareName"),
    "vsphereVolume": needs("volumePath"),
    "photonPersistentDisk": needs("pdID"),
    "portworxVolume": needs("volumeID"),
    "azureDisk": _azure_disk,
    "storageos": _storage_os,
    "scaleIO": needs("gateway", "system", "volumeName"),
    "csi": _csi,
}
