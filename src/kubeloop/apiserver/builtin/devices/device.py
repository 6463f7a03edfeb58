"""Validates one device of a ResourceSlice: attributes, capacity, consumed counters, taints, nodes.

Source: pkg/apis/resource/validation.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from kubeloop.apiserver.builtin.devices.fields import (
    QUALIFIED,
    accept_any,
    check_binding_conditions,
    validate_domain_qualified_name,
    validate_items,
    validate_mapping,
    validate_taint,
    validate_unique_items,
)
from kubeloop.apiserver.builtin.pods.scheduling import validate_node_selector
from kubeloop.apiserver.builtin.quantities import quantity
from kubeloop.apiserver.validation.formats import validate_dns_label_field, validate_subdomain_field
from kubeloop.meta.field_error import Errors, forbidden, invalid, required, too_long
from kubeloop.types import JSONObject

# Capacity: amounts and steps in which claims can request it. Source: validateRequestPolicy of pkg/apis/resource/validation.


_MOST_VALUES = 10


def validate_shared_capacity(path: str, capacity: JSONObject) -> Errors:
    """Validate the capacity of a device that several claims can share."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    path, whole = f"{path}.requestPolicy", capacity.get("value", "0")
    values, of_range, default = policy.get("validValues"), policy.get("validRange"), policy.get("default")
    if values and of_range is not None:
        yield forbidden(path, 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time')
    elif values or of_range is not None:
        name = "validValues" if values else "validRange"
        if default is None:
            yield required(f"{path}.default", f"required when {name} is defined")
        elif values:
            yield from _values(f"{path}.{name}", values, whole, default)
        else:
            yield from _range(f"{path}.{name}", of_range, whole, default)


def validate_whole_capacity(path: str, capacity: JSONObject) -> Errors:
    """Validate the capacity of a device that one claim uses."""
    if capacity.get("requestPolicy") is not None:
        yield forbidden(f"{path}.requestPolicy", "allowMultipleAllocations must be true")


def _values(path: str, values: list[str], capacity: str, default: str) -> Errors:
    for index in range(1, len(values)):
        if quantity(values[index - 1]) > quantity(values[index]):
            yield invalid(f"{path}[{index}]", _text(values[index]), "values must be sorted in ascending order")

    def fits(here: str, value: str) -> Errors:
        if quantity(value) > quantity(capacity):
            yield invalid(here, _text(value), f"option is larger than capacity value: {_text(capacity)}")

    yield from validate_unique_items(path, values, _MOST_VALUES, fits, lambda option: str(quantity(option).value()))
    if len(values) > _MOST_VALUES or all(quantity(one) != quantity(default) for one in values):
        yield invalid(path, _text(default), "default value is not valid according to the requestPolicy")


def _range(path: str, field_value: JSONObject, capacity: str, default: str) -> Errors:
    minimum, maximum, step = field_value.get("min"), field_value.get("max"), field_value.get("step")
    if minimum is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    if quantity(minimum) > quantity(capacity):
        yield invalid(f"{path}.min", _text(minimum), f"min is larger than capacity value: {_text(capacity)}")
    if quantity(default) < quantity(minimum):
        yield invalid(f"{path}.min", _text(default), f"default is less than min: {_text(minimum)}")
    if maximum is not None:
        if quantity(minimum) > quantity(maximum):
            yield invalid(f"{path}.max", _text(minimum), f"min is larger than max: {_text(maximum)}")
        if quantity(maximum) > quantity(capacity):
            yield invalid(f"{path}.max", _text(maximum), f"max is larger than capacity value: {_text(capacity)}")
        if quantity(default) > quantity(maximum):
            yield invalid(f"{path}.max", _text(default), f"default is more than max: {_text(maximum)}")
    if step is None:
        return
    first = quantity(minimum) + quantity(step)
    if first > quantity(capacity):
        yield invalid(f"{path}.step", _text(step), f"one step {first} is larger than capacity value: {_text(capacity)}")
    for value in (default, maximum):
        # A step of zero is rejected because no value is a multiple of it.
        width = quantity(step).value()
        if value is not None and (not width or (quantity(value).value() - quantity(minimum).value()) % width):
            why = f"value is not a multiple of a given step ({_text(step)}) from ({_text(minimum)})"
            yield invalid(f"{path}.step", _text(value), why)


def _text(value: str) -> str:
    return str(quantity(value))


_MOST_TAINTS, _MOST_CONSUMED, _MOST_COUNTERS, _MOST_ATTRIBUTES = 16, 2, 32, 32
_LONGEST_VALUE, _LABEL = 64, 63
#: Types of attribute values, in the order of Go's fields.
_VALUES = {"int": "IntValue", "bool": "BoolValue", "string": "StringValue", "version": "VersionValue"}
_NUMBER = r"(0|[1-9]\d*)"
_PRERELEASE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = "[0-9a-zA-Z-]+"
_VERSION = rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?"
_NODES = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the "


def validate_device(before: JSONObject, per_device: bool, path: str, value: JSONObject) -> Errors:
    """Validate a device.

    Args:
        before: Devices of the replaced slice by name, whose values are accepted.
        per_device: Each device names its own nodes.
        path: Path of the device.
        value: The device.

    Returns:
        The errors.
    """
    name, attributes, capacity = value.get("name", ""), value.get("attributes") or {}, value.get("capacity") or {}
    yield from validate_dns_label_field(f"{path}.name", name)
    if len(attributes) + len(capacity) > _MOST_ATTRIBUTES:
        why = f"the total number of attributes and capacities must not exceed {_MOST_ATTRIBUTES}"
        yield invalid(path, len(attributes) + len(capacity), why)
    if len(attributes) > 48:
        yield invalid(path, len(attributes), "the total number of attribute values must not exceed 48")
    yield from validate_mapping(f"{path}.attributes", attributes, None, QUALIFIED, validate_domain_qualified_name, _attribute)
    check = validate_shared_capacity if value.get("allowMultipleAllocations") else validate_whole_capacity
    yield from validate_mapping(f"{path}.capacity", capacity, None, QUALIFIED, validate_domain_qualified_name, check)
    if name not in before or (before[name].get("taints") or []) != (value.get("taints") or []):
        yield from validate_items(f"{path}.taints", value.get("taints"), _MOST_TAINTS, validate_taint)
    consumed = value.get("consumesCounters")
    key = "counterSet"
    yield from validate_unique_items(
        f"{path}.consumesCounters", consumed, _MOST_CONSUMED, partial(validate_counters, key), lambda consumption: consumption.get(key, "")
    )
    yield from _nodes(path, value, per_device)
    yield from check_binding_conditions(path, value)


def validate_counters(key: str, path: str, value: JSONObject) -> Errors:
    """Validate a counter set. ``key`` is the field with the name of the set: ``name`` or ``counterSet``."""
    if not value.get(key):
        yield required(f"{path}.{key}")
    else:
        yield from validate_dns_label_field(f"{path}.{key}", value[key])
    if not value.get("counters"):
        yield required(f"{path}.counters")
    else:
        yield from validate_mapping(f"{path}.counters", value["counters"], _MOST_COUNTERS, _LABEL, validate_dns_label_field, accept_any)


def _attribute(path: str, attribute: JSONObject) -> Errors:
    text, version = attribute.get("string"), attribute.get("version")
    if text is not None and len(text.encode()) > _LONGEST_VALUE:
        yield too_long(f"{path}.string", _LONGEST_VALUE)
    if version is not None:
        if not re.fullmatch(_VERSION, version, re.ASCII):
            yield invalid(f"{path}.version", version, "must be a string compatible with semver.org spec 2.0.0")
        if len(version.encode()) > _LONGEST_VALUE:
            yield too_long(f"{path}.version", _LONGEST_VALUE)
    values = [name for name in _VALUES if attribute.get(name) is not None]
    if len(values) != 1:
        shown: Any = "" if not values else _as_go_prints(attribute)
        yield invalid(path, shown, "exactly one value must be specified")


def _as_go_prints(attribute: JSONObject) -> JSONObject:
    shown = {internal: attribute.get(name) for name, internal in _VALUES.items()}
    return {**shown, **dict.fromkeys(("IntValues", "BoolValues", "StringValues", "VersionValues"))}


def _nodes(path: str, value: JSONObject, per_device: bool) -> Errors:
    if not per_device:
        if any(value.get(name) is not None for name in ("nodeName", "nodeSelector", "allNodes")):
            rule = "can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            yield invalid(path, None, f"`nodeName`, `nodeSelector` and `allNodes` {rule}")
        return
    values, name, selector, everywhere = [], value.get("nodeName"), value.get("nodeSelector"), value.get("allNodes")
    if name:
        values.append("`nodeName`")
        yield from validate_subdomain_field(f"{path}.nodeName", name)
    elif name is not None:
        yield invalid(f"{path}.nodeName", name, "must not be empty")
    if selector is not None:
        values.append("`nodeSelector`")
        yield from validate_node_selector(f"{path}.nodeSelector", selector, False)
    if everywhere:
        values.append("`allNodes`")
    elif everywhere is not None:
        yield invalid(f"{path}.allNodes", everywhere, "must be either unset or set to true")
    if not values:
        yield required(path, f"{_NODES}ResourceSlice spec")
    elif len(values) > 1:
        yield invalid(path, f"{{{', '.join(values)}}}", f"{_NODES}ResourceSlice spec")
