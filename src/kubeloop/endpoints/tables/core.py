"""Tables of the core group, without pods and workloads; events of both groups. Source: kubernetes pkg/printers/internalversion."""

from __future__ import annotations

from typing import Any, Final

from kubeloop.endpoints.tables.layout import NAME_AND_AGE, Layout, age, age_of, labels_text, layout, name_of, part
from kubeloop.types import JSONObject

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"


def _service(obj: JSONObject, now: float) -> list[Any]:
    spec = part(obj, "spec")
    ports = [
        f"{port['port']}{':' + str(port['nodePort']) if port.get('nodePort') else ''}/{port.get('protocol', '')}"
        for port in spec.get("ports") or []
    ]
    return [
        name_of(obj),
        spec.get("type") or "",
        (spec.get("clusterIPs") or ["<none>"])[0],
        _external(obj),
        ",".join(ports) or "<none>",
        age_of(obj, now),
        labels_text(spec.get("selector")),
    ]


def _external(obj: JSONObject) -> str:
    spec = part(obj, "spec")
    external: list[str] = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or "<none>"
        case "LoadBalancer":
            ingress = part(obj, "status", "loadBalancer").get("ingress") or []
            given = sorted({one.get("ip") or one.get("hostname") or "" for one in ingress} - {""})
            return ",".join([*given, *external]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName") or "")
        case _:
            return "<unknown>"


def _node(obj: JSONObject, now: float) -> list[Any]:
    status = part(obj, "status")
    ready = next((one for one in status.get("conditions") or [] if one.get("type") == "Ready"), None)
    states = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if part(obj, "spec").get("unschedulable"):
        states.append("SchedulingDisabled")
    info = part(status, "nodeInfo")
    kernel = info.get("kernelVersion") or "<unknown>"
    return [
        name_of(obj),
        ",".join(states),
        ",".join(_roles(obj)) or "<none>",
        age_of(obj, now),
        info.get("kubeletVersion") or "",
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        f"{kernel} ({info['architecture']})" if info.get("architecture") else kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _roles(obj: JSONObject) -> list[str]:
    roles: set[str] = set()
    for key, value in (obj["metadata"].get("labels") or {}).items():
        if key.startswith(_ROLE_PREFIX):
            roles.add(key.removeprefix(_ROLE_PREFIX))
        elif key == "kubernetes.io/role":
            roles.add(value)
    return sorted(roles - {""})


def _address(status: JSONObject, kind: str) -> str:
    return next((one["address"] for one in status.get("addresses") or [] if one.get("type") == kind), "<none>")


def _event(obj: JSONObject, now: float) -> list[Any]:
    """Return the cells of an Event of either group. Both groups share the storage, and have different field names for the same values."""

    def either(core: str, events: str) -> Any:
        return obj.get(core) if obj.get(core) is not None else obj.get(events)

    about: JSONObject = either("involvedObject", "regarding") or {}
    series: JSONObject = obj.get("series") or {}
    source: JSONObject = either("source", "deprecatedSource") or {}
    first = age(either("firstTimestamp", "deprecatedFirstTimestamp") or obj.get("eventTime"), now)
    last_time, count = either("lastTimestamp", "deprecatedLastTimestamp"), either("count", "deprecatedCount") or 1
    last = age(last_time, now) if last_time else first
    if obj.get("series") is not None:
        last, count = age(series.get("lastObservedTime"), now), series.get("count") or 0
    kind, name = str(about.get("kind") or "").lower(), about.get("name")
    reporter = source.get("component") or either("reportingComponent", "reportingController") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return [
        last,
        obj.get("type") or "",
        obj.get("reason") or "",
        f"{kind}/{name}" if name else kind,
        about.get("fieldPath") or "",
        f"{reporter}, {instance}" if instance else reporter,
        str(either("message", "note") or "").strip(),
        first,
        count,
        name_of(obj),
    ]


def _endpoints(obj: JSONObject, now: float) -> list[Any]:
    shown: list[str] = []
    subsets, count, more = obj.get("subsets") or [], 0, False
    for subset in subsets:
        addresses = [one.get("ip", "") for one in subset.get("addresses") or []]
        for port in subset.get("ports") or [None]:
            count += len(addresses)
            for address in addresses:
                if len(shown) == 3:
                    more = True
                    break
                host = f"[{address}]" if ":" in address else address
                shown.append(address if port is None else f"{host}:{port['port']}")
    text = ",".join(shown)
    return [name_of(obj), ("<none>" if not subsets else f"{text} + {count - 3} more..." if more else text), age_of(obj, now)]


def _access_modes(modes: list[str] | None) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(text for mode, text in short.items() if mode in (modes or []))


def _phase(obj: JSONObject) -> str:
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(part(obj, "status").get("phase") or "")


def _class(obj: JSONObject) -> str:
    """Return the storage class of an object: the legacy annotation takes precedence over the field."""
    annotations = obj["metadata"].get("annotations") or {}
    return str(annotations.get("volume.beta.kubernetes.io/storage-class", part(obj, "spec").get("storageClassName") or ""))


def _volume(obj: JSONObject, now: float) -> list[Any]:
    spec = part(obj, "spec")
    claim = spec.get("claimRef")
    return [
        name_of(obj),
        part(spec, "capacity").get("storage") or "0",
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy") or "",
        _phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _class(obj),
        spec.get("volumeAttributesClassName") or "<unset>",
        part(obj, "status").get("reason") or "",
        age_of(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _claim(obj: JSONObject, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    bound = bool(spec.get("volumeName"))
    return [
        name_of(obj),
        _phase(obj),
        spec.get("volumeName") or "",
        (part(status, "capacity").get("storage") or "0") if bound else "",
        _access_modes(status.get("accessModes")) if bound else "",
        _class(obj),
        spec.get("volumeAttributesClassName") or "<unset>",
        age_of(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _quota(obj: JSONObject, now: float) -> list[Any]:
    hard, used = part(obj, "status", "hard"), part(obj, "status", "used")
    texts = {name: f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard)}
    requests = [text for name, text in texts.items() if not name.startswith("limits.")]
    limits = [text for name, text in texts.items() if name.startswith("limits.")]
    return [name_of(obj), ", ".join(requests), ", ".join(limits), age_of(obj, now)]


def _component(obj: JSONObject, _: float) -> list[Any]:
    healthy = next((one for one in obj.get("conditions") or [] if one.get("type") == "Healthy"), None)
    if healthy is None:
        return [name_of(obj), "Unknown", "", ""]
    state = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [name_of(obj), state, healthy.get("message") or "", healthy.get("error") or ""]


_VOLUMES = (
    "Name | Capacity | Access Modes | Reclaim Policy | Status | Claim | StorageClass | VolumeAttributesClass | Reason | Age | VolumeMode!"
)
_CLAIMS = "Name | Status | Volume | Capacity | Access Modes | StorageClass | VolumeAttributesClass | Age | VolumeMode!"
_NODES = "Name | Status | Roles | Age | Version | Internal-IP! | External-IP! | OS-Image! | Kernel-Version! | Container-Runtime!"
_EVENTS = "Last Seen | Type | Reason | Object | Subobject! | Source! | Message | First Seen! | Count! | Name!"

#: Table layouts by "RESOURCE.GROUP"; resources of the core group have no suffix.
CORE: Final[dict[str, Layout]] = {
    "services": layout("Name | Type | Cluster-IP | External-IP | Port(s) | Age | Selector!", _service),
    "nodes": layout(_NODES, _node),
    "namespaces": layout("Name | Status | Age", lambda obj, now: [name_of(obj), part(obj, "status").get("phase") or "", age_of(obj, now)]),
    "events": layout(_EVENTS, _event),
    "events.events.k8s.io": layout(_EVENTS, _event),
    "endpoints": layout("Name | Endpoints | Age", _endpoints),
    "configmaps": layout(
        "Name | Data | Age", lambda obj, now: [name_of(obj), len(part(obj, "data")) + len(part(obj, "binaryData")), age_of(obj, now)]
    ),
    "secrets": layout(
        "Name | Type | Data | Age", lambda obj, now: [name_of(obj), obj.get("type") or "", len(part(obj, "data")), age_of(obj, now)]
    ),
    "serviceaccounts": NAME_AND_AGE,
    "persistentvolumes": layout(_VOLUMES, _volume),
    "persistentvolumeclaims": layout(_CLAIMS, _claim),
    "resourcequotas": layout("Name | Request | Limit | Age", _quota),
    "componentstatuses": layout("Name | Status | Message | Error", _component),
}
