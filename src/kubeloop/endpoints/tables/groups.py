"""Tables of the smaller groups. Source: kubernetes pkg/printers/internalversion, kube-aggregator registry/apiservice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubeloop.endpoints.tables.layout import NAME_AND_AGE, Layout, age_of, human_duration, layout, name_of, part, selector_text, shortened
from kubeloop.types import JSONObject


def _aged(read: Callable[[JSONObject], list[Any]]) -> Callable[[JSONObject, float], list[Any]]:
    """Return a function for rows of three parts: the object's name, the cells that ``read`` returns, and the age."""
    return lambda obj, now: [name_of(obj), *read(obj), age_of(obj, now)]


def _flag(value: Any, default: bool = False) -> bool:
    return default if value is None else bool(value)


def _ingress(obj: JSONObject) -> list[Any]:
    spec = part(obj, "spec")
    rules = spec.get("rules") or []
    hosts = [rule["host"] for rule in rules[:3] if rule.get("host")]
    shown = ",".join(hosts) if hosts else "*"
    if len(hosts) == 3 and len(rules) > 3:
        shown += f" + {len(rules) - 3} more..."
    ingress = part(obj, "status", "loadBalancer").get("ingress") or []
    addresses = sorted({one.get("ip") or one.get("hostname") or "" for one in ingress} - {""})
    return [spec.get("ingressClassName") or "<none>", shown, ",".join(addresses), "80, 443" if spec.get("tls") else "80"]


def _ingress_class(obj: JSONObject, now: float) -> list[Any]:
    spec, parameters = part(obj, "spec"), part(obj, "spec").get("parameters")
    shown = "<none>"
    if parameters:
        group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") is not None else ""
        shown = f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"
    name = _default_marked(obj, "ingressclass.kubernetes.io/is-default-class")
    return [name, spec.get("controller") or "", shown, age_of(obj, now)]


def _default_marked(obj: JSONObject, *annotations: str) -> str:
    found = obj["metadata"].get("annotations") or {}
    return name_of(obj) + (" (default)" if any(found.get(name) == "true" for name in annotations) else "")


def _storage_class(obj: JSONObject, now: float) -> list[Any]:
    marks = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
    return [
        _default_marked(obj, *marks),
        obj.get("provisioner") or "",
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        _flag(obj.get("allowVolumeExpansion")),
        age_of(obj, now),
    ]


def _csi_driver(obj: JSONObject) -> list[Any]:
    spec = part(obj, "spec")
    tokens = spec.get("tokenRequests")
    return [
        _flag(spec.get("attachRequired"), True),
        _flag(spec.get("podInfoOnMount")),
        _flag(spec.get("storageCapacity")),
        "<unset>" if tokens is None else ",".join(one.get("audience", "") for one in tokens),
        _flag(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or []) or "<none>",
    ]


def _attachment(obj: JSONObject) -> list[Any]:
    spec = part(obj, "spec")
    volume = part(spec, "source").get("persistentVolumeName") or ""
    return [spec.get("attacher") or "", volume, spec.get("nodeName") or "", _flag(part(obj, "status").get("attached"))]


def _endpoint_slice(obj: JSONObject) -> list[Any]:
    ports = [str(port["port"]) if port.get("port") is not None else port.get("name") or "*" for port in obj.get("ports") or []]
    addresses = [address for endpoint in obj.get("endpoints") or [] for address in endpoint.get("addresses") or []]
    return [
        obj.get("addressType") or "",
        shortened(ports, 3, len(ports)) or "<unset>",
        shortened(addresses, 3, len(addresses)) or "<unset>",
    ]


def _binding(obj: JSONObject, now: float) -> list[Any]:
    role, subjects = part(obj, "roleRef"), obj.get("subjects") or []
    users = [one["name"] for one in subjects if one.get("kind") == "User"]
    groups = [one["name"] for one in subjects if one.get("kind") == "Group"]
    accounts = [f"{one.get('namespace', '')}/{one['name']}" for one in subjects if one.get("kind") == "ServiceAccount"]
    joined = [", ".join(names) for names in (users, groups, accounts)]
    return [name_of(obj), f"{role.get('kind', '')}/{role.get('name', '')}", age_of(obj, now), *joined]


def _signing_request(obj: JSONObject, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    types = {one.get("type") for one in status.get("conditions") or []}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    state += (",Failed" if "Failed" in types else "") + (",Issued" if status.get("certificate") else "")
    seconds = spec.get("expirationSeconds")
    wanted = "<none>" if seconds is None else human_duration(seconds)
    return [name_of(obj), age_of(obj, now), spec.get("signerName") or "<none>", spec.get("username") or "", wanted, state]


def _webhooks(obj: JSONObject) -> list[Any]:
    return [len(obj.get("webhooks") or [])]


def _policy(rules: str) -> Callable[[JSONObject], list[Any]]:
    def read(obj: JSONObject) -> list[Any]:
        spec = part(obj, "spec")
        kind = spec.get("paramKind")
        shown = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind is not None else "<unset>"
        return [len(spec.get(rules) or []), shown]

    return read


def _policy_binding(obj: JSONObject) -> list[Any]:
    spec = part(obj, "spec")
    parameter, shown = part(spec, "paramRef"), "<unset>"
    if parameter.get("name"):
        shown = f"{parameter.get('namespace') or '*'}/{parameter['name']}"
    elif parameter.get("selector") is not None:
        shown = selector_text(parameter["selector"])
    return [spec.get("policyName") or "", shown]


def _priority_class(obj: JSONObject, now: float) -> list[Any]:
    return [name_of(obj), obj.get("value") or 0, _flag(obj.get("globalDefault")), age_of(obj, now), obj.get("preemptionPolicy") or ""]


def _flow_schema(obj: JSONObject, now: float) -> list[Any]:
    spec = part(obj, "spec")
    dangling = next((one for one in part(obj, "status").get("conditions") or [] if one.get("type") == "Dangling"), None)
    return [
        name_of(obj),
        part(spec, "priorityLevelConfiguration").get("name") or "",
        spec.get("matchingPrecedence") or 0,
        part(spec, "distinguisherMethod").get("type") or "<none>",
        age_of(obj, now),
        "?" if dangling is None else dangling.get("status", ""),
    ]


def _precedence(obj: JSONObject) -> tuple[int, str]:
    return part(obj, "spec").get("matchingPrecedence") or 0, name_of(obj)


def _priority_level(obj: JSONObject) -> list[Any]:
    spec = part(obj, "spec")
    limited, queuing = spec.get("limited"), part(spec, "limited", "limitResponse").get("queuing")
    shares = "<none>" if limited is None else limited.get("nominalConcurrencyShares") or 0
    names = ("queues", "handSize", "queueLengthLimit")
    return [spec.get("type") or "", shares, *("<none>" if queuing is None else queuing.get(name) or 0 for name in names)]


def _ip_address(obj: JSONObject) -> list[Any]:
    """Return the middle cells of an IPAddress. As upstream, the row ends with the age, although the Table has no column for it."""
    parent = part(obj, "spec").get("parentRef")
    if parent is None:
        return ["<none>"]
    group = f".{parent['group']}" if parent.get("group") else ""
    namespace = f"/{parent['namespace']}" if parent.get("namespace") else ""
    return [f"{parent.get('resource', '')}{group}".lower() + f"{namespace}/{parent.get('name', '')}"]


def _resource_claim(obj: JSONObject) -> list[Any]:
    status, deleted = part(obj, "status"), bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation") is not None:
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    elif not deleted:
        states.append("pending")
    return [",".join(states)]


def _resource_slice(obj: JSONObject) -> list[Any]:
    spec = part(obj, "spec")
    return [spec.get("nodeName") or "", spec.get("driver") or "", part(spec, "pool").get("name") or ""]


def _api_service(obj: JSONObject) -> list[Any]:
    service = part(obj, "spec").get("service")
    where = "Local" if service is None else f"{service.get('namespace', '')}/{service.get('name', '')}"
    available = next((one for one in part(obj, "status").get("conditions") or [] if one.get("type") == "Available"), None)
    state = "Unknown" if available is None else str(available.get("status", ""))
    if available is not None and state != "True":
        state += f" ({available.get('reason', '')})"
    return [where, state]


_CSI_DRIVERS = (
    "Name | AttachRequired:boolean | PodInfoOnMount:boolean | StorageCapacity:boolean | TokenRequests"
    " | RequiresRepublish:boolean | Modes | Age"
)
_LEVELS = "Name | Type | NominalConcurrencyShares | Queues | HandSize | QueueLengthLimit | Age"
_FLOWS = "Name | PriorityLevel | MatchingPrecedence | DistinguisherMethod | Age | MissingPL"
_BINDINGS = "Name | Role | Age | Users! | Groups! | ServiceAccounts!"
_CSRS = "Name | Age | SignerName | Requestor | RequestedDuration | Condition"
_PRIORITIES = "Name | Value:integer | Global-Default:boolean | Age | PreemptionPolicy"
_WEBHOOKS: Final = layout("Name | Webhooks:integer | Age", _aged(_webhooks))
_POLICY_BINDINGS: Final = layout("Name | PolicyName | ParamRef | Age", _aged(_policy_binding))

#: Table layouts by "RESOURCE.GROUP".
GROUPS: Final[dict[str, Layout]] = {
    "apiservices.apiregistration.k8s.io": layout("Name | Service | Available | Age", _aged(_api_service)),
    "certificatesigningrequests.certificates.k8s.io": layout(_CSRS, _signing_request),
    "ingressclasses.networking.k8s.io": layout("Name | Controller | Parameters | Age", _ingress_class),
    "ingresses.networking.k8s.io": layout("Name | Class | Hosts | Address | Ports | Age", _aged(_ingress)),
    "ipaddresses.networking.k8s.io": layout("Name | ParentRef", _aged(_ip_address)),
    "networkpolicies.networking.k8s.io": layout(
        "Name | Pod-Selector | Age", _aged(lambda obj: [selector_text(part(obj, "spec").get("podSelector") or {})])
    ),
    "servicecidrs.networking.k8s.io": layout("Name | CIDRs | Age", _aged(lambda obj: [",".join(part(obj, "spec").get("cidrs") or [])])),
    "clusterrolebindings.rbac.authorization.k8s.io": layout(_BINDINGS, _binding),
    "rolebindings.rbac.authorization.k8s.io": layout(_BINDINGS, _binding),
    "csidrivers.storage.k8s.io": layout(_CSI_DRIVERS, _aged(_csi_driver)),
    "csinodes.storage.k8s.io": layout("Name | Drivers:integer | Age", _aged(lambda obj: [len(part(obj, "spec").get("drivers") or [])])),
    "storageclasses.storage.k8s.io": layout(
        "Name | Provisioner | ReclaimPolicy | VolumeBindingMode | AllowVolumeExpansion | Age", _storage_class
    ),
    "volumeattachments.storage.k8s.io": layout("Name | Attacher:string/name | PV | Node | Attached:boolean | Age", _aged(_attachment)),
    "volumeattributesclasses.storage.k8s.io": layout("Name | DriverName | Age", _aged(lambda obj: [obj.get("driverName") or ""])),
    "mutatingadmissionpolicies.admissionregistration.k8s.io": layout(
        "Name | Mutations:integer | ParamKind | Age", _aged(_policy("mutations"))
    ),
    "validatingadmissionpolicies.admissionregistration.k8s.io": layout(
        "Name | Validations:integer | ParamKind | Age", _aged(_policy("validations"))
    ),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": _POLICY_BINDINGS,
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _POLICY_BINDINGS,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "priorityclasses.scheduling.k8s.io": layout(_PRIORITIES, _priority_class),
    "leases.coordination.k8s.io": layout("Name | Holder | Age", _aged(lambda obj: [part(obj, "spec").get("holderIdentity") or ""])),
    "runtimeclasses.node.k8s.io": layout("Name | Handler | Age", _aged(lambda obj: [obj.get("handler") or ""])),
    "endpointslices.discovery.k8s.io": layout("Name | AddressType | Ports | Endpoints | Age", _aged(_endpoint_slice)),
    "deviceclasses.resource.k8s.io": NAME_AND_AGE,
    "resourceclaims.resource.k8s.io": layout("Name | State | Age", _aged(_resource_claim)),
    "resourceclaimtemplates.resource.k8s.io": NAME_AND_AGE,
    "resourceslices.resource.k8s.io": layout("Name | Node | Driver | Pool | Age", _aged(_resource_slice)),
    "flowschemas.flowcontrol.apiserver.k8s.io": Layout(layout(_FLOWS, _flow_schema).headers, _flow_schema, order=_precedence),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": layout(_LEVELS, _aged(_priority_level)),
}
