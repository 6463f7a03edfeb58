"""IP families of a service as a cluster with IPv4 alone gives them. Source: initIPFamilyFields, normalizeClusterIPs."""

from __future__ import annotations

from kubeloop.apiserver.builtin.services.cluster_ips import cluster_ips, family_of
from kubeloop.apiserver.builtin.services.facts import kind_of, needs_cluster_ip
from kubeloop.meta.field_error import FieldError, invalid
from kubeloop.types import JSONObject

_POLICY = "spec.ipFamilyPolicy"


def settle_cluster_ips(service: JSONObject, old: JSONObject | None) -> None:
    """``clusterIP`` and the first of ``clusterIPs`` are one field; clients of old know only the former."""
    spec = service["spec"]
    first, ips = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    if old is None:
        if first and not ips:
            spec["clusterIPs"] = [first]
        return
    before, ips_before = old["spec"].get("clusterIP", ""), old["spec"].get("clusterIPs") or []
    if ips_before and not ips and before == first:
        spec["clusterIPs"] = list(ips_before)
    elif before != first and ips == ips_before:
        if before and not first:
            spec.pop("clusterIPs", None)
        else:
            spec["clusterIPs"] = [first]


def settle_families(service: JSONObject, old: JSONObject | None) -> list[FieldError]:
    """Fill in policy and families; what is returned refuses the service."""
    if kind_of(service) == "ExternalName":
        return []
    spec = service["spec"]
    selectorless = spec.get("clusterIP") == "None" and not spec.get("selector")
    if spec.get("ipFamilyPolicy") is None:
        before = ((old or {}).get("spec") or {}).get("ipFamilyPolicy")
        spec["ipFamilyPolicy"] = before or ("RequireDualStack" if selectorless else "SingleStack")
    if faults := list(cluster_ips(service, old)):
        return faults
    faults = _against_policy(service, old) + _families_of_addresses(spec)
    if faults:
        return faults
    if selectorless:
        families = spec["ipFamilies"] = spec.get("ipFamilies") or ["IPv4"]
        if len(families) < 2 and spec["ipFamilyPolicy"] != "SingleStack":
            # Endpoints of such services are not ours, so they may have both families whatever the cluster has.
            families.append("IPv6" if families[0] == "IPv4" else "IPv4")
        return []
    if spec["ipFamilyPolicy"] == "RequireDualStack":
        faults.append(invalid(_POLICY, "RequireDualStack", "this cluster is not configured for dual-stack services"))
    for at, family in enumerate(spec.get("ipFamilies") or ()):
        if family != "IPv4":
            faults.append(invalid(f"spec.ipFamilies[{at}]", family, "not configured on this cluster"))
    if not faults and not spec.get("ipFamilies"):
        spec["ipFamilies"] = ["IPv4"]
    return faults


def _against_policy(service: JSONObject, old: JSONObject | None) -> list[FieldError]:
    spec, before = service["spec"], (old or {}).get("spec") or {}
    policy, found = spec["ipFamilyPolicy"], []
    for name, what, lower in (("clusterIPs", "cluster IPs", "cluster IP"), ("ipFamilies", "IP families", "IP family")):
        values, known = spec.get(name) or [], before.get(name) or []
        if policy == "SingleStack":
            if old is not None and values == known and len(values) > 1:
                spec[name] = values[:1]
            elif len(values) == 2:
                message = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                found.append(invalid(_POLICY, policy, message))
        elif old is not None and needs_cluster_ip(old) and len(known) == 2 and len(values) == 1 and values[0] == known[0]:
            found.append(invalid(_POLICY, policy, f"must be 'SingleStack' to release the secondary {lower}"))
    return found


def _families_of_addresses(spec: JSONObject) -> list[FieldError]:
    found = []
    ips = spec.get("clusterIPs") or []
    for at, address in enumerate(ips):
        if address == "None":
            break
        if at >= len(spec.get("ipFamilies") or ()):
            family = family_of(address)
            if family != "IPv4":
                found.append(invalid(f"spec.clusterIPs[{at}]", ips, f"{family} is not configured on this cluster"))
            else:
                spec["ipFamilies"] = [*(spec.get("ipFamilies") or []), family]
    return found
