"""Endpoints. Source: ValidateEndpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.ports import PROTOCOLS
from kubeloop.apiserver.builtin.services.spec import endpoint_ip
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.addresses import ip_warnings
from kubeloop.apiserver.validation.formats import each, ip_address, label_name_field, one_of, subdomain_field
from kubeloop.meta.field_error import FieldError, required
from kubeloop.meta.names import port_number, qualified_name

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]

_MANAGED_BY = "endpoints.kubernetes.io/managed-by"


class EndpointsStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("update", "create")

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_subsets(obj.get("subsets") or []))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [] if obj.get("subsets") == old.get("subsets") else list(_subsets(obj.get("subsets") or []))

    def warnings(self, context: RequestContext, obj: JSONObject) -> list[str]:
        if (obj["metadata"].get("labels") or {}).get(_MANAGED_BY) == "endpoint-controller":
            return []
        found = []
        for at, subset in enumerate(obj.get("subsets") or ()):
            for kind in ("addresses", "notReadyAddresses"):
                for address_at, address in enumerate(subset.get(kind) or ()):
                    found += ip_warnings(f"subsets[{at}].{kind}[{address_at}].ip", address.get("ip", ""))
        return found


def _subsets(subsets: list[JSONObject]) -> Errors:
    for at, subset in enumerate(subsets):
        here, ports = f"subsets[{at}]", subset.get("ports") or []
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield required(here, "must specify `addresses` or `notReadyAddresses`")
        for kind in ("addresses", "notReadyAddresses"):
            for address_at, address in enumerate(subset.get(kind) or ()):
                yield from _address(f"{here}.{kind}[{address_at}]", address)
        for port_at, port in enumerate(ports):
            yield from _port(f"{here}.ports[{port_at}]", port, several=len(ports) > 1)


def _address(path: str, address: JSONObject) -> Errors:
    found = address.get("ip", "")
    faults = ip_address(found)
    yield from each(f"{path}.ip", found, faults)
    if address.get("hostname"):
        yield from label_name_field(f"{path}.hostname", address["hostname"])
    if address.get("nodeName") is not None:
        yield from subdomain_field(f"{path}.nodeName", address["nodeName"])
    invalid_ip = bool(faults) and faults[0].startswith("must be a valid IP address")
    yield from each(f"{path}.ip", found, ["must be a valid IP address"] if invalid_ip else endpoint_ip(found))


def _port(path: str, port: JSONObject, *, several: bool) -> Errors:
    if several and not port.get("name"):
        yield required(f"{path}.name")
    elif port.get("name"):
        yield from label_name_field(f"{path}.name", port["name"])
    yield from each(f"{path}.port", port.get("port", 0), port_number(port.get("port", 0)))
    if not port.get("protocol"):
        yield required(f"{path}.protocol")
    else:
        yield from one_of(f"{path}.protocol", port["protocol"], PROTOCOLS)
    if port.get("appProtocol") is not None:
        yield from each(f"{path}.appProtocol", port["appProtocol"], qualified_name(port["appProtocol"]))
