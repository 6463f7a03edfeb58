"""The strategy of Services. Source: pkg/registry/core/service/strategy.go, pkg/api/service/warnings.go."""

from __future__ import annotations

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.services.cluster_ips import cluster_ip_changes, family_changes
from kubeloop.apiserver.builtin.services.facts import (
    externally_accessible,
    is_headless,
    kind_of,
    needs_cluster_ip,
    needs_health_check,
    node_ports,
)
from kubeloop.apiserver.builtin.services.spec import load_balancer_class, service_spec
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import each, ip_address, ip_warnings, one_of, sloppy_ip
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid, required
from kubeloop.meta.names import dns1123_label, dns1123_subdomain
from kubeloop.types import JSONObject

#: Types whose services may have node ports, be they given none.
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")


class ServiceStrategy(BuiltinStrategy):
    """Addresses and ports are there when a service is validated: ``ServiceAddresses`` gave them."""

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return dns1123_label(name, prefix)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(service_spec(obj, None))

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_update(context, obj, old)
        _drop_of_other_kinds(obj, old)
        if kind_of(obj) != "LoadBalancer":
            obj["status"] = {**(obj.get("status") or {}), "loadBalancer": {}}

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        found = [*cluster_ip_changes(obj, old), *family_changes(obj, old), *load_balancer_class(obj, old)]
        port, port_before = (one["spec"].get("healthCheckNodePort", 0) for one in (obj, old))
        if needs_health_check(obj) and needs_health_check(old) and port != port_before:
            found.append(forbidden("spec.healthCheckNodePort", "field is immutable"))
        return [*found, *service_spec(obj, old)]

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        before = ((old.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
        status = (obj.get("status") or {}).get("loadBalancer") or {}
        return list(load_balancer_status("status.loadBalancer", status, before, balanced=kind_of(old) == "LoadBalancer"))

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        return _warnings(obj)


def load_balancer_status(path: str, status: JSONObject, before: list[JSONObject], *, balanced: bool) -> Errors:
    ingresses = status.get("ingress") or []
    if ingresses and not balanced:
        yield forbidden(f"{path}.ingress", "may only be used when `spec.type` is 'LoadBalancer'")
        return
    known = {one.get("ip") for one in before}
    for at, ingress in enumerate(ingresses):
        here, address, mode = f"{path}.ingress[{at}]", ingress.get("ip", ""), ingress.get("ipMode")
        if address and address not in known:
            yield from each(f"{here}.ip", address, ip_address(address))
        if mode is None:
            if address:
                yield required(f"{here}.ipMode", "must be specified when `ip` is set")
        elif not address:
            yield forbidden(f"{here}.ipMode", "may not be specified when `ip` is not set")
        else:
            yield from one_of(f"{here}.ipMode", mode, ("Proxy", "VIP"))
        if name := ingress.get("hostname"):
            yield from each(f"{here}.hostname", name, dns1123_subdomain(name))
            if sloppy_ip(name) is not None:
                yield invalid(f"{here}.hostname", name, "must be a DNS name, not an IP address")


def _drop_of_other_kinds(obj: JSONObject, old: JSONObject) -> None:
    """What the old type needed and the new one does not goes, unless the client changed it too."""
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
            del new["internalTrafficPolicy"]  # upstream shows it of no service of that type
    if kind_of(old) in _WITH_NODE_PORTS and kind_of(obj) not in _WITH_NODE_PORTS and set(node_ports(old)).issuperset(node_ports(obj)):
        for port in new.get("ports") or ():
            port.pop("nodePort", None)
    if needs_health_check(old) and not needs_health_check(obj):
        drop("healthCheckNodePort")
    if kind_of(old) == "LoadBalancer" and kind_of(obj) != "LoadBalancer":
        drop("allocateLoadBalancerNodePorts", "loadBalancerClass")
    if externally_accessible(old) and not externally_accessible(obj):
        drop("externalTrafficPolicy")


def _warnings(obj: JSONObject) -> list[str]:
    spec, found = obj["spec"], []
    if "service.kubernetes.io/topology-aware-hints" in (obj["metadata"].get("annotations") or {}):
        found.append(
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead"
        )
    if spec.get("clusterIP", "") not in ("", "None"):
        for at, address in enumerate(spec.get("clusterIPs") or ()):
            found += ip_warnings(f"spec.clusterIPs[{at}]", address)
    outside = spec.get("externalIPs") or []
    headless = kind_of(obj) == "ClusterIP" and is_headless(obj)
    if headless:
        if spec.get("loadBalancerIP"):
            found.append("spec.loadBalancerIP is ignored for headless services")
        if outside:
            found.append("spec.externalIPs is ignored for headless services")
        if spec.get("sessionAffinity") != "None":
            found.append("spec.SessionAffinity is ignored for headless services")
    for at, address in enumerate(outside):
        found += ip_warnings(f"spec.externalIPs[{at}]", address)
    named = kind_of(obj) == "ExternalName"
    if outside and not headless and not named:
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if spec.get("loadBalancerIP"):
        found += ip_warnings("spec.loadBalancerIP", spec["loadBalancerIP"])
    if named and outside:
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if not named and spec.get("externalName"):
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return found
