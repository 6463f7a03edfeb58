"""Strategies of Endpoints and EndpointSlices. Source: pkg/apis/core/validation, pkg/apis/discovery/validation."""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.ports import PROTOCOLS
from kubeloop.apiserver.builtin.services.strategy import LOOPBACK_REFUSAL, endpoint_ip
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import (
    check_immutable,
    check_one_of,
    each,
    ip_warnings,
    validate_canonical_ip,
    validate_dns_label_field,
    validate_fully_qualified_name,
    validate_ip_address,
    validate_subdomain_field,
)
from kubeloop.meta.field_error import Errors, FieldError, duplicate, required, too_many
from kubeloop.meta.names import dns1123_subdomain, label_value, port_number, qualified_name
from kubeloop.types import JSONObject

_MANAGED_BY = "endpoints.kubernetes.io/managed-by"


class EndpointsStrategy(BuiltinStrategy):
    """Strategy of Endpoints."""

    metadata_checks_on_update = ("update", "create")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return _applied(_subsets(obj.get("subsets") or []), loopback=self.allows_loopback)

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [] if obj.get("subsets") == old.get("subsets") else self.validate_create(context, obj)

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        if (obj["metadata"].get("labels") or {}).get(_MANAGED_BY) == "endpoint-controller":
            return []
        messages = []
        for index, subset in enumerate(obj.get("subsets") or ()):
            for kind in ("addresses", "notReadyAddresses"):
                for address_at, address in enumerate(subset.get(kind) or ()):
                    messages += ip_warnings(f"subsets[{index}].{kind}[{address_at}].ip", address.get("ip", ""))
        return messages


def _applied(errors: Errors, *, loopback: bool) -> list[FieldError]:
    """Return the errors, without those about loopback addresses where these are allowed."""
    return [error for error in errors if not (loopback and error.detail == LOOPBACK_REFUSAL)]


def _subsets(subsets: list[JSONObject]) -> Errors:
    for index, subset in enumerate(subsets):
        here, ports = f"subsets[{index}]", subset.get("ports") or []
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(here, "must specify `addresses` or `notReadyAddresses`")
        for kind in ("addresses", "notReadyAddresses"):
            for address_at, address in enumerate(subset.get(kind) or ()):
                yield from _address(f"{here}.{kind}[{address_at}]", address)
        for port_at, port in enumerate(ports):
            yield from _port(f"{here}.ports[{port_at}]", port, several=len(ports) > 1)


def _address(path: str, address: JSONObject) -> Errors:
    value = address.get("ip", "")
    errors = validate_ip_address(value)
    yield from each(f"{path}.ip", value, errors)
    if address.get("hostname"):
        yield from validate_dns_label_field(f"{path}.hostname", address["hostname"])
    if address.get("nodeName") is not None:
        yield from validate_subdomain_field(f"{path}.nodeName", address["nodeName"])
    invalid_ip = bool(errors) and errors[0].startswith("must be a valid IP address")
    yield from each(f"{path}.ip", value, ["must be a valid IP address"] if invalid_ip else endpoint_ip(value))


def _port(path: str, port: JSONObject, *, several: bool) -> Errors:
    if several and not port.get("name"):
        yield required(f"{path}.name")
    elif port.get("name"):
        yield from validate_dns_label_field(f"{path}.name", port["name"])
    yield from each(f"{path}.port", port.get("port", 0), port_number(port.get("port", 0)))
    if not port.get("protocol"):
        yield required(f"{path}.protocol")
    else:
        yield from check_one_of(f"{path}.protocol", port["protocol"], PROTOCOLS)
    if port.get("appProtocol") is not None:
        yield from each(f"{path}.appProtocol", port["appProtocol"], qualified_name(port["appProtocol"]))


_SLICE_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")
#: Maximum numbers of endpoints and ports of a slice, and of addresses and hints of an endpoint.
_ENDPOINTS, _PORTS, _ADDRESSES, _HINTS = 1000, 20000, 100, 8


class EndpointSliceStrategy(BuiltinStrategy):
    """Strategy of EndpointSlices. It does not validate unchanged endpoints again, and does not compare metadata with the stored object."""

    metadata_checks_on_update = ("create",)

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        for endpoint in obj.get("endpoints") or ():
            # v1 uses the field only for objects of older versions, which are never stored here.
            endpoint.pop("deprecatedTopology", None)

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        self.prepare_create(context, obj)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return _applied(_slice(obj, None), loopback=self.allows_loopback)

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors = _applied(_slice(obj, old), loopback=self.allows_loopback)
        return [*errors, *check_immutable("addressType", obj.get("addressType"), old.get("addressType"))]

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        deprecated = ["spec.addressType: FQDN endpoints are deprecated"] if obj.get("addressType") == "FQDN" else []
        return deprecated + self._address_warnings(obj)

    def warnings_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        return self._address_warnings(obj)

    @staticmethod
    def _address_warnings(obj: JSONObject) -> list[str]:
        if (obj["metadata"].get("labels") or {}).get(_SLICE_MANAGED_BY) in _CONTROLLERS:
            return []
        addresses = (
            (f"endpoints[{index}].addresses[{address_at}]", address)
            for index, endpoint in enumerate(obj.get("endpoints") or ())
            for address_at, address in enumerate(endpoint.get("addresses") or ())
        )
        return [text for path, address in addresses for text in ip_warnings(path, address)]

    def counts_for_generation(self, obj: JSONObject) -> object:
        return super().counts_for_generation(obj), obj["metadata"].get("labels") or {}


def _slice(obj: JSONObject, old: JSONObject | None) -> Errors:
    kind, endpoints = obj.get("addressType", ""), obj.get("endpoints") or []
    if not kind:
        yield required("addressType")
    else:
        yield from check_one_of("addressType", kind, ("FQDN", "IPv4", "IPv6"))
    yield from _ports(obj.get("ports") or [])
    if old is not None and endpoints == (old.get("endpoints") or []):
        return
    if len(endpoints) > _ENDPOINTS:
        yield too_many("endpoints", len(endpoints), _ENDPOINTS)
        return
    for index, endpoint in enumerate(endpoints):
        yield from _endpoint(f"endpoints[{index}]", endpoint, kind)


def _endpoint(path: str, endpoint: JSONObject, kind: str) -> Errors:
    addresses = endpoint.get("addresses") or []
    if not addresses:
        yield required(f"{path}.addresses", "must contain at least 1 address")
    elif len(addresses) > _ADDRESSES:
        yield too_many(f"{path}.addresses", len(addresses), _ADDRESSES)
    yield from _addresses(f"{path}.addresses", addresses, kind)
    if endpoint.get("nodeName") is not None:
        yield from validate_subdomain_field(f"{path}.nodeName", endpoint["nodeName"])
    if endpoint.get("hostname") is not None:
        yield from validate_dns_label_field(f"{path}.hostname", endpoint["hostname"])
    for name, rule in (("forZones", label_value), ("forNodes", dns1123_subdomain)):
        hints = (endpoint.get("hints") or {}).get(name) or []
        yield from _hints(f"{path}.hints.{name}", hints, rule)
        if len(hints) > _HINTS:
            return


def _hints(path: str, hints: list[JSONObject], rule: Callable[[str], list[str]]) -> Errors:
    if len(hints) > _HINTS:
        yield too_many(path, len(hints), _HINTS)
        return
    names: set[str] = set()
    for index, hint in enumerate(hints):
        here, name = f"{path}[{index}].name", hint.get("name", "")
        if name in names:
            yield duplicate(here, name)
        names.add(name)
        yield from each(here, name, rule(name))


def _addresses(path: str, addresses: list[str], kind: str) -> Errors:
    for index, address in enumerate(addresses):
        here = f"{path}[{index}]"
        if kind == "FQDN":
            yield from validate_fully_qualified_name(here, address)
        elif kind in ("IPv4", "IPv6"):
            errors = validate_ip_address(address) if kind == "IPv4" else validate_canonical_ip(address)
            yield from each(here, address, errors)
            if not errors and (":" in address) != (kind == "IPv6"):
                yield from each(path, address, [f"must be an {kind} address"])
            if not errors:
                yield from each(here, address, endpoint_ip(address))


def _ports(ports: list[JSONObject]) -> Errors:
    if len(ports) > _PORTS:
        yield too_many("ports", len(ports), _PORTS)
        return
    names: set[str] = set()
    for index, port in enumerate(ports):
        here, name = f"ports[{index}]", port.get("name") or ""
        if name:
            yield from validate_dns_label_field(f"{here}.name", name)
        if name in names:
            yield duplicate(f"{here}.name", name)
        names.add(name)
        if port.get("protocol") is None:
            yield required(f"{here}.protocol")
        else:
            yield from check_one_of(f"{here}.protocol", port["protocol"], PROTOCOLS)
        if port.get("appProtocol") is not None:
            yield from each(f"{here}.appProtocol", port["appProtocol"], qualified_name(port["appProtocol"]))
