"""Limit ranges. Source: ValidateLimitRange."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.resources import container_resource_name, resource_name
from kubeloop.apiserver.builtin.quantities import may_overcommit, quantity
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.formats import each
from kubeloop.meta.field_error import FieldError, duplicate, forbidden, invalid, required
from kubeloop.meta.names import qualified_name

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]

_TYPES = ("Container", "PersistentVolumeClaim", "Pod")
#: Above this, ratios are computed in whole units: thousandths would overflow.
_MOST_MILLI = (2**63 - 1) // 1000


class LimitRangeStrategy(BuiltinStrategy):
    metadata_checks_on_update = ("create",)

    def prepare_create(self, context: RequestContext, obj: JSONObject) -> None:
        super().prepare_create(context, obj)
        if not obj["metadata"].get("name"):
            obj["metadata"]["name"] = str(uuid.uuid4())

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_limits(obj["spec"].get("limits") or []))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return self.validate_create(context, obj)


def _limits(limits: list[JSONObject]) -> Errors:
    types: set[str] = set()
    for at, limit in enumerate(limits):
        here, kind = f"spec.limits[{at}]", limit.get("type", "")
        faults = qualified_name(kind)
        yield from each(f"{here}.type", kind, faults)
        if not faults and "/" not in kind and kind not in _TYPES:
            yield invalid(f"{here}.type", kind, "must be a standard limit type or fully qualified")
        if kind in types:
            yield duplicate(f"{here}.type", kind)
        types.add(kind)
        yield from _limit(here, limit)


def _limit(path: str, limit: JSONObject) -> Errors:
    kind = limit.get("type", "")
    parts = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
    if kind == "Pod":
        for name in ("default", "defaultRequest"):
            parts.remove(name)
            if limit.get(name):
                yield forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'")
    check = container_resource_name if kind in ("Pod", "Container") else resource_name
    names: dict[str, None] = {}
    for part in parts:
        for name in limit.get(part) or ():
            yield from check(f"{path}.{part}[{name}]", name)
            names[name] = None
    if kind == "PersistentVolumeClaim" and "storage" not in {**(limit.get("min") or {}), **(limit.get("max") or {})}:
        yield required(f"{path}.limits", "either minimum or maximum storage value is required, but neither was provided")
    for name in names:
        yield from _resource(path, name, {part: (limit.get(part) or {}).get(name) for part in parts})


def _resource(path: str, name: str, texts: dict[str, str | None]) -> Errors:
    least, most, default, request = (texts.get(part) for part in ("min", "max", "default", "defaultRequest"))
    #: Lesser, greater, whose field, the value shown, names for both.
    for low, high, part, shown, words in (
        (least, most, "min", least, ("min", "max")),
        (least, request, "defaultRequest", request, ("min", "default request")),
        (request, most, "defaultRequest", request, ("default request", "max")),
        (request, default, "defaultRequest", request, ("default request", "default limit")),
        (least, default, "default", least, ("min", "default")),
        (default, most, "default", most, ("default", "max")),
    ):
        if low is not None and high is not None and quantity(low) > quantity(high):
            yield invalid(f"{path}.{part}[{name}]", shown, f"{words[0]} value {low} is greater than {words[1]} value {high}")
    yield from _ratio(f"{path}.maxLimitRequestRatio[{name}]", texts.get("maxLimitRequestRatio"), least, most)
    if default is not None and request is not None and not may_overcommit(name) and quantity(default) != quantity(request):
        text = f"default value {default} must equal to defaultRequest value {request} in {name}"
        yield invalid(f"{path}.defaultRequest[{name}]", request, text)


def _ratio(path: str, text: str | None, least: str | None, most: str | None) -> Errors:
    if text is None:
        return
    if quantity(text) < 1:
        yield invalid(path, text, f"ratio {text} is less than 1")
    if least is None or most is None:
        return
    three = [quantity(one) for one in (text, most, least)]
    milli = all(one.value() < _MOST_MILLI for one in three)
    ratio, high, low = (one.milli_value() if milli else one.value() for one in three)
    if low and (ratio / 1000 if milli else ratio) > high / low:
        yield invalid(path, text, f"ratio {text} is greater than max/min = {high / low:f}")
