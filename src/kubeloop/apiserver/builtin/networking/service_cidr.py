"""ServiceCIDRs and IPAddresses. Source: pkg/apis/networking/validation, pkg/registry/networking/{servicecidr,ipaddress}."""

from __future__ import annotations

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import IMMUTABLE, canonical_ip, cidr, each, sloppy_cidr, subdomain_field
from kubeloop.meta.field_error import Errors, FieldError, invalid, required
from kubeloop.meta.names import path_segment
from kubeloop.schema.internal_values import internal_value
from kubeloop.types import JSONObject

_ONE_OF_EACH = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"


class ServiceCIDRStrategy(BuiltinStrategy):
    status_keeps_metadata = True

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_ranges(obj["spec"].get("cidrs") or []))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_changes(obj["spec"].get("cidrs") or [], old["spec"].get("cidrs") or []))


def _ranges(cidrs: list[str]) -> Errors:
    if not cidrs:
        yield required("spec.cidrs", "at least one CIDR required")
        return
    if len(cidrs) > 2:
        yield invalid("spec.cidrs", internal_value("networking.ServiceCIDRSpec", {"cidrs": cidrs}), "may only hold up to 2 values")
        return
    for at, value in enumerate(cidrs):
        yield from each(f"spec.cidrs[{at}]", value, cidr(value))
    families = [network.version for value in cidrs if (network := sloppy_cidr(value)) is not None]
    if len(families) == 2 and families[0] == families[1]:
        yield invalid("spec.cidrs", cidrs, _ONE_OF_EACH)


def _changes(cidrs: list[str], old: list[str]) -> Errors:
    """Only a range of the other family may be added."""
    if len(cidrs) == len(old):
        for at, (value, before) in enumerate(zip(cidrs, old, strict=True)):
            if value != before:
                yield invalid(f"spec.cidrs[{at}]", value, IMMUTABLE)
    elif len(old) == 1 and len(cidrs) == 2:
        if cidrs[0] != old[0]:
            yield invalid("spec.cidrs[0]", cidrs[0], IMMUTABLE)
        yield from _ranges(cidrs)
    else:
        yield invalid("spec.cidrs", cidrs or None, IMMUTABLE)


class IPAddressStrategy(BuiltinStrategy):
    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return canonical_ip(name)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_parent(obj["spec"].get("parentRef")))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        parent, before = obj["spec"].get("parentRef"), old["spec"].get("parentRef")
        found = self._object_meta(obj, namespaced=False) + list(_parent(parent))
        return [*found, invalid("spec.parentRef", _shown(parent), IMMUTABLE)] if parent != before else found


def _shown(parent: JSONObject | None) -> JSONObject | None:
    """As Go prints it."""
    if parent is None:
        return None
    return {name: parent.get(name.lower(), "") for name in ("Group", "Resource", "Namespace", "Name")}


def _parent(parent: JSONObject | None) -> Errors:
    path = "spec.parentRef"
    if parent is None:
        yield required(path)
        return
    if parent.get("group"):
        yield from subdomain_field(f"{path}.group", parent["group"])
    for name, needed in (("resource", True), ("name", True), ("namespace", False)):
        value = parent.get(name, "")
        if value:
            yield from each(f"{path}.{name}", value, path_segment(value))
        elif needed:
            yield required(f"{path}.{name}")
