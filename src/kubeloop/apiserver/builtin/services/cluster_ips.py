"""Validates cluster IPs and IP families of Services, and the kinds ServiceCIDR and IPAddress.

Source: ValidateServiceClusterIPsRelatedFields, validateUpgradeDowngradeClusterIPs, validateUpgradeDowngradeIPFamilies.
"""

from __future__ import annotations

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.services.predicates import is_headless, needs_cluster_ip, type_of
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import (
    IMMUTABLE,
    check_one_of,
    each,
    sloppy_cidr,
    sloppy_ip,
    validate_canonical_ip,
    validate_cidr,
    validate_ip_address,
    validate_subdomain_field,
)
from kubeloop.meta.field_error import Errors, FieldError, duplicate, invalid, required
from kubeloop.meta.names import path_segment
from kubeloop.schema.internal_values import internal_value
from kubeloop.types import JSONObject

# ServiceCIDRs and IPAddresses. Source: pkg/apis/networking/validation, pkg/registry/networking/{servicecidr,ipaddress}.


_ONE_OF_EACH = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"


class ServiceCIDRStrategy(BuiltinStrategy):
    """Strategy of ServiceCIDRs."""

    status_keeps_metadata = True

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_ranges(obj["spec"].get("cidrs") or []))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_range_changes(obj["spec"].get("cidrs") or [], old["spec"].get("cidrs") or []))


def _ranges(cidrs: list[str]) -> Errors:
    if not cidrs:
        yield required("spec.cidrs", "at least one CIDR required")
        return
    if len(cidrs) > 2:
        yield invalid("spec.cidrs", internal_value("networking.ServiceCIDRSpec", {"cidrs": cidrs}), "may only hold up to 2 values")
        return
    for index, value in enumerate(cidrs):
        yield from each(f"spec.cidrs[{index}]", value, validate_cidr(value))
    families = [network.version for value in cidrs if (network := sloppy_cidr(value)) is not None]
    if len(families) == 2 and families[0] == families[1]:
        yield invalid("spec.cidrs", cidrs, _ONE_OF_EACH)


def _range_changes(cidrs: list[str], old: list[str]) -> Errors:
    """Check that an update changes no range, and adds at most one range, of the other IP family."""
    if len(cidrs) == len(old):
        for index, (value, before) in enumerate(zip(cidrs, old, strict=True)):
            if value != before:
                yield invalid(f"spec.cidrs[{index}]", value, IMMUTABLE)
    elif len(old) == 1 and len(cidrs) == 2:
        if cidrs[0] != old[0]:
            yield invalid("spec.cidrs[0]", cidrs[0], IMMUTABLE)
        yield from _ranges(cidrs)
    else:
        yield invalid("spec.cidrs", cidrs or None, IMMUTABLE)


class IPAddressStrategy(BuiltinStrategy):
    """Strategy of IPAddresses."""

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return validate_canonical_ip(name)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_parent(obj["spec"].get("parentRef")))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        parent, before = obj["spec"].get("parentRef"), old["spec"].get("parentRef")
        value = self._object_meta(obj, namespaced=False) + list(_parent(parent))
        return [*value, invalid("spec.parentRef", _shown(parent), IMMUTABLE)] if parent != before else value


def _shown(parent: JSONObject | None) -> JSONObject | None:
    """Format the parent reference as Go does."""
    if parent is None:
        return None
    return {name: parent.get(name.lower(), "") for name in ("Group", "Resource", "Namespace", "Name")}


def _parent(parent: JSONObject | None) -> Errors:
    path = "spec.parentRef"
    if parent is None:
        yield required(path)
        return
    if parent.get("group"):
        yield from validate_subdomain_field(f"{path}.group", parent["group"])
    for name, needed in (("resource", True), ("name", True), ("namespace", False)):
        value = parent.get(name, "")
        if value:
            yield from each(f"{path}.{name}", value, path_segment(value))
        elif needed:
            yield required(f"{path}.{name}")


_IPS, _FAMILIES, _POLICY = "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"
_FIXED = "may not change once set"


def family_of(address: str) -> str:
    """Return the family of an IP address: ``IPv4`` or ``IPv6``."""
    return "IPv6" if ":" in address else "IPv4"


def validate_cluster_ips(service: JSONObject, old: JSONObject | None) -> Errors:
    """Validate cluster IPs and IP families of a Service."""
    if type_of(service) == "ExternalName":
        return
    spec = service["spec"]
    first, ips, families = spec.get("clusterIP", ""), spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
    if first:
        if not ips:
            yield required(_IPS)
        elif ips[0] != first:
            yield invalid(_IPS, ips, "first value must match `clusterIP`")
    elif ips:
        yield invalid(_IPS, ips, "must be empty when `clusterIP` is not specified")
    for index, family in enumerate(families):
        yield from check_one_of(f"{_FAMILIES}[{index}]", family, ("IPv4", "IPv6"))
        if family in families[:index]:
            yield duplicate(f"{_FAMILIES}[{index}]", family)
    if spec.get("ipFamilyPolicy") is not None:
        yield from check_one_of(_POLICY, spec["ipFamilyPolicy"], ("PreferDualStack", "RequireDualStack", "SingleStack"))
    errors = list(_addresses(ips, ((old or {}).get("spec") or {}).get("clusterIPs") or []))
    yield from errors
    if len(ips) > 2:
        yield invalid(_IPS, ips, "may only hold up to 2 values")
    if errors:
        return
    if len(ips) > 1 and len({family_of(address) for address in ips}) < 2:
        yield invalid(_IPS, ips, "may specify no more than one IP for each IP family")
    if not is_headless(service):
        for index, (address, family) in enumerate(zip(ips, families, strict=False)):
            if family in ("IPv4", "IPv6") and family_of(address) != family:
                yield invalid(f"{_IPS}[{index}]", address, f"expected an {family} value as indicated by `ipFamilies[{index}]`")


def _addresses(ips: list[str], known: list[str]) -> Errors:
    for index, address in enumerate(ips):
        if index == 0 and address == "None":
            if len(ips) > 1:
                yield invalid(_IPS, ips, "'None' must be the first and only value")
        elif address not in known or (sloppy_ip(address) is None and address != "None"):
            yield from each(f"{_IPS}[{index}]", address, validate_ip_address(address))


def validate_cluster_ip_changes(service: JSONObject, old: JSONObject) -> Errors:
    """Validate changes of the cluster IPs."""
    if "ExternalName" in (type_of(service), type_of(old)) or (is_headless(service) and is_headless(old)):
        return
    new, before = service["spec"].get("clusterIPs") or [], old["spec"].get("clusterIPs") or []
    if len(new) == len(before):
        for index, address in enumerate(before):
            if address != new[index]:
                yield invalid(f"{_IPS}[{index}]", new, _FIXED)
    elif len(before) > len(new):
        if not new:
            yield invalid(f"{_IPS}[0]", None, "primary clusterIP can not be unset")
        elif new[0] != before[0]:
            yield invalid(f"{_IPS}[0]", new, _FIXED)
        if len(new) == 1:
            yield from _single(service, "clusterIP")
    elif before and new[0] != before[0]:
        yield invalid(f"{_IPS}[0]", new, _FIXED)


def _single(service: JSONObject, field_name: str) -> Errors:
    policy = service["spec"].get("ipFamilyPolicy")
    if policy != "SingleStack":
        yield invalid(_POLICY, policy, f"must be set to 'SingleStack' when releasing the secondary {field_name}")


def validate_family_changes(service: JSONObject, old: JSONObject) -> Errors:
    """Validate changes of the IP families."""
    if "ExternalName" in (type_of(service), type_of(old)) or is_headless(service) or is_headless(old):
        return
    new, before = service["spec"].get("ipFamilies") or [], old["spec"].get("ipFamilies") or []
    path, ips = f"{_FAMILIES}[0]", service["spec"].get("clusterIPs")
    if len(new) == len(before):
        for index, family in enumerate(before):
            if family != new[index]:
                yield invalid(path, new, _FIXED)
    elif len(before) > len(new):
        if not ips:
            yield invalid(path, new or None, "primary ipFamily can not be unset")
        if new and new[0] != before[0]:
            yield invalid(path, ips, _FIXED)
        if len(new) == 1:
            yield from _single(service, "ipFamily")
    elif before and new[0] != before[0]:
        yield invalid(path, ips, _FIXED)


# IP families of a Service in a cluster with IPv4 only. Source: initIPFamilyFields, normalizeClusterIPs.


_POLICY_FIELD = "spec.ipFamilyPolicy"


def sync_cluster_ip_fields(service: JSONObject, old: JSONObject | None) -> None:
    """Make ``clusterIP`` and the first of ``clusterIPs`` equal; old clients know only the first field."""
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


def default_ip_families(service: JSONObject, old: JSONObject | None) -> list[FieldError]:
    """Set the defaults of policy and families. Return errors that reject the Service."""
    if type_of(service) == "ExternalName":
        return []
    spec = service["spec"]
    selectorless = spec.get("clusterIP") == "None" and not spec.get("selector")
    if spec.get("ipFamilyPolicy") is None:
        before = ((old or {}).get("spec") or {}).get("ipFamilyPolicy")
        spec["ipFamilyPolicy"] = before or ("RequireDualStack" if selectorless else "SingleStack")
    if errors := list(validate_cluster_ips(service, old)):
        return errors
    errors = _against_policy(service, old) + _families_of_addresses(spec)
    if errors:
        return errors
    if selectorless:
        families = spec["ipFamilies"] = spec.get("ipFamilies") or ["IPv4"]
        if len(families) < 2 and spec["ipFamilyPolicy"] != "SingleStack":
            # Endpoints of such Services are managed elsewhere, so any families are valid.
            families.append("IPv6" if families[0] == "IPv4" else "IPv4")
        return []
    if spec["ipFamilyPolicy"] == "RequireDualStack":
        errors.append(invalid(_POLICY_FIELD, "RequireDualStack", "this cluster is not configured for dual-stack services"))
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        if family != "IPv4":
            errors.append(invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))
    if not errors and not spec.get("ipFamilies"):
        spec["ipFamilies"] = ["IPv4"]
    return errors


def _against_policy(service: JSONObject, old: JSONObject | None) -> list[FieldError]:
    spec, before = service["spec"], (old or {}).get("spec") or {}
    policy, result = spec["ipFamilyPolicy"], []
    for name, field_name, lower in (("clusterIPs", "cluster IPs", "cluster IP"), ("ipFamilies", "IP families", "IP family")):
        values, known = spec.get(name) or [], before.get(name) or []
        if policy == "SingleStack":
            if old is not None and values == known and len(values) > 1:
                spec[name] = values[:1]
            elif len(values) == 2:
                message = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {field_name} are specified"
                result.append(invalid(_POLICY_FIELD, policy, message))
        elif old is not None and needs_cluster_ip(old) and len(known) == 2 and len(values) == 1 and values[0] == known[0]:
            result.append(invalid(_POLICY_FIELD, policy, f"must be 'SingleStack' to release the secondary {lower}"))
    return result


def _families_of_addresses(spec: JSONObject) -> list[FieldError]:
    errors = []
    ips = spec.get("clusterIPs") or []
    for index, address in enumerate(ips):
        if address == "None":
            break
        if index >= len(spec.get("ipFamilies") or ()):
            family = family_of(address)
            if family != "IPv4":
                errors.append(invalid(f"spec.clusterIPs[{index}]", ips, f"{family} is not configured on this cluster"))
            else:
                spec["ipFamilies"] = [*(spec.get("ipFamilies") or []), family]
    return errors
