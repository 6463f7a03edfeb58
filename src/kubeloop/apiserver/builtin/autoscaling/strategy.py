"""Horizontal pod autoscalers in both versions. Source: ValidateHorizontalPodAutoscaler, pkg/registry/autoscaling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.autoscaling.behavior import behavior
from kubeloop.apiserver.builtin.autoscaling.metrics import api_version_fault, metrics, scaled_object
from kubeloop.apiserver.builtin.conversion import convert_autoscaler
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.formats import not_negative
from kubeloop.meta.field_error import FieldError, invalid, required

JSONObject = dict[str, Any]


class AutoscalerStrategy(BuiltinStrategy):
    """Whatever the version of a request, it is checked as v2. References that an old state got wrong may stay wrong."""

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_spec(_as_sent(_newest(obj), context.sent), None, any_object=False))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        before = _newest(old)
        described = [(one.get("object") or {}).get("describedObject") or {} for one in before.get("metrics") or ()]
        any_object = any(api_version_fault(one, core=True) for one in described)
        return list(_spec(_as_sent(_newest(obj), context.sent), before, any_object=any_object))

    def prepare_status_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_status_update(context, obj, old)
        # Upstream's internal form is that of v2, whose list of current metrics v1 has as an annotation.
        if obj.get("apiVersion") == "autoscaling/v1":
            obj.update(convert_autoscaler(convert_autoscaler(obj, "v2"), "v1"))

    def validate_status_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        status = obj.get("status") or {}
        names = ("currentReplicas", "desiredReplicas")
        return [error for name in names for error in not_negative(f"status.{name}", status.get(name))]


def _newest(obj: JSONObject) -> JSONObject:
    spec: JSONObject = convert_autoscaler(obj, "v2").get("spec") or {}
    return spec


def _as_sent(spec: JSONObject, sent: Any) -> JSONObject:
    """A list of no policies is refused, one that is left out gets defaults; only the body still tells one from the other."""
    behaviors = spec.get("behavior")
    given = (sent.get("spec") or {}).get("behavior") if isinstance(sent, dict) else None
    if not behaviors or not given:
        return spec
    none = {name: rules | {"policies": []} for name, rules in behaviors.items() if (given.get(name) or {}).get("policies") == []}
    return spec | {"behavior": behaviors | none}


def _spec(spec: JSONObject, old: JSONObject | None, *, any_object: bool) -> Iterator[FieldError]:
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    lowest = 0 if old is not None and old.get("minReplicas") == 0 else 1
    if least is not None and least < lowest:
        yield invalid("spec.minReplicas", least, f"must be greater than or equal to {lowest}")
    if most == 0:
        yield required("spec.maxReplicas", "must be set and greater than 0")
    elif most < 0:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to 1")
    if least is not None and most < least:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    target, before = spec.get("scaleTargetRef") or {}, (old or {}).get("scaleTargetRef") or {}
    kept = old is not None and all(target.get(name, "") == before.get(name, "") for name in ("apiVersion", "kind"))
    # The only kind of the core group that scales.
    core = target.get("kind") == "ReplicationController"
    yield from scaled_object("spec.scaleTargetRef", target, core=core, any_version=kept)
    yield from metrics("spec.metrics", spec.get("metrics") or [], least, any_version=any_object)
    yield from behavior("spec.behavior", spec.get("behavior") or {})
