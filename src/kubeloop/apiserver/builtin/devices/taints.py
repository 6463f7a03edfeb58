"""Taints of devices and what tolerates them. Source: pkg/apis/resource/validation."""

from __future__ import annotations

from kubeloop.apiserver.builtin.devices.configuration import label_name
from kubeloop.apiserver.validation.formats import each, one_of, unsupported
from kubeloop.meta.field_error import Errors, invalid, required
from kubeloop.meta.names import label_value
from kubeloop.types import JSONObject

_EFFECTS = ("NoExecute", "NoSchedule", "None")


def taint(path: str, found: JSONObject) -> Errors:
    value, effect = found.get("value", ""), found.get("effect", "")
    yield from label_name(f"{path}.key", found.get("key", ""))
    yield from each(f"{path}.value", value, label_value(value))
    if not effect:
        yield required(f"{path}.effect")
    else:
        yield from one_of(f"{path}.effect", effect, _EFFECTS)


def toleration(path: str, found: JSONObject) -> Errors:
    value, operator = found.get("value", ""), found.get("operator", "")
    if found.get("key"):
        yield from label_name(f"{path}.key", found["key"])
    match operator:
        case "Exists":
            if value:
                yield invalid(f"{path}.value", value, "must be empty for operator `Exists`")
        case "Equal":
            yield from each(f"{path}.value", value, label_value(value))
        case "":
            yield required(f"{path}.operator")
        case _:
            yield unsupported(f"{path}.operator", operator, ("Equal", "Exists"))
    if found.get("effect"):
        yield from one_of(f"{path}.effect", found["effect"], _EFFECTS)
