"""Opaque parameters for drivers, and conditions under which devices are bound. Source: pkg/apis/resource/validation."""

from __future__ import annotations

import json
from typing import Any

from kubeloop.apiserver.builtin.devices.collections import items
from kubeloop.apiserver.builtin.devices.names import driver_name
from kubeloop.apiserver.validation.formats import each
from kubeloop.meta.field_error import Errors, duplicate, invalid, required, too_long
from kubeloop.meta.names import qualified_name
from kubeloop.types import JSONObject

_LONGEST = 10 * 1024
_MOST_CONDITIONS = 4


def configuration(path: str, config: JSONObject, *, stored: bool = False) -> Errors:
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from driver_name(f"{path}.opaque.driver", opaque.get("driver", ""))
    yield from raw_object(f"{path}.opaque.parameters", opaque.get("parameters"), stored=stored)


def raw_object(path: str, value: Any, *, stored: bool = False) -> Errors:
    """An object of any content and limited size; what is ``stored`` already may be larger."""
    if value is None:
        yield required(path)
    elif not stored and len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()) > _LONGEST:
        yield too_long(path, _LONGEST)
    elif not isinstance(value, dict):
        yield invalid(path, "<value omitted>", "must be a valid JSON object")


def label_name(path: str, name: str) -> Errors:
    return each(path, name, qualified_name(name))


def binding_conditions(path: str, holder: JSONObject) -> Errors:
    """Both lists or none, without anything twice."""
    wanted, failures = holder.get("bindingConditions") or [], holder.get("bindingFailureConditions") or []
    for field, found in (("bindingConditions", wanted), ("bindingFailureConditions", failures)):
        yield from items(f"{path}.{field}", found, _MOST_CONDITIONS, label_name)
    yield from _repeated(f"{path}.bindingConditions", wanted)
    known: set[str] = set()
    for at, one in enumerate(failures):
        here = f"{path}.bindingFailureConditions[{at}]"
        if one in known:
            yield duplicate(here, one)
        known.add(one)
        if one in wanted:
            yield invalid(here, one, "bindingFailureConditions must not overlap with bindingConditions")
    for field, other in (("bindingConditions", "bindingFailureConditions"), ("bindingFailureConditions", "bindingConditions")):
        if holder.get(other) and not holder.get(field):
            yield invalid(f"{path}.{field}", holder.get(field), f"{field} are required to use {other}")


def _repeated(path: str, found: list[str]) -> Errors:
    known: set[str] = set()
    for at, one in enumerate(found):
        if one in known:
            yield duplicate(f"{path}[{at}]", one)
        known.add(one)
