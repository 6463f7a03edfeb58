"""What a claim asks for: requests, constraints between devices, configuration. Source: pkg/apis/resource/validation."""

from __future__ import annotations

from functools import partial

from kubeloop.apiserver.builtin.devices.collections import items, itself, named, unique
from kubeloop.apiserver.builtin.devices.configuration import configuration
from kubeloop.apiserver.builtin.devices.names import Requests, class_name, fully_qualified_name
from kubeloop.apiserver.builtin.devices.selectors import selectors
from kubeloop.apiserver.builtin.devices.taints import toleration
from kubeloop.apiserver.validation.formats import label_name_field, unsupported
from kubeloop.meta.field_error import Errors, invalid, required
from kubeloop.types import JSONObject

#: Requests, and places that name some of them.
MOST_REQUESTS = 32
MOST_CONFIGURATIONS = 32
_MOST_CONSTRAINTS = 32
_MOST_ALTERNATIVES = 8


def claim_spec(path: str, spec: JSONObject) -> Errors:
    devices = spec.get("devices") or {}
    path, requests = f"{path}.devices", Requests(devices)
    yield from unique(f"{path}.requests", devices.get("requests"), MOST_REQUESTS, _request, named)
    yield from items(f"{path}.constraints", devices.get("constraints"), _MOST_CONSTRAINTS, partial(_constraint, requests))
    yield from items(f"{path}.config", devices.get("config"), MOST_CONFIGURATIONS, partial(_configuration, requests))


def references(path: str, found: list[str] | None, requests: Requests) -> Errors:
    return unique(path, found, MOST_REQUESTS, requests.check, itself)


def _request(path: str, request: JSONObject) -> Errors:
    yield from label_name_field(f"{path}.name", request.get("name", ""))
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    rule = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not alternatives:
        yield required(path, rule)
    elif exactly is not None and alternatives:
        yield invalid(path, None, f"{rule}, but multiple fields are set")
    elif exactly is not None:
        yield from _exact(f"{path}.exactly", exactly)
    else:
        yield from unique(f"{path}.firstAvailable", alternatives, _MOST_ALTERNATIVES, _alternative, named)


def _alternative(path: str, request: JSONObject) -> Errors:
    yield from label_name_field(f"{path}.name", request.get("name", ""))
    yield from _exact(path, request)


def _exact(path: str, request: JSONObject) -> Errors:
    yield from class_name(f"{path}.deviceClassName", request.get("deviceClassName", ""))
    yield from selectors(f"{path}.selectors", request.get("selectors"))
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All":
        if count:
            yield invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(f"{path}.count", count, "must be greater than zero")
    else:
        yield unsupported(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    yield from items(f"{path}.tolerations", request.get("tolerations"), None, toleration)


def _constraint(requests: Requests, path: str, constraint: JSONObject) -> Errors:
    yield from references(f"{path}.requests", constraint.get("requests"), requests)
    for field in ("matchAttribute", "distinctAttribute"):
        if constraint.get(field) is not None:
            yield from fully_qualified_name(f"{path}.{field}", constraint[field])
            return
    # Upstream's words, whatever is set.
    yield required(path, 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set')


def _configuration(requests: Requests, path: str, config: JSONObject) -> Errors:
    yield from references(f"{path}.requests", config.get("requests"), requests)
    yield from configuration(path, config)
