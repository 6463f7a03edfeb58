"""ReplicationControllers and PodTemplates. Source: pkg/apis/core/validation, pkg/registry/core/{replicationcontroller,podtemplate}."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.apps.template import TemplateStrategy, always_restarts, at_most, counts, template_options
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.builtin.pods.spec import pod_template
from kubeloop.apiserver.builtin.pods.warnings import pod_warnings
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.formats import not_negative
from kubeloop.meta.field_error import FieldError, invalid, required

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]


class ReplicationControllerStrategy(TemplateStrategy):
    warns_about_name = True

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        # Upstream declares this rule for names only.
        return [] if prefix else super().validate_name(name, prefix)

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], template_options(None)))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], template_options(old["spec"].get("template"))))

    def validate_status_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_status(obj.get("status") or {}))

    def selectable_fields(self, obj: JSONObject) -> dict[str, str]:
        return {"status.replicas": str((obj.get("status") or {}).get("replicas", 0))}


def _spec(spec: JSONObject, options: PodOptions) -> Errors:
    selector, template = spec.get("selector") or {}, spec.get("template")
    yield from not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    if not selector:
        yield required("spec.selector")
    if spec.get("replicas") is None:
        yield required("spec.replicas")
    yield from not_negative("spec.replicas", spec.get("replicas"))
    if template is None:
        yield required("spec.template")
        return
    labels = (template.get("metadata") or {}).get("labels")
    if not selector.items() <= (labels or {}).items():
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from pod_template("spec.template", template, options)
    yield from always_restarts(template, "ReplicationController")


def _status(status: JSONObject) -> Errors:
    yield from counts(status, "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")
    for name in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"):
        yield from at_most(status, name, "replicas", "cannot be greater than status.replicas")
    yield from at_most(status, "availableReplicas", "readyReplicas", "cannot be greater than readyReplicas")


class PodTemplateStrategy(BuiltinStrategy):
    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(pod_template("template", obj.get("template") or {}, template_options(None)))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(pod_template("template", obj.get("template") or {}, template_options(old.get("template"))))

    def warnings(self, context: RequestContext, obj: JSONObject) -> list[str]:
        template = obj.get("template") or {}
        return pod_warnings("template", template.get("metadata") or {}, template.get("spec") or {})

    def warnings_on_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[str]:
        changed = obj["metadata"].get("generation") != old["metadata"].get("generation")
        return self.warnings(context, obj) if changed else []
