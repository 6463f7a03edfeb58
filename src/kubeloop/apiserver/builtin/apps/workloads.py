"""Strategies of ReplicationControllers, PodTemplates, Deployments, ReplicaSets and DaemonSets.

Source: pkg/registry/{core,apps}, pkg/apis/{core,apps}/validation.
"""

from __future__ import annotations

import copy

from kubeloop.apiserver.builtin.apps.template import (
    TemplateStrategy,
    check_always_restarts,
    check_collision_count,
    check_not_greater,
    check_not_negative_counters,
    check_selects_template,
    template_options,
    validate_selector_and_template,
)
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.builtin.pods.spec import validate_pod_template
from kubeloop.apiserver.builtin.pods.warnings import pod_warnings
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import (
    check_at_most_100_percent,
    check_immutable,
    check_not_negative,
    int_or_percent_value,
    unsupported,
    validate_int_or_percent,
)
from kubeloop.apiserver.validation.metadata import is_empty, validate_label_selector
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid, required
from kubeloop.meta.strconv import decimal
from kubeloop.types import JSONObject

#: Upstream counts changes of the template in a hidden field, which this annotation shows.
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


class DaemonSetStrategy(TemplateStrategy):
    """Strategy of DaemonSets."""

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
        return list(_daemon_set_spec(obj["spec"], template_options(None)))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors = list(check_immutable("spec.selector", obj["spec"].get("selector"), old["spec"].get("selector")))
        return [*errors, *_daemon_set_spec(obj["spec"], template_options(old["spec"].get("template")))]

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        status, before = obj.get("status") or {}, old.get("status") or {}
        return [*_daemon_set_status(status), *check_collision_count(status, before)]


def _template_generation(obj: JSONObject) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION, "0")
    return decimal(text) or 0


def _set_template_generation(obj: JSONObject, number: int) -> None:
    annotations = dict(obj["metadata"].get("annotations") or {})
    obj["metadata"]["annotations"] = {**annotations, _TEMPLATE_GENERATION: str(number)}


def _daemon_set_spec(spec: JSONObject, options: PodOptions) -> Errors:
    selector, template = spec.get("selector"), spec.get("template") or {}
    errors = list(validate_label_selector("spec.selector", selector))
    yield from errors
    if not errors:
        yield from check_selects_template(selector, template)
    if selector is not None and is_empty(selector):
        yield invalid("spec.selector", selector, "empty selector is invalid for daemonset")
    yield from validate_pod_template("spec.template", template, options)
    yield from check_always_restarts(template, "DaemonSet")
    yield from check_not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from _update_strategy("spec.updateStrategy", spec.get("updateStrategy") or {})
    yield from check_not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))


def _update_strategy(path: str, strategy: JSONObject) -> Errors:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "RollingUpdate":
        if rolling is None:
            yield required(f"{path}.rollingUpdate")
        else:
            yield from _daemon_set_rolling_update(f"{path}.rollingUpdate", rolling)
    elif kind != "OnDelete":
        shown = None if rolling is None else {"MaxUnavailable": rolling.get("maxUnavailable", 0), "MaxSurge": rolling.get("maxSurge", 0)}
        yield unsupported(path, {"Type": kind, "RollingUpdate": shown}, ("RollingUpdate", "OnDelete"))


def _daemon_set_rolling_update(path: str, rolling: JSONObject) -> Errors:
    values = [(f"{path}.{name}", rolling.get(name, 0)) for name in ("maxUnavailable", "maxSurge")]
    for here, value in values:
        yield from validate_int_or_percent(here, value)
    for here, value in values:
        yield from check_at_most_100_percent(here, value)
    unavailable, surge = (int_or_percent_value(value) != 0 for _, value in values)
    if unavailable and surge:
        yield invalid(f"{path}.maxSurge", rolling.get("maxSurge", 0), "may not be set when maxUnavailable is non-zero")
    elif not unavailable and not surge:
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def _daemon_set_status(status: JSONObject) -> Errors:
    yield from check_not_negative_counters(status, "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
    yield from check_not_negative_counters(
        status, "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount"
    )


# ReplicationControllers and PodTemplates. Source: pkg/apis/core/validation, pkg/registry/core/{replicationcontroller,podtemplate}.


class ReplicationControllerStrategy(TemplateStrategy):
    """Strategy of ReplicationControllers."""

    warns_about_name = True

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        # Upstream declares this rule for names only.
        return [] if prefix else super().validate_name(name, prefix)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_controller_spec(obj["spec"], template_options(None)))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_controller_spec(obj["spec"], template_options(old["spec"].get("template"))))

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_controller_status(obj.get("status") or {}))

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        return {"status.replicas": str((obj.get("status") or {}).get("replicas", 0))}


def _controller_spec(spec: JSONObject, options: PodOptions) -> Errors:
    selector, template = spec.get("selector") or {}, spec.get("template")
    yield from check_not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    if not selector:
        yield required("spec.selector")
    if spec.get("replicas") is None:
        yield required("spec.replicas")
    yield from check_not_negative("spec.replicas", spec.get("replicas"))
    if template is None:
        yield required("spec.template")
        return
    labels = (template.get("metadata") or {}).get("labels")
    if not selector.items() <= (labels or {}).items():
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from validate_pod_template("spec.template", template, options)
    yield from check_always_restarts(template, "ReplicationController")


def _controller_status(status: JSONObject) -> Errors:
    yield from check_not_negative_counters(
        status, "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"
    )
    for name in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"):
        yield from check_not_greater(status, name, "replicas", "cannot be greater than status.replicas")
    yield from check_not_greater(status, "availableReplicas", "readyReplicas", "cannot be greater than readyReplicas")


class PodTemplateStrategy(BuiltinStrategy):
    """Strategy of PodTemplates."""

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(validate_pod_template("template", obj.get("template") or {}, template_options(None)))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(validate_pod_template("template", obj.get("template") or {}, template_options(old.get("template"))))

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        template = obj.get("template") or {}
        return pod_warnings("template", template.get("metadata") or {}, template.get("spec") or {})

    def warnings_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        changed = obj["metadata"].get("generation") != old["metadata"].get("generation")
        return self.warnings(context, obj) if changed else []


_TOO_MANY = "cannot be greater than status.replicas"


class DeploymentStrategy(TemplateStrategy):
    """Strategy of Deployments."""

    warns_about_name = True

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_deployment_spec(obj["spec"], template_options(None)))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors = list(_deployment_spec(obj["spec"], template_options(old["spec"].get("template"))))
        return [*errors, *check_immutable("spec.selector", obj["spec"].get("selector"), old["spec"].get("selector"))]

    def prepare_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_status_update(context, obj, old)
        # Labels belong to the user, so a status update does not change them.
        if old["metadata"].get("labels"):
            obj["metadata"]["labels"] = copy.deepcopy(old["metadata"]["labels"])
        else:
            obj["metadata"].pop("labels", None)

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_deployment_status(obj.get("status") or {}, old.get("status") or {}))

    def counts_for_generation(self, obj: JSONObject) -> object:
        return obj["spec"], obj["metadata"].get("annotations") or {}


def _deployment_spec(spec: JSONObject, options: PodOptions) -> Errors:
    yield from check_not_negative("spec.replicas", spec.get("replicas"))
    yield from validate_selector_and_template(spec, "ReplicaSet", options)
    yield from _rollout("spec.strategy", spec.get("strategy") or {})
    yield from check_not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from check_not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    deadline = spec.get("progressDeadlineSeconds")
    yield from check_not_negative("spec.progressDeadlineSeconds", deadline)
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        yield invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


def _rollout(path: str, strategy: JSONObject) -> Errors:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            yield forbidden(f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif kind == "RollingUpdate":
        if rolling is None:
            yield required(f"{path}.rollingUpdate", "this should be defaulted and never be nil")
        else:
            yield from _rolling_update(f"{path}.rollingUpdate", rolling)
    else:
        yield unsupported(path, strategy, ("Recreate", "RollingUpdate"))


def _rolling_update(path: str, rolling: JSONObject) -> Errors:
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    yield from validate_int_or_percent(f"{path}.maxUnavailable", unavailable)
    yield from validate_int_or_percent(f"{path}.maxSurge", surge)
    if int_or_percent_value(unavailable) == 0 and int_or_percent_value(surge) == 0:
        yield invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
    yield from check_at_most_100_percent(f"{path}.maxUnavailable", unavailable)


def _deployment_status(status: JSONObject, old: JSONObject) -> Errors:
    yield from check_not_negative_counters(
        status, "observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"
    )
    yield from check_not_negative_counters(status, "unavailableReplicas", "terminatingReplicas", "collisionCount")
    for name in ("updatedReplicas", "readyReplicas", "availableReplicas"):
        yield from check_not_greater(status, name, "replicas", _TOO_MANY)
    yield from check_not_greater(status, "availableReplicas", "readyReplicas", "cannot be greater than readyReplicas")
    yield from check_collision_count(status, old)


class ReplicaSetStrategy(TemplateStrategy):
    """Strategy of ReplicaSets."""

    warns_about_name = True

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_replica_set_spec(obj["spec"], template_options(None)))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors = list(_replica_set_spec(obj["spec"], template_options(old["spec"].get("template"))))
        return [*errors, *check_immutable("spec.selector", obj["spec"].get("selector"), old["spec"].get("selector"))]

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_replica_set_status(obj.get("status") or {}))

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        return {"status.replicas": str((obj.get("status") or {}).get("replicas", 0))}


def _replica_set_spec(spec: JSONObject, options: PodOptions) -> Errors:
    yield from check_not_negative("spec.replicas", spec.get("replicas"))
    yield from check_not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from validate_selector_and_template(spec, "ReplicaSet", options)


def _replica_set_status(status: JSONObject) -> Errors:
    yield from check_not_negative_counters(
        status, "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"
    )
    yield from check_not_negative_counters(status, "terminatingReplicas")
    for name in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"):
        yield from check_not_greater(status, name, "replicas", _TOO_MANY)
    yield from check_not_greater(status, "availableReplicas", "readyReplicas", "cannot be greater than readyReplicas")
