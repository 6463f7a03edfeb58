"""Pod disruption budgets. Source: ValidatePodDisruptionBudget, pkg/registry/policy/poddisruptionbudget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.apps.rollout import at_most_all, int_or_percent
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.conditions import conditions
from kubeloop.apiserver.validation.formats import not_negative, one_of
from kubeloop.apiserver.validation.selectors import label_selector
from kubeloop.meta.field_error import FieldError, invalid

JSONObject = dict[str, Any]


class DisruptionBudgetStrategy(BuiltinStrategy):
    """Upstream checks no more of the metadata than what is checked for all kinds."""

    metadata_checks_on_update = ()
    metadata_checks_on_status = ()

    def _object_meta(self, obj: JSONObject, namespaced: bool) -> list[FieldError]:
        return []

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], any_value=False))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], any_value=bool(list(label_selector("", old["spec"].get("selector"))))))

    def validate_status_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        status = obj.get("status") or {}
        found = list(conditions("status.conditions", status.get("conditions") or []))
        for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
            found += not_negative(f"status.{name}", status.get(name))
        return found


def _spec(spec: JSONObject, *, any_value: bool) -> Iterator[FieldError]:
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name, value in (("minAvailable", least), ("maxUnavailable", most)):
        if value is not None:
            yield from int_or_percent(f"spec.{name}", value)
            yield from at_most_all(f"spec.{name}", value)
    yield from label_selector("spec.selector", spec.get("selector"), any_value=any_value)
    if spec.get("unhealthyPodEvictionPolicy") is not None:
        yield from one_of("spec.unhealthyPodEvictionPolicy", spec["unhealthyPodEvictionPolicy"], ("AlwaysAllow", "IfHealthyBudget"))
