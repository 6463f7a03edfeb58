"""The strategy of Services. Source: pkg/registry/core/service/strategy.go, pkg/api/service/warnings.go."""

from __future__ import annotations

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.ports import PROTOCOLS, validate_port_number_or_name
from kubeloop.apiserver.builtin.services.cluster_ips import validate_cluster_ip_changes, validate_cluster_ips, validate_family_changes
from kubeloop.apiserver.builtin.services.predicates import (
    externally_accessible,
    is_headless,
    needs_cluster_ip,
    needs_health_check,
    node_ports,
    type_of,
)
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import (
    check_one_of,
    each,
    ip_warnings,
    sloppy_ip,
    validate_cidr,
    validate_dns_label_field,
    validate_ip_address,
    validate_subdomain_field,
)
from kubeloop.apiserver.validation.metadata import validate_labels
from kubeloop.meta.field_error import Errors, FieldError, duplicate, forbidden, invalid, required
from kubeloop.meta.names import dns1123_label, dns1123_subdomain, port_number, qualified_name
from kubeloop.types import JSONObject

# Validation of the spec. Source: validateService in pkg/apis/core/validation.


_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_KINDS = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def validate_service_spec(service: JSONObject, old: JSONObject | None) -> Errors:
    """Validate the spec of a Service. ``old`` is None for a new one."""
    spec, annotations = service["spec"], service["metadata"].get("annotations") or {}
    if _MODE in annotations and _HINTS in annotations and annotations[_MODE] != annotations[_HINTS]:
        yield invalid(f"metadata.annotations[{_MODE}]", annotations[_MODE], f"must match annotations[{_HINTS}] when both are specified")
    ports, kind = spec.get("ports") or [], type_of(service)
    if not ports and not is_headless(service) and kind != "ExternalName":
        yield required("spec.ports")
    yield from _by_kind(service, kind)
    names: set[str] = set()
    for index, port in enumerate(ports):
        yield from _port(f"spec.ports[{index}]", port, names, several=len(ports) > 1)
    yield from validate_labels("spec.selector", spec.get("selector"))
    yield from _affinity(spec)
    yield from validate_cluster_ips(service, old)
    known = ((old or {}).get("spec") or {}).get("externalIPs") or []
    for index, address in enumerate(spec.get("externalIPs") or ()):
        here = f"spec.externalIPs[{index}]"
        errors = [] if address in known else validate_ip_address(address)
        yield from each(here, address, errors or endpoint_ip(address))
    if not kind:
        yield required("spec.type")
    else:
        yield from check_one_of("spec.type", kind, _KINDS)
    yield from _ports_together(ports, kind)
    yield from _source_ranges(service, old)
    yield from _load_balancer(spec, kind)
    yield from validate_load_balancer_class(service)
    yield from _external_traffic(service)
    yield from _traffic(spec, kind)


def _by_kind(service: JSONObject, kind: str) -> Errors:
    spec = service["spec"]
    if kind in ("LoadBalancer", "NodePort"):
        if is_headless(service):
            yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    elif kind == "ExternalName":
        for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(name):
                yield forbidden(f"spec.{name}", "may not be set for ExternalName services")
        name = spec.get("externalName", "").removesuffix(".")
        if name:
            yield from validate_subdomain_field("spec.externalName", name)
        else:
            yield required("spec.externalName")


def _port(path: str, port: JSONObject, names: set[str], *, several: bool) -> Errors:
    name = port.get("name", "")
    if several and not name:
        yield required(f"{path}.name")
    elif name:
        yield from validate_dns_label_field(f"{path}.name", name)
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
    yield from each(f"{path}.port", port.get("port", 0), port_number(port.get("port", 0)))
    if not port.get("protocol"):
        yield required(f"{path}.protocol")
    else:
        yield from check_one_of(f"{path}.protocol", port["protocol"], PROTOCOLS)
    yield from validate_port_number_or_name(f"{path}.targetPort", port.get("targetPort", 0))
    if port.get("appProtocol") is not None:
        yield from each(f"{path}.appProtocol", port["appProtocol"], qualified_name(port["appProtocol"]))


def _affinity(spec: JSONObject) -> Errors:
    kind, config = spec.get("sessionAffinity", ""), spec.get("sessionAffinityConfig")
    if not kind:
        yield required("spec.sessionAffinity")
    else:
        yield from check_one_of("spec.sessionAffinity", kind, ("ClientIP", "None"))
    path, message = "spec.sessionAffinityConfig", "when session affinity type is ClientIP"
    if kind == "ClientIP":
        client = (config or {}).get("clientIP")
        if config is None:
            yield required(path, message)
        elif client is None:
            yield required(f"{path}.clientIP", message)
        elif client.get("timeoutSeconds") is None:
            yield required(f"{path}.clientIP.timeoutSeconds", message)
        elif not 0 < client["timeoutSeconds"] <= 86400:
            yield invalid(f"{path}.clientIP.timeoutSeconds", client["timeoutSeconds"], "must be greater than 0 and less than 86400")
    elif kind == "None" and config is not None:
        yield forbidden(path, "must not be set when session affinity is None")


#: The refusal of loopback addresses of endpoints, which a server with process pods does not apply.
LOOPBACK_REFUSAL = "may not be in the loopback range (127.0.0.0/8, ::1/128)"


def endpoint_ip(address: str) -> list[str]:
    """Return why an address cannot be an endpoint, or an empty list if it can. Source: ValidateEndpointIP."""
    value = sloppy_ip(address)
    if value is None:
        return []
    errors = []
    if value.is_unspecified:
        errors.append(f"may not be unspecified ({address})")
    if value.is_loopback:
        errors.append(LOOPBACK_REFUSAL)
    if value.is_link_local:
        errors.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if value.is_multicast and (int(value) >> 8 == 0xE00000 if value.version == 4 else (int(value) >> 112) & 0xFF0F == 0xFF02):
        errors.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return errors


def _ports_together(ports: list[JSONObject], kind: str) -> Errors:
    if kind == "ClusterIP":
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                yield forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        key = (port.get("protocol", ""), port.get("nodePort", 0))
        if key[1] and key in seen:
            yield duplicate(f"spec.ports[{index}].nodePort", key[1])
        seen.add(key)
    seen.clear()
    for index, port in enumerate(ports):
        key = (port.get("protocol", ""), port.get("port", 0))
        if key in seen:
            shown = {"Name": "", "Protocol": key[0], "AppProtocol": None, "Port": key[1], "TargetPort": 0, "NodePort": 0}
            yield duplicate(f"spec.ports[{index}]", shown)
        seen.add(key)


def _source_ranges(service: JSONObject, old: JSONObject | None) -> Errors:
    ranges, annotations = service["spec"].get("loadBalancerSourceRanges") or [], service["metadata"].get("annotations") or {}
    misplaced = "may only be used when `type` is 'LoadBalancer'"
    balanced = type_of(service) == "LoadBalancer"
    if ranges:
        path = "spec.LoadBalancerSourceRanges"
        if not balanced:
            yield forbidden(path, misplaced)
        known = {one.strip() for one in ((old or {}).get("spec") or {}).get("loadBalancerSourceRanges") or ()}
        for index, one in enumerate(ranges):
            if one.strip() not in known:
                yield from each(f"{path}[{index}]", one.strip(), validate_cidr(one.strip()))
    elif _SOURCE_RANGES in annotations:
        path, text = f"metadata.annotations[{_SOURCE_RANGES}]", annotations[_SOURCE_RANGES].strip()
        if not balanced:
            yield forbidden(path, misplaced)
        if text and ((old or {}).get("metadata", {}).get("annotations") or {}).get(_SOURCE_RANGES) != annotations[_SOURCE_RANGES]:
            for one in text.split(","):
                yield from each(path, one.strip(), validate_cidr(one.strip()))


def _load_balancer(spec: JSONObject, kind: str) -> Errors:
    allocate = spec.get("allocateLoadBalancerNodePorts")
    if allocate is not None and kind != "LoadBalancer":
        yield forbidden("spec.allocateLoadBalancerNodePorts", "may only be used when `type` is 'LoadBalancer'")
    if allocate is None and kind == "LoadBalancer":
        yield required("allocateLoadBalancerNodePorts")


def validate_load_balancer_class(service: JSONObject, old: JSONObject | None = None) -> Errors:
    """Validate the load balancer class."""
    value, path = service["spec"].get("loadBalancerClass"), "spec.loadBalancerClass"
    balanced = type_of(service) == "LoadBalancer"
    if old is not None and balanced and type_of(old) == "LoadBalancer" and value != old["spec"].get("loadBalancerClass"):
        yield invalid(path, value, "may not change once set")
    if value is None:
        return
    if balanced:
        yield from each(path, value, qualified_name(value))
    else:
        yield forbidden(path, "may only be used when `type` is 'LoadBalancer'")


def _external_traffic(service: JSONObject) -> Errors:
    spec = service["spec"]
    policy, check = spec.get("externalTrafficPolicy", ""), spec.get("healthCheckNodePort", 0)
    if not externally_accessible(service):
        if policy:
            yield invalid("spec.externalTrafficPolicy", policy, "may only be set for externally-accessible services")
    elif not policy:
        yield required("spec.externalTrafficPolicy")
    else:
        yield from check_one_of("spec.externalTrafficPolicy", policy, ("Cluster", "Local"))
    path = "spec.healthCheckNodePort"
    if not needs_health_check(service):
        if check:
            yield invalid(path, check, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
    elif not check:
        yield required(path)
    else:
        yield from each(path, check, port_number(check))


def _traffic(spec: JSONObject, kind: str) -> Errors:
    policy = spec.get("internalTrafficPolicy")
    if policy is None:
        if kind in ("NodePort", "LoadBalancer", "ClusterIP"):
            yield required("spec.internalTrafficPolicy")
    else:
        yield from check_one_of("spec.internalTrafficPolicy", policy, ("Cluster", "Local"))
    if spec.get("trafficDistribution") is not None:
        known = ("PreferClose", "PreferSameZone", "PreferSameNode")
        yield from check_one_of("spec.trafficDistribution", spec["trafficDistribution"], known)


#: Types of Services that may have node ports.
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")


class ServiceStrategy(BuiltinStrategy):
    """Strategy of Services. ``ServiceAddressAllocator`` allocates addresses and ports before the validation."""

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return dns1123_label(name, prefix)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(validate_service_spec(obj, None))

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_update(context, obj, old)
        _drop_of_other_kinds(obj, old)
        if type_of(obj) != "LoadBalancer":
            obj["status"] = {**(obj.get("status") or {}), "loadBalancer": {}}

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors = [*validate_cluster_ip_changes(obj, old), *validate_family_changes(obj, old), *validate_load_balancer_class(obj, old)]
        port, port_before = (one["spec"].get("healthCheckNodePort", 0) for one in (obj, old))
        if needs_health_check(obj) and needs_health_check(old) and port != port_before:
            errors.append(forbidden("spec.healthCheckNodePort", "field is immutable"))
        return [*errors, *validate_service_spec(obj, old)]

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        before = ((old.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
        status = (obj.get("status") or {}).get("loadBalancer") or {}
        return list(validate_load_balancer_status("status.loadBalancer", status, before, balanced=type_of(old) == "LoadBalancer"))

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        return _warnings(obj)


def validate_load_balancer_status(path: str, status: JSONObject, before: list[JSONObject], *, balanced: bool) -> Errors:
    """Validate the load balancer status.

    Args:
        path: Path of the status.
        status: The status.
        before: Ingress points of the stored status, which are accepted.
        balanced: The Service has the type LoadBalancer.

    Returns:
        The errors.
    """
    ingresses = status.get("ingress") or []
    if ingresses and not balanced:
        yield forbidden(f"{path}.ingress", "may only be used when `spec.type` is 'LoadBalancer'")
        return
    known = {one.get("ip") for one in before}
    for index, ingress in enumerate(ingresses):
        here, address, mode = f"{path}.ingress[{index}]", ingress.get("ip", ""), ingress.get("ipMode")
        if address and address not in known:
            yield from each(f"{here}.ip", address, validate_ip_address(address))
        if mode is None:
            if address:
                yield required(f"{here}.ipMode", "must be specified when `ip` is set")
        elif not address:
            yield forbidden(f"{here}.ipMode", "may not be specified when `ip` is not set")
        else:
            yield from check_one_of(f"{here}.ipMode", mode, ("Proxy", "VIP"))
        if name := ingress.get("hostname"):
            yield from each(f"{here}.hostname", name, dns1123_subdomain(name))
            if sloppy_ip(name) is not None:
                yield invalid(f"{here}.hostname", name, "must be a DNS name, not an IP address")


def _drop_of_other_kinds(obj: JSONObject, old: JSONObject) -> None:
    """Drop the fields of the old type that the new type does not have, unless the client changed them too."""
    new, before = obj["spec"], old["spec"]

    def drop(*names: str) -> None:
        for name in names:
            if new.get(name) == before.get(name):
                new.pop(name, None)

    if needs_cluster_ip(old) and not needs_cluster_ip(obj):
        if (new.get("clusterIP"), new.get("clusterIPs")) == (before.get("clusterIP"), before.get("clusterIPs")):
            drop("clusterIP", "clusterIPs")
        drop("ipFamilies", "ipFamilyPolicy")
        if new.get("internalTrafficPolicy") in ("Cluster", "Local"):
            del new["internalTrafficPolicy"]  # Upstream shows it for no Service of that type.
    if type_of(old) in _WITH_NODE_PORTS and type_of(obj) not in _WITH_NODE_PORTS and set(node_ports(old)).issuperset(node_ports(obj)):
        for port in new.get("ports") or ():
            port.pop("nodePort", None)
    if needs_health_check(old) and not needs_health_check(obj):
        drop("healthCheckNodePort")
    if type_of(old) == "LoadBalancer" and type_of(obj) != "LoadBalancer":
        drop("allocateLoadBalancerNodePorts", "loadBalancerClass")
    if externally_accessible(old) and not externally_accessible(obj):
        drop("externalTrafficPolicy")


def _warnings(obj: JSONObject) -> list[str]:
    spec, result = obj["spec"], []
    if "service.kubernetes.io/topology-aware-hints" in (obj["metadata"].get("annotations") or {}):
        result.append(
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead"
        )
    if spec.get("clusterIP", "") not in ("", "None"):
        for index, address in enumerate(spec.get("clusterIPs") or ()):
            result += ip_warnings(f"spec.clusterIPs[{index}]", address)
    outside = spec.get("externalIPs") or []
    headless = type_of(obj) == "ClusterIP" and is_headless(obj)
    if headless:
        if spec.get("loadBalancerIP"):
            result.append("spec.loadBalancerIP is ignored for headless services")
        if outside:
            result.append("spec.externalIPs is ignored for headless services")
        if spec.get("sessionAffinity") != "None":
            result.append("spec.SessionAffinity is ignored for headless services")
    for index, address in enumerate(outside):
        result += ip_warnings(f"spec.externalIPs[{index}]", address)
    named = type_of(obj) == "ExternalName"
    if outside and not headless and not named:
        result.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if spec.get("loadBalancerIP"):
        result += ip_warnings("spec.loadBalancerIP", spec["loadBalancerIP"])
    if named and outside:
        result.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if not named and spec.get("externalName"):
        result.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        result.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return result
