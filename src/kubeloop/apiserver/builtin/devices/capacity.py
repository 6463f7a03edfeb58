"""How much of a device may be had at once, and in which steps. Source: validateRequestPolicy of pkg/apis/resource/validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.devices.collections import unique
from kubeloop.apiserver.builtin.quantities import quantity
from kubeloop.meta.field_error import FieldError, forbidden, invalid, required

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]

_MOST_VALUES = 10


def shared_capacity(path: str, capacity: JSONObject) -> Errors:
    """Of a device that several claims may have."""
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


def whole_capacity(path: str, capacity: JSONObject) -> Errors:
    if capacity.get("requestPolicy") is not None:
        yield forbidden(f"{path}.requestPolicy", "allowMultipleAllocations must be true")


def _values(path: str, values: list[str], whole: str, default: str) -> Errors:
    for at in range(1, len(values)):
        if quantity(values[at - 1]) > quantity(values[at]):
            yield invalid(f"{path}[{at}]", _text(values[at]), "values must be sorted in ascending order")

    def fits(here: str, value: str) -> Errors:
        if quantity(value) > quantity(whole):
            yield invalid(here, _text(value), f"option is larger than capacity value: {_text(whole)}")

    yield from unique(path, values, _MOST_VALUES, fits, lambda one: str(quantity(one).value()))
    if len(values) > _MOST_VALUES or all(quantity(one) != quantity(default) for one in values):
        yield invalid(path, _text(default), "default value is not valid according to the requestPolicy")


def _range(path: str, found: JSONObject, whole: str, default: str) -> Errors:
    least, most, step = found.get("min"), found.get("max"), found.get("step")
    if least is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    if quantity(least) > quantity(whole):
        yield invalid(f"{path}.min", _text(least), f"min is larger than capacity value: {_text(whole)}")
    if quantity(default) < quantity(least):
        yield invalid(f"{path}.min", _text(default), f"default is less than min: {_text(least)}")
    if most is not None:
        if quantity(least) > quantity(most):
            yield invalid(f"{path}.max", _text(least), f"min is larger than max: {_text(most)}")
        if quantity(most) > quantity(whole):
            yield invalid(f"{path}.max", _text(most), f"max is larger than capacity value: {_text(whole)}")
        if quantity(default) > quantity(most):
            yield invalid(f"{path}.max", _text(default), f"default is more than max: {_text(most)}")
    if step is None:
        return
    first = quantity(least) + quantity(step)
    if first > quantity(whole):
        yield invalid(f"{path}.step", _text(step), f"one step {first} is larger than capacity value: {_text(whole)}")
    for value in (default, most):
        # A step of nothing is refused as one that nothing is a multiple of.
        width = quantity(step).value()
        if value is not None and (not width or (quantity(value).value() - quantity(least).value()) % width):
            why = f"value is not a multiple of a given step ({_text(step)}) from ({_text(least)})"
            yield invalid(f"{path}.step", _text(value), why)


def _text(value: str) -> str:
    return str(quantity(value))
