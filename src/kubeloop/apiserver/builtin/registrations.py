"""Strategies of APIServices and webhook configurations. Source: pkg/apis/{apiregistration,admissionregistration}/validation."""

from __future__ import annotations

from typing import Final

from kubeloop.apiserver.builtin.bootstrap.objects import available
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.admission_rules import check_optional_value, validate_match_conditions, validate_rule_with_operations
from kubeloop.apiserver.validation.formats import check_one_of, each
from kubeloop.apiserver.validation.metadata import validate_label_selector
from kubeloop.apiserver.validation.webhook_client import check_client_config
from kubeloop.meta.field_error import Errors, FieldError, duplicate, invalid, required
from kubeloop.meta.names import dns1035_label, dns1123_subdomain, label_value, path_segment, port_number
from kubeloop.types import JSONObject

# Validation of APIServices; see ``aggregation`` for their effect.
#
# Source: kube-aggregator pkg/apis/apiregistration/validation, pkg/registry/apiservice.


class APIServiceStrategy(BuiltinStrategy):
    """Strategy of APIServices."""

    metadata_checks_on_update = ("update",)
    status_keeps_metadata = True

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        local = obj["spec"].get("service") is None
        obj["status"] = {"conditions": [available(context.time)]} if local else {}

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"]))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [*self._object_meta(obj, False), *_spec(obj["spec"])]

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        return [
            error
            for index, condition in enumerate(conditions)
            for error in check_one_of(f"status.conditions[{index}].status", condition.get("status", ""), ("True", "False", "Unknown"))
        ]

    def _object_meta(self, obj: JSONObject, namespaced: bool) -> list[FieldError]:
        """Validate the metadata. The name must consist of version and group; its error has the position of the rules for names."""
        errors = super()._object_meta(obj, namespaced)
        name, spec = obj["metadata"].get("name", ""), obj["spec"]
        requested = f"{spec.get('version', '')}.{spec.get('group', '')}"
        if name and name != requested and not path_segment(name):
            errors.insert(0, invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{requested}"'))
        if prefix := obj["metadata"].get("generateName"):
            errors.insert(0, invalid("metadata.generateName", prefix, f'must be `spec.version+"."+spec.group`: "{requested}"'))
        return errors

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return path_segment(name)


def _spec(spec: JSONObject) -> Errors:
    group, version = spec.get("group", ""), spec.get("version", "")
    if not group and version != "v1":
        yield required("spec.group", "only v1 may have an empty group and it better be legacy kube")
    if group:
        yield from each("spec.group", group, dns1123_subdomain(group))
    yield from each("spec.version", version, dns1035_label(version))
    for name, maximum in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        if not 0 < spec.get(name, 0) <= maximum:
            yield invalid(f"spec.{name}", spec.get(name, 0), f"must be positive and less than {maximum}")
    service, bundle, insecure = spec.get("service"), spec.get("caBundle") or "", bool(spec.get("insecureSkipTLSVerify"))
    if service is None:
        if bundle:
            size = len(bundle) * 3 // 4 - bundle.count("=", -2)
            yield invalid("spec.caBundle", f"{size} bytes", "local APIServices may not have a caBundle")
        if insecure:
            yield invalid("spec.insecureSkipTLSVerify", True, "local APIServices may not have insecureSkipTLSVerify")
        return
    for name in ("namespace", "name"):
        if not service.get(name):
            yield required(f"spec.service.{name}")
    if errors := port_number(service.get("port", 0)):
        yield invalid("spec.service.port", service.get("port", 0), f"port is not valid: {', '.join(errors)}")
    if insecure and bundle:
        yield invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present")


# MutatingWebhookConfigurations and ValidatingWebhookConfigurations.
#
# Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation, pkg/registry/admissionregistration.


_REVIEWS: Final = ("v1", "v1beta1")
_HARMLESS: Final = ["None", "NoneOnDryRun"]
_ANY_SIDE_EFFECTS: Final = ["None", "NoneOnDryRun", "Some", "Unknown"]
_MOST_SEGMENTS: Final = 3
_STATIC: Final = ".static.k8s.io"


class _Leniency:
    """The invalid values that an update may retain, because the stored configuration already has them."""

    def __init__(self, old: JSONObject | None) -> None:
        hooks = None if old is None else (old.get("webhooks") or [])
        before = hooks or []
        names = [one.get("name") for one in before]
        self.side_effects = any(one.get("sideEffects") not in _HARMLESS for one in before)
        self.reviews = any(one.get("admissionReviewVersions") and not set(one["admissionReviewVersions"]) & set(_REVIEWS) for one in before)
        self.names = len(set(names)) < len(names)
        self.label_values = any(_has_odd_values(one) for one in before)
        self.conditions = None if hooks is None else [one.get("matchConditions") or [] for one in hooks]

    def knows_conditions(self, obj: JSONObject) -> bool:
        """Return whether the match conditions are unchanged."""
        return self.conditions == [one.get("matchConditions") or [] for one in obj.get("webhooks") or ()]


def _has_odd_values(hook: JSONObject) -> bool:
    selectors = (hook.get("namespaceSelector") or {}, hook.get("objectSelector") or {})
    expressions = [one for selector in selectors for one in selector.get("matchExpressions") or ()]
    return any(label_value(value) for one in expressions for value in one.get("values") or ())


class WebhookConfigurationStrategy(BuiltinStrategy):
    """Strategy of both kinds of webhook configurations. Only mutating webhooks have a reinvocation policy."""

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_webhooks(obj, _Leniency(None)))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_webhooks(obj, _Leniency(old)))

    #: Upstream's validation of an update begins with that of a new object's metadata.
    metadata_checks_on_update = ("create",)

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        if not obj["metadata"].get("name", "").endswith(_STATIC):
            return []
        why = "are reserved for static manifest-based configurations and cannot be managed via the API"
        return [f'metadata.name: names ending with "{_STATIC}" {why}']


def _webhooks(obj: JSONObject, lenient: _Leniency) -> Errors:
    names: set[str] = set()
    same_conditions = lenient.knows_conditions(obj)
    for index, hook in enumerate(obj.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        yield from _webhook(path, hook, lenient)
        if not same_conditions:
            yield from validate_match_conditions(f"{path}.matchConditions", hook.get("matchConditions") or [], _condition)
        yield from _reviews(f"{path}.admissionReviewVersions", hook.get("admissionReviewVersions") or [], any_version=lenient.reviews)
        name = hook.get("name") or ""
        if name in names and not lenient.names:
            yield duplicate(f"{path}.name", name)
        if name:
            names.add(name)


def _webhook(path: str, hook: JSONObject, lenient: _Leniency) -> Errors:
    yield from _full_name(f"{path}.name", hook.get("name") or "")
    for index, rule in enumerate(hook.get("rules") or ()):
        yield from validate_rule_with_operations(f"{path}.rules[{index}]", rule)
    yield from check_optional_value(f"{path}.failurePolicy", hook.get("failurePolicy"), ["Fail", "Ignore"])
    yield from check_optional_value(f"{path}.matchPolicy", hook.get("matchPolicy"), ["Equivalent", "Exact"])
    allowed = _ANY_SIDE_EFFECTS if lenient.side_effects else _HARMLESS
    if hook.get("sideEffects") is None:
        yield required(f"{path}.sideEffects", f"must specify one of {', '.join(allowed)}")
    yield from check_optional_value(f"{path}.sideEffects", hook.get("sideEffects"), allowed)
    timeout = hook.get("timeoutSeconds")
    if timeout is not None and not 1 <= timeout <= 30:
        yield invalid(f"{path}.timeoutSeconds", timeout, "the timeout value must be between 1 and 30 seconds")
    for name in ("namespaceSelector", "objectSelector"):
        yield from validate_label_selector(f"{path}.{name}", hook.get(name), any_value=lenient.label_values)
    yield from check_optional_value(f"{path}.reinvocationPolicy", hook.get("reinvocationPolicy"), ["IfNeeded", "Never"])
    yield from check_client_config(f"{path}.clientConfig", hook.get("clientConfig") or {})


def _full_name(path: str, name: str) -> Errors:
    if not name:
        yield required(path)
    elif errors := dns1123_subdomain(name):
        yield invalid(path, name, ",".join(errors))
    elif name.count(".") < _MOST_SEGMENTS - 1:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")


def _reviews(path: str, versions: list[str], *, any_version: bool) -> Errors:
    if not versions:
        yield required(path, f"must specify one of {', '.join(_REVIEWS)}")
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            yield invalid(f"{path}[{index}]", version, "duplicate version")
            continue
        seen.add(version)
        for message in dns1035_label(version):
            yield invalid(f"{path}[{index}]", version, message)
    if not any_version and not seen & set(_REVIEWS):
        yield invalid(path, versions, f"must include at least one of {', '.join(_REVIEWS)}")


def _condition(path: str, expression: str) -> Errors:
    # CEL is imported with the first condition: most servers have none.
    from kubeloop.apiserver.expressions.compiler import compiled_condition

    if error := compiled_condition(expression).error:
        yield invalid(path, expression, error)
