"""Strategies of StatefulSets and ControllerRevisions.

Source: pkg/apis/apps/validation, pkg/registry/apps/{statefulset,controllerrevision}.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.apiserver.builtin.apps.template import (
    TemplateStrategy,
    check_always_restarts,
    check_collision_count,
    check_not_greater,
    check_not_negative_counters,
    check_selects_template,
    template_options,
)
from kubeloop.apiserver.builtin.claims import claim_warnings, validate_claim_spec
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.builtin.pods.spec import validate_pod_annotations, validate_pod_template
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import check_immutable, check_not_negative, check_one_of, validate_dns_label_field
from kubeloop.apiserver.validation.metadata import is_empty, validate_annotation_map, validate_label_selector, validate_labels
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid, required
from kubeloop.meta.names import dns1123_label
from kubeloop.types import JSONObject

_MUTABLE = (
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
)
_IMMUTABLE_MESSAGE = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
    "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


class StatefulSetStrategy(TemplateStrategy):
    """Strategy of StatefulSets."""

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return dns1123_label(name, prefix)

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        super().prepare_create(context, obj)
        _drop_max_unavailable(obj, None)

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_update(context, obj, old)
        _drop_max_unavailable(obj, old)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], template_options(None), update=False))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors = list(_spec(obj["spec"], template_options(old["spec"].get("template")), update=True))
        if _fixed(obj["spec"]) != _fixed(old["spec"]):
            errors.append(forbidden("spec", _IMMUTABLE_MESSAGE))
        return errors

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [*_status(obj.get("status") or {}), *check_collision_count(obj.get("status") or {}, old.get("status") or {})]

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        return [*super().warnings(context, obj), *_warnings(obj["spec"], "")]

    def warnings_on_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[str]:
        return [*super().warnings_on_update(context, obj, old), *_warnings(obj["spec"], ".Spec")]


def _warnings(spec: JSONObject, claims: str) -> Iterator[str]:
    """Yield warnings about a spec. ``claims`` is the text that upstream adds to the path of a claim template."""
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        yield from claim_warnings(f"spec.volumeClaimTemplates[{index}]{claims}", claim.get("spec") or {})
    if (spec.get("revisionHistoryLimit") or 0) < 0:
        yield "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"


def _drop_max_unavailable(obj: JSONObject, old: JSONObject | None) -> None:
    """Drop ``maxUnavailable`` unless it was set before: the feature gate MaxUnavailableStatefulSet is off by default."""
    rolling = (obj["spec"].get("updateStrategy") or {}).get("rollingUpdate")
    before = ((((old or {}).get("spec") or {}).get("updateStrategy") or {}).get("rollingUpdate") or {}).get("maxUnavailable")
    if rolling is not None and before is None:
        rolling.pop("maxUnavailable", None)


def _fixed(spec: JSONObject) -> JSONObject:
    return {name: value for name, value in spec.items() if name not in _MUTABLE}


def _spec(spec: JSONObject, options: PodOptions, *, update: bool) -> Errors:
    policy = spec.get("podManagementPolicy", "")
    if not policy:
        yield required("spec.podManagementPolicy")
    elif policy not in ("OrderedReady", "Parallel"):
        yield invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    yield from _update_strategy("spec.updateStrategy", spec.get("updateStrategy") or {})
    retention = spec.get("persistentVolumeClaimRetentionPolicy")
    if retention is not None:
        for name in ("whenDeleted", "whenScaled"):
            yield from check_one_of(f"spec.persistentVolumeClaimRetentionPolicy.{name}", retention.get(name, ""), ("Retain", "Delete"))
    if not update:
        for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            yield from validate_claim_spec(f"spec.volumeClaimTemplates[{index}].spec", claim.get("spec") or {})
    yield from check_not_negative("spec.replicas", spec.get("replicas"))
    yield from check_not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from check_not_negative("spec.ordinals.start", (spec.get("ordinals") or {}).get("start"))
    if not update and spec.get("serviceName"):
        yield from validate_dns_label_field("spec.serviceName", spec["serviceName"])
    yield from _template(spec, options)


def _update_strategy(path: str, strategy: JSONObject) -> Errors:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if not kind:
        yield required(path)
    elif kind == "OnDelete":
        if rolling is not None:
            yield invalid(f"{path}.rollingUpdate", rolling, "only allowed for updateStrategy 'RollingUpdate'")
    elif kind == "RollingUpdate":
        yield from check_not_negative(f"{path}.rollingUpdate.partition", (rolling or {}).get("partition"))
    else:
        yield invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'")


def _template(spec: JSONObject, options: PodOptions) -> Errors:
    selector, template = spec.get("selector"), spec.get("template") or {}
    errors = list(validate_label_selector("spec.selector", selector))
    if selector is None:
        yield required("spec.selector")
    else:
        yield from errors
        if is_empty(selector):
            yield invalid("spec.selector", selector, "empty selector is invalid for statefulset")
    if errors:
        yield invalid("spec.selector", selector, "")
    else:
        # The controller sets these: claims become volumes with their names.
        pod = {name: value for name, value in (template.get("spec") or {}).items() if name not in ("subdomain", "hostname")}
        claims = [(claim.get("metadata") or {}).get("name", "") for claim in spec.get("volumeClaimTemplates") or ()]
        if claims:
            own = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(claims)]
            pod["volumes"] = own + [volume for volume in pod.get("volumes") or () if volume.get("name") not in claims]
        effective = {**template, "spec": pod}
        yield from check_selects_template(selector, template)
        yield from validate_pod_template("spec.template", effective, options)
        yield from _again(effective, options)
    yield from check_always_restarts(template, "StatefulSet")


def _again(template: JSONObject, options: PodOptions) -> Errors:
    """Validate the template's metadata a second time. Upstream does so for StatefulSets, so that clients see each error twice."""
    metadata = template.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    yield from validate_labels("spec.template.labels", metadata.get("labels"))
    yield from validate_annotation_map("spec.template.annotations", annotations)
    yield from validate_pod_annotations("spec.template.annotations", annotations, template.get("spec") or {}, options)


def _status(status: JSONObject) -> Errors:
    message = "cannot be greater than status.replicas"
    yield from check_not_negative_counters(status, "replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    yield from check_not_negative_counters(status, "observedGeneration", "collisionCount")
    for name in ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"):
        yield from check_not_greater(status, name, "replicas", message)
    yield from check_not_greater(status, "availableReplicas", "readyReplicas", "cannot be greater than status.readyReplicas")


class ControllerRevisionStrategy(BuiltinStrategy):
    """Strategy of ControllerRevisions, whose data is immutable."""

    metadata_checks_on_update = ("update", "create")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        errors = list(check_not_negative("revision", obj.get("revision")))
        if obj.get("data") is None:
            errors.append(required("data", "data is mandatory"))
        elif not isinstance(obj["data"], dict):
            errors.append(required("data", "data must be a valid JSON object"))
        return errors

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [*check_not_negative("revision", obj.get("revision")), *check_immutable("data", obj.get("data"), old.get("data"))]
