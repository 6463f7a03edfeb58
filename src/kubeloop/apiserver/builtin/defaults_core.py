"""Defaults of the core group's types. Source: pkg/apis/core/v1/defaults.go and its generated defaulters."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

from kubeloop.apiserver.builtin.quantities import aggregate, is_huge_page, is_pod_level, may_overcommit, rounded_to_milli
from kubeloop.types import JSONObject

# References to container images, as far as defaults need them. Source: the grammar of distribution/reference.


_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_DOMAIN_LABEL}(?:\.{_DOMAIN_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(
    rf"(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>{_DIGEST}))?", re.ASCII
)
#: Registries where image names of a single component are in the folder "library".
_HUBS = ("", "docker.io", "index.docker.io")
_LONGEST_PATH = 255
_IDENTIFIER = re.compile("[a-f0-9]{64}")


def image_tag(image: str) -> str:
    """Return the tag of an image: "latest" if it has no tag and no digest, empty if it has only a digest or is invalid."""
    first, slash, rest = image.partition("/")
    if slash and not (set(".:") & set(first) or first == "localhost" or first.lower() != first):
        first, rest = "", image
    name = (rest if slash else image).partition(":")[0]
    path = name.partition("@")[0]
    match = _REFERENCE.fullmatch(image)
    if match is None or _IDENTIFIER.fullmatch(image) or path != path.lower():
        return ""
    if (first if slash else "") in _HUBS and "/" not in path:
        path = f"library/{path}"
    if len(path) > _LONGEST_PATH:
        return ""
    if match["tag"]:
        return match["tag"]
    return "" if match["digest"] else "latest"


def default_pull_policy(image: str) -> str:
    """Return the default pull policy: Always for the tag latest, else IfNotPresent."""
    return "Always" if image_tag(image) == "latest" else "IfNotPresent"


Rule = Callable[[JSONObject], None]

#: 420 is 0644.
_FILE_MODE = 0o644


def missing(**values: Any) -> Rule:
    """Return a rule that sets absent values. It also sets empty values that Go does not distinguish from absent ones."""

    def rule(obj: JSONObject) -> None:
        for name, value in values.items():
            if obj.get(name) is None or obj[name] == "":
                obj[name] = value.copy() if isinstance(value, dict | list) else value

    return rule


def absent(**values: Any) -> Rule:
    """Return a rule that sets absent values of pointer fields. An empty string is a value and stays."""

    def rule(obj: JSONObject) -> None:
        for name, value in values.items():
            if obj.get(name) is None:
                obj[name] = value

    return rule


def _resource_list(value: JSONObject) -> None:
    for name, text in value.items():
        value[name] = rounded_to_milli(text)


def _container(container: JSONObject) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = default_pull_policy(container.get("image", ""))
    _container_rest(container)


_container_rest = missing(terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File")


def _volume(volume: JSONObject) -> None:
    if all(value is None for name, value in volume.items() if name != "name"):
        volume["emptyDir"] = {}
    image = volume.get("image")
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = default_pull_policy(image.get("reference", ""))


def _pod(pod: JSONObject) -> None:
    spec = pod["spec"]
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            _requests_from_limits(container)
    if spec.get("resources") is not None:
        _pod_limits(spec)
        _pod_requests(spec)
    spec.setdefault("enableServiceLinks", True)
    if spec.get("hostNetwork"):
        for kind in ("containers", "initContainers"):
            for container in spec.get(kind) or ():
                for port in container.get("ports") or ():
                    if not port.get("hostPort") and port.get("containerPort"):
                        port["hostPort"] = port["containerPort"]


def _requests_from_limits(container: JSONObject) -> None:
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if limits:
        resources["requests"] = {**requests, **{name: text for name, text in limits.items() if name not in requests}}


def _pod_limits(spec: JSONObject) -> None:
    """Set the pod's limits of huge pages from its containers, if the pod has resources but none for huge pages (KEP-2837)."""
    resources = spec["resources"]
    if not resources.get("limits") and not resources.get("requests"):
        return
    limits = dict(resources.get("limits") or {})
    for name, text in aggregate(spec, "limits").items():
        if is_huge_page(name) and name not in (resources.get("requests") or {}):
            limits.setdefault(name, text)
    if limits:
        resources["limits"] = limits


def _pod_requests(spec: JSONObject) -> None:
    """Set the pod's requests from those of its containers, or from its own limits (KEP-2837)."""
    resources = spec["resources"]
    if not resources.get("limits"):
        return
    requests = dict(resources.get("requests") or {})
    for name, text in aggregate(spec, "requests").items():
        if is_pod_level(name) and may_overcommit(name):
            requests.setdefault(name, text)
    for name, text in resources["limits"].items():
        if is_pod_level(name):
            requests.setdefault(name, text)
    if requests:
        resources["requests"] = requests


def _pod_spec(spec: JSONObject) -> None:
    _pod_spec_rest(spec)
    # Upstream has one field and writes it under both names: conversion of core/v1 PodSpec.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


_pod_spec_rest = missing(
    dnsPolicy="ClusterFirst",
    restartPolicy="Always",
    securityContext={},
    terminationGracePeriodSeconds=30,
    schedulerName="default-scheduler",
)


def _service(service: JSONObject) -> None:
    spec = service["spec"]
    spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        config = spec.get("sessionAffinityConfig") or {}
        if (config.get("clientIP") or {}).get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    kind = spec["type"] = spec.get("type") or "ClusterIP"
    for port in spec.get("ports") or ():
        port["protocol"] = port.get("protocol") or "TCP"
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    outside = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if outside and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if spec.get("internalTrafficPolicy") is None and kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec["internalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _limit_range_item(item: JSONObject) -> None:
    if item.get("type") != "Container":
        return
    default = {**(item.get("max") or {}), **(item.get("default") or {})}
    request = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
    for name, value in (("default", default), ("defaultRequest", request)):
        if value:
            item[name] = value


def _namespace(namespace: JSONObject) -> None:
    if name := namespace["metadata"].get("name"):
        namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def _node_status(status: JSONObject) -> None:
    if not status.get("allocatable") and status.get("capacity"):
        status["allocatable"] = dict(status["capacity"])


def _node_spec(spec: JSONObject) -> None:
    first = spec.get("podCIDR")
    ranges = spec.get("podCIDRs") or []
    if first and (not ranges or ranges[0] != first):
        spec["podCIDRs"] = [first]
    elif ranges:
        spec["podCIDR"] = ranges[0]


def _pod_status(status: JSONObject) -> None:
    """Make ``podIP`` and the first of ``podIPs`` equal: upstream has one field for both, and the singular wins."""
    first, addresses = status.get("podIP"), status.get("podIPs") or []
    if first and (not addresses or addresses[0].get("ip", "") != first):
        status["podIPs"] = [{"ip": first}]
    elif addresses:
        status["podIP"] = addresses[0].get("ip", "")


def _secret(secret: JSONObject) -> None:
    secret["type"] = secret.get("type") or "Opaque"
    if strings := secret.pop("stringData", None):
        data = {**(secret.get("data") or {}), **{key: base64.b64encode(value.encode()).decode() for key, value in strings.items()}}
        secret["data"] = data


def _replication_controller(controller: JSONObject) -> None:
    spec = controller["spec"]
    spec.setdefault("replicas", 1)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        if not controller["metadata"].get("labels"):
            controller["metadata"]["labels"] = dict(labels)


def _persistent_volume(volume: JSONObject) -> None:
    volume.setdefault("status", {})
    volume["status"]["phase"] = volume["status"].get("phase") or "Pending"
    spec = volume["spec"]
    spec["persistentVolumeReclaimPolicy"] = spec.get("persistentVolumeReclaimPolicy") or "Retain"
    spec.setdefault("volumeMode", "Filesystem")


def _endpoints(endpoints: JSONObject) -> None:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            port["protocol"] = port.get("protocol") or "TCP"


def _claim(claim: JSONObject) -> None:
    claim.setdefault("status", {})
    claim["status"]["phase"] = claim["status"].get("phase") or "Pending"


CORE: dict[str, Rule] = {
    "v1.ResourceList": _resource_list,
    "v1.Pod": _pod,
    "v1.PodSpec": _pod_spec,
    "v1.PodStatus": _pod_status,
    "v1.Container": _container,
    "v1.EphemeralContainer": _container,
    "v1.ContainerPort": missing(protocol="TCP"),
    "v1.Volume": _volume,
    "v1.HostPathVolumeSource": lambda source: None if source.get("type") is not None else source.update(type=""),
    "v1.SecretVolumeSource": missing(defaultMode=_FILE_MODE),
    "v1.ConfigMapVolumeSource": missing(defaultMode=_FILE_MODE),
    "v1.DownwardAPIVolumeSource": missing(defaultMode=_FILE_MODE),
    "v1.ProjectedVolumeSource": missing(defaultMode=_FILE_MODE),
    "v1.ServiceAccountTokenProjection": missing(expirationSeconds=3600),
    "v1.ISCSIVolumeSource": missing(iscsiInterface="default"),
    "v1.ISCSIPersistentVolumeSource": missing(iscsiInterface="default"),
    "v1.RBDVolumeSource": missing(pool="rbd", user="admin", keyring="/etc/ceph/keyring"),
    "v1.RBDPersistentVolumeSource": missing(pool="rbd", user="admin", keyring="/etc/ceph/keyring"),
    "v1.AzureDiskVolumeSource": absent(cachingMode="ReadWrite", fsType="ext4", readOnly=False, kind="Shared"),
    "v1.ScaleIOVolumeSource": missing(storageMode="ThinProvisioned", fsType="xfs"),
    "v1.ScaleIOPersistentVolumeSource": missing(storageMode="ThinProvisioned", fsType="xfs"),
    "v1.ObjectFieldSelector": missing(apiVersion="v1"),
    "v1.FileKeySelector": missing(optional=False),
    "v1.Probe": missing(timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3),
    "v1.HTTPGetAction": missing(path="/", scheme="HTTP"),
    "v1.GRPCAction": lambda action: None if action.get("service") is not None else action.update(service=""),
    "v1.Service": _service,
    "v1.LimitRangeItem": _limit_range_item,
    "v1.Namespace": _namespace,
    "v1.NamespaceStatus": missing(phase="Active"),
    "v1.NodeStatus": _node_status,
    "v1.NodeSpec": _node_spec,
    "v1.Secret": _secret,
    "v1.ReplicationController": _replication_controller,
    "v1.PersistentVolume": _persistent_volume,
    "v1.PersistentVolumeClaim": _claim,
    "v1.PersistentVolumeClaimSpec": absent(volumeMode="Filesystem"),
    "/v1/Endpoints": _endpoints,
}
