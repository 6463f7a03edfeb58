"""DaemonSets. Source: pkg/apis/apps/validation, pkg/registry/apps/daemonset."""

from __future__ import annotations

from kubeloop.apiserver.builtin.apps.rollout import amount, at_most_all, int_or_percent
from kubeloop.apiserver.builtin.apps.template import (
    TemplateStrategy,
    always_restarts,
    collisions,
    counts,
    selects_template,
    template_options,
)
from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.builtin.pods.spec import pod_template
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import immutable, not_negative, unsupported
from kubeloop.apiserver.validation.selectors import is_empty, label_selector
from kubeloop.meta.field_error import Errors, FieldError, invalid, required
from kubeloop.meta.strconv import decimal
from kubeloop.types import JSONObject

#: Upstream counts changes of the template in a hidden field, which this annotation shows.
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


class DaemonSetStrategy(TemplateStrategy):
    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        super().prepare_create(context, obj)
        _set_template_generation(obj, max(_template_generation(obj), 1))

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_update(context, obj, old)
        changed = obj["spec"].get("template") != old["spec"].get("template")
        _set_template_generation(obj, _template_generation(old) + changed)

    def prepare_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_status_update(context, obj, old)
        _set_template_generation(obj, _template_generation(old))

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], template_options(None)))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        found = list(immutable("spec.selector", obj["spec"].get("selector"), old["spec"].get("selector")))
        return [*found, *_spec(obj["spec"], template_options(old["spec"].get("template")))]

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        status, before = obj.get("status") or {}, old.get("status") or {}
        return [*_status(status), *collisions(status, before)]


def _template_generation(obj: JSONObject) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION, "0")
    return decimal(text) or 0


def _set_template_generation(obj: JSONObject, number: int) -> None:
    annotations = dict(obj["metadata"].get("annotations") or {})
    obj["metadata"]["annotations"] = {**annotations, _TEMPLATE_GENERATION: str(number)}


def _spec(spec: JSONObject, options: PodOptions) -> Errors:
    selector, template = spec.get("selector"), spec.get("template") or {}
    faults = list(label_selector("spec.selector", selector))
    yield from faults
    if not faults:
        yield from selects_template(selector, template)
    if selector is not None and is_empty(selector):
        yield invalid("spec.selector", selector, "empty selector is invalid for daemonset")
    yield from pod_template("spec.template", template, options)
    yield from always_restarts(template, "DaemonSet")
    yield from not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from _update_strategy("spec.updateStrategy", spec.get("updateStrategy") or {})
    yield from not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))


def _update_strategy(path: str, strategy: JSONObject) -> Errors:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "RollingUpdate":
        if rolling is None:
            yield required(f"{path}.rollingUpdate")
        else:
            yield from _rolling_update(f"{path}.rollingUpdate", rolling)
    elif kind != "OnDelete":
        shown = None if rolling is None else {"MaxUnavailable": rolling.get("maxUnavailable", 0), "MaxSurge": rolling.get("maxSurge", 0)}
        yield unsupported(path, {"Type": kind, "RollingUpdate": shown}, ("RollingUpdate", "OnDelete"))


def _rolling_update(path: str, rolling: JSONObject) -> Errors:
    values = [(f"{path}.{name}", rolling.get(name, 0)) for name in ("maxUnavailable", "maxSurge")]
    for here, value in values:
        yield from int_or_percent(here, value)
    for here, value in values:
        yield from at_most_all(here, value)
    unavailable, surge = (amount(value) != 0 for _, value in values)
    if unavailable and surge:
        yield invalid(f"{path}.maxSurge", rolling.get("maxSurge", 0), "may not be set when maxUnavailable is non-zero")
    elif not unavailable and not surge:
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def _status(status: JSONObject) -> Errors:
    yield from counts(status, "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
    yield from counts(status, "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount")
