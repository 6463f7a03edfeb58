"""Strategies of ResourceClaims, ResourceClaimTemplates and DeviceClasses. Source: pkg/apis/resource/validation, pkg/registry/resource."""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable, Iterator
from functools import lru_cache, partial
from typing import Any, Final

from kubeloop.apiserver.builtin.devices.fields import (
    DOMAIN,
    IDENTIFIER,
    RequestNames,
    check_binding_conditions,
    identity_key,
    name_key,
    validate_class_name,
    validate_configuration,
    validate_driver_name,
    validate_fully_qualified_name,
    validate_items,
    validate_pool_name,
    validate_raw_object,
    validate_share_id,
    validate_toleration,
    validate_unique_items,
)
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.resources import is_extended
from kubeloop.apiserver.builtin.pods.scheduling import validate_node_selector
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import (
    check_immutable,
    check_one_of,
    sloppy_cidr,
    sloppy_ip,
    unsupported,
    validate_dns_label_field,
)
from kubeloop.apiserver.validation.metadata import check_template_meta, validate_conditions
from kubeloop.cel import CompileError, Environment, compile_expression, types
from kubeloop.cel.estimate import CostRange, Path
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid, required, too_long, too_many
from kubeloop.types import JSONObject

# Selectors of devices: CEL expressions about ``device``, which are compiled on a write.
#
# Source: k8s.io/dynamic-resource-allocation cel/compile.go, with the feature gates of a default 1.36 server.


_LONGEST: Final = 10 * 1024
_COST_LIMIT: Final = 1_000_000
#: Maximum number of selectors in one list.
MOST: Final = 32
_MOST_ATTRIBUTES: Final = 32
_LONGEST_ATTRIBUTE: Final = 64

_DEVICE: Final = types.struct("kubernetes.DRADevice")
_ENVIRONMENT: Final = Environment(
    {"device": _DEVICE},
    {
        _DEVICE.name: {
            "driver": types.STRING,
            "allowMultipleAllocations": types.BOOL,
            "attributes": types.map_of(types.STRING, types.map_of(types.STRING, types.ANY)),
            "capacity": types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY)),
        }
    },
    bindings=True,
)


def validate_selectors(path: str, value: list[JSONObject] | None) -> Errors:
    """Validate a list of selectors."""
    return validate_items(path, value, MOST, _selector)


def _selector(path: str, selector: JSONObject) -> Errors:
    cel = selector.get("cel")
    if cel is None:
        yield required(f"{path}.cel")
        return
    path, expression = f"{path}.cel.expression", cel.get("expression", "")
    if len(expression.encode()) > _LONGEST:
        yield too_long(path, _LONGEST)
        return
    error, too_costly = _judged(expression)
    if error:
        yield invalid(path, expression, error)
    elif too_costly:
        yield forbidden(path, "too complex, exceeds cost limit")


@lru_cache(maxsize=256)
def _judged(expression: str) -> tuple[str, bool]:
    """Return why an expression is invalid, and whether its estimated cost is too high."""
    try:
        program = compile_expression(expression, _ENVIRONMENT, _COST_LIMIT)
    except CompileError as error:
        return f"compilation failed: {error}", False
    if program.result not in (types.BOOL, types.ANY):
        return f"must evaluate to bool or the unknown type, not {program.result}", False
    return "", program.most_cost(_size_of) > _COST_LIMIT


def _size_of(path: Path) -> CostRange | None:
    """Return the size range of an attribute or capacity, as far as a ResourceSlice limits it. Any name below a domain is an attribute."""
    match path[1:]:
        case ():
            return CostRange(0, 0)
        case ("driver",):
            return CostRange(0, DOMAIN)
        case ("allowMultipleAllocations",):
            return CostRange(0, 1)
        case ("attributes" | "capacity",) | ("attributes" | "capacity", "@values"):
            return CostRange(0, _MOST_ATTRIBUTES)
        case ("attributes" | "capacity", "@keys"):
            return CostRange(0, DOMAIN)
        case ("attributes" | "capacity", "@values", "@keys"):
            return CostRange(0, IDENTIFIER)
        case ("attributes", "@values", _):
            return CostRange(0, _LONGEST_ATTRIBUTE)
        case ("capacity", "@values", "@values"):
            return CostRange(0, 0)
        case _:
            return None


# The spec of a claim: requests, constraints between devices, configuration. Source: pkg/apis/resource/validation.


#: Maximum number of requests, and of references to requests in one list.
MOST_REQUESTS = 32
MOST_CONFIGURATIONS = 32
_MOST_CONSTRAINTS = 32
_MOST_ALTERNATIVES = 8


def validate_claim_spec(path: str, spec: JSONObject) -> Errors:
    """Validate the spec of a claim."""
    devices = spec.get("devices") or {}
    path, requests = f"{path}.devices", RequestNames(devices)
    yield from validate_unique_items(f"{path}.requests", devices.get("requests"), MOST_REQUESTS, _request, name_key)
    yield from validate_items(f"{path}.constraints", devices.get("constraints"), _MOST_CONSTRAINTS, partial(_constraint, requests))
    yield from validate_items(f"{path}.config", devices.get("config"), MOST_CONFIGURATIONS, partial(_configuration, requests))


def validate_references(path: str, value: list[str] | None, requests: RequestNames) -> Errors:
    """Validate references to requests of a claim."""
    return validate_unique_items(path, value, MOST_REQUESTS, requests.check, identity_key)


def _request(path: str, request: JSONObject) -> Errors:
    yield from validate_dns_label_field(f"{path}.name", request.get("name", ""))
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    rule = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not alternatives:
        yield required(path, rule)
    elif exactly is not None and alternatives:
        yield invalid(path, None, f"{rule}, but multiple fields are set")
    elif exactly is not None:
        yield from _exact(f"{path}.exactly", exactly)
    else:
        yield from validate_unique_items(f"{path}.firstAvailable", alternatives, _MOST_ALTERNATIVES, _alternative, name_key)


def _alternative(path: str, request: JSONObject) -> Errors:
    yield from validate_dns_label_field(f"{path}.name", request.get("name", ""))
    yield from _exact(path, request)


def _exact(path: str, request: JSONObject) -> Errors:
    yield from validate_class_name(f"{path}.deviceClassName", request.get("deviceClassName", ""))
    yield from validate_selectors(f"{path}.selectors", request.get("selectors"))
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All":
        if count:
            yield invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(f"{path}.count", count, "must be greater than zero")
    else:
        yield unsupported(f"{path}.allocationMode", mode, ("All", "ExactCount"))
    yield from validate_items(f"{path}.tolerations", request.get("tolerations"), None, validate_toleration)


def _constraint(requests: RequestNames, path: str, constraint: JSONObject) -> Errors:
    yield from validate_references(f"{path}.requests", constraint.get("requests"), requests)
    for field in ("matchAttribute", "distinctAttribute"):
        if constraint.get(field) is not None:
            yield from validate_fully_qualified_name(f"{path}.{field}", constraint[field])
            return
    # Upstream's message, whatever is set.
    yield required(path, 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set')


def _configuration(requests: RequestNames, path: str, config: JSONObject) -> Errors:
    yield from validate_references(f"{path}.requests", config.get("requests"), requests)
    yield from validate_configuration(path, config)


# The status of a claim: allocated devices, consumers, reports of drivers. Source: pkg/apis/resource/validation.


Device = tuple[str, str, str, str]

_MOST_CONSUMERS, _MOST_RESULTS, _MOST_CONDITIONS, _MOST_ADDRESSES = 256, 32, 8, 16


def device_of(result: JSONObject) -> Device:
    """Return the identity of the device in an allocation result, with its share."""
    driver, pool, device, share = (result.get(name) or "" for name in ("driver", "pool", "device", "shareID"))
    return driver, pool, device, share


def results_of(status: JSONObject) -> list[JSONObject]:
    """Return the allocation results of a status."""
    result: list[JSONObject] = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    return result


def validate_claim_status(path: str, status: JSONObject, old: JSONObject, requests: RequestNames, *, deleted: bool) -> Errors:
    """Validate the status of a claim.

    Args:
        path: Path of the status.
        status: The new status.
        old: The stored status.
        requests: Names of the claim's requests.
        deleted: The claim is being deleted.

    Returns:
        The errors.
    """
    consumers, allocation = status.get("reservedFor") or [], status.get("allocation")
    reserved = f"{path}.reservedFor"
    yield from validate_unique_items(reserved, consumers, _MOST_CONSUMERS, _consumer, lambda consumer: consumer.get("uid", ""))
    allocated = {device_of(one) for one in results_of(status)}
    yield from validate_unique_items(f"{path}.devices", status.get("devices"), None, partial(_device, allocated), device_of, _shown)
    if consumers and allocation is None:
        yield forbidden(reserved, "may not be specified when `allocated` is not set")
    elif deleted and any(one not in (old.get("reservedFor") or []) for one in consumers):
        yield forbidden(reserved, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
    if allocation is not None:
        if old.get("allocation") is not None:
            yield from check_immutable(f"{path}.allocation", allocation, old["allocation"])
        else:
            yield from _allocation(f"{path}.allocation", allocation, requests)


def _consumer(path: str, consumer: JSONObject) -> Errors:
    for name in ("resource", "name", "uid"):
        if not consumer.get(name):
            yield required(f"{path}.{name}")


def _allocation(path: str, allocation: JSONObject, requests: RequestNames) -> Errors:
    devices = allocation.get("devices") or {}
    yield from validate_items(f"{path}.devices.results", devices.get("results"), _MOST_RESULTS, partial(_result, requests))
    yield from validate_items(
        f"{path}.devices.config", devices.get("config"), 2 * MOST_CONFIGURATIONS, partial(_result_configuration, requests)
    )
    if allocation.get("nodeSelector") is not None:
        yield from validate_node_selector(f"{path}.nodeSelector", allocation["nodeSelector"], False)


def _result(requests: RequestNames, path: str, result: JSONObject) -> Errors:
    yield from requests.check(f"{path}.request", result.get("request", ""))
    yield from _place(path, result)
    yield from check_binding_conditions(path, result)
    if result.get("shareID") is not None:
        yield from validate_share_id(f"{path}.shareID", result["shareID"])


def _place(path: str, result: JSONObject) -> Errors:
    yield from validate_driver_name(f"{path}.driver", result.get("driver", ""))
    yield from validate_pool_name(f"{path}.pool", result.get("pool", ""))
    yield from validate_dns_label_field(f"{path}.device", result.get("device", ""))


def _result_configuration(requests: RequestNames, path: str, config: JSONObject) -> Errors:
    if not config.get("source"):
        yield required(f"{path}.source")
    else:
        yield from check_one_of(f"{path}.source", config["source"], ("FromClaim", "FromClass"))
    yield from validate_references(f"{path}.requests", config.get("requests"), requests)
    yield from validate_configuration(path, config)


def _device(allocated: set[Device], path: str, device: JSONObject) -> Errors:
    yield from _place(path, device)
    if device.get("shareID") is not None:
        yield from validate_share_id(f"{path}.shareID", device["shareID"])
    if device_of(device) not in allocated:
        yield invalid(path, _shown(device_of(device)), "must be an allocated device in the claim")
    value = device.get("conditions") or []
    if len(value) > _MOST_CONDITIONS:
        yield too_many(f"{path}.conditions", len(value), _MOST_CONDITIONS)
    yield from validate_conditions(f"{path}.conditions", value)
    if device.get("data") is not None:
        yield from validate_raw_object(f"{path}.data", device["data"])
    network = device.get("networkData")
    if network is not None:
        yield from _network(f"{path}.networkData", network)


def _shown(device: Hashable) -> Any:
    """Format a device as Go does."""
    assert isinstance(device, tuple)
    return dict(zip(("Driver", "Pool", "Device", "ShareID"), device, strict=True))


def _network(path: str, network: JSONObject) -> Errors:
    for name, maximum in (("interfaceName", 256), ("hardwareAddress", 128)):
        if len(network.get(name, "").encode()) > maximum:
            yield too_long(f"{path}.{name}", maximum)
    yield from validate_unique_items(f"{path}.ips", network.get("ips"), _MOST_ADDRESSES, _interface_address, identity_key)


def _interface_address(path: str, value: str) -> Errors:
    """Check an IP address with a prefix length, whose host bits may be set."""
    text, _, length = value.partition("/")
    address = sloppy_ip(text)
    if address is None or sloppy_cidr(value) is None:
        yield invalid(path, value, "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)")
        return
    bits = int(length)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if mapped is not None and bits > 32:
        bits -= 96
    if (canonical := f"{mapped or address}/{bits}") != value:
        yield invalid(path, value, f'must be in canonical form ("{canonical}")')


class DeviceClassStrategy(BuiltinStrategy):
    """Strategy of DeviceClasses."""

    metadata_checks_on_update = ("create", "update")

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        # Upstream declares this rule for names only.
        return [] if prefix else super().validate_name(name, prefix)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], {}))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], old["spec"]))


def _spec(spec: JSONObject, old: JSONObject) -> Iterator[FieldError]:
    yield from validate_selectors("spec.selectors", spec.get("selectors"))
    configs, extended = spec.get("config"), spec.get("extendedResourceName")
    stored = partial(validate_configuration, stored=configs == old.get("config"))
    yield from validate_items("spec.config", configs, MOST_CONFIGURATIONS, stored)
    if extended is not None and not is_extended(extended):
        yield invalid("spec.extendedResourceName", extended, "must be a valid extended resource name")


class ResourceClaimStrategy(BuiltinStrategy):
    """Strategy of ResourceClaims."""

    metadata_checks_on_update = ("create", "update")
    status_keeps_metadata = True

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(validate_claim_spec("spec", obj["spec"]))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(check_immutable("spec", obj["spec"], old["spec"]))

    def prepare_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_status_update(context, obj, old)
        status = obj.get("status") or {}
        gone = {device_of(one) for one in results_of(old.get("status") or {})} - {device_of(one) for one in results_of(status)}
        retained = [one for one in status.get("devices") or () if device_of(one) not in gone]
        if retained:
            status["devices"] = retained
        else:
            status.pop("devices", None)

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        requests = RequestNames(obj["spec"].get("devices") or {})
        deleted = "deletionTimestamp" in obj["metadata"]
        return list(validate_claim_status("status", obj.get("status") or {}, old.get("status") or {}, requests, deleted=deleted))


class ResourceClaimTemplateStrategy(BuiltinStrategy):
    """Strategy of ResourceClaimTemplates."""

    metadata_checks_on_update = ("create", "update")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        spec = obj["spec"]
        return [*check_template_meta("spec.metadata", spec.get("metadata")), *validate_claim_spec("spec.spec", spec.get("spec") or {})]

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [*self.validate_create(context, obj), *check_immutable("spec", obj["spec"], old["spec"])]
