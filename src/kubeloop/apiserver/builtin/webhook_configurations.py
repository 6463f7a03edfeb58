"""MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation, pkg/registry/admissionregistration.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.options import unsupported
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.selectors import label_selector
from kubeloop.apiserver.validation.webhook_client import client_config
from kubeloop.meta.field_error import FieldError, FieldErrorType, duplicate, invalid, required
from kubeloop.meta.names import dns1035_label, dns1123_subdomain, label_value, qualified_name

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]

_REVIEWS: Final = ("v1", "v1beta1")
_HARMLESS: Final = ["None", "NoneOnDryRun"]
_ANY_SIDE_EFFECTS: Final = ["None", "NoneOnDryRun", "Some", "Unknown"]
_OPERATIONS: Final = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]
_SCOPES: Final = ["*", "Cluster", "Namespaced"]
_MOST_CONDITIONS: Final = 64
_MOST_SEGMENTS: Final = 3
_STATIC: Final = ".static.k8s.io"


class _Leniency:
    """What is let through in an update because the old configuration had it already."""

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
        return self.conditions == [one.get("matchConditions") or [] for one in obj.get("webhooks") or ()]


def _has_odd_values(hook: JSONObject) -> bool:
    selectors = (hook.get("namespaceSelector") or {}, hook.get("objectSelector") or {})
    expressions = [one for selector in selectors for one in selector.get("matchExpressions") or ()]
    return any(label_value(value) for one in expressions for value in one.get("values") or ())


class WebhookConfigurationStrategy(BuiltinStrategy):
    """Both kinds; only mutating webhooks have a reinvocation policy."""

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_webhooks(obj, _Leniency(None)))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_webhooks(obj, _Leniency(old)))

    #: Upstream's validation of an update begins with that of a new object's metadata.
    metadata_checks_on_update = ("create",)

    def warnings(self, context: RequestContext, obj: JSONObject) -> list[str]:
        if not obj["metadata"].get("name", "").endswith(_STATIC):
            return []
        why = "are reserved for static manifest-based configurations and cannot be managed via the API"
        return [f'metadata.name: names ending with "{_STATIC}" {why}']


def _webhooks(obj: JSONObject, lenient: _Leniency) -> Errors:
    names: set[str] = set()
    same_conditions = lenient.knows_conditions(obj)
    for at, hook in enumerate(obj.get("webhooks") or ()):
        path = f"webhooks[{at}]"
        yield from _webhook(path, hook, lenient)
        if not same_conditions:
            yield from _conditions(f"{path}.matchConditions", hook.get("matchConditions") or [])
        yield from _reviews(f"{path}.admissionReviewVersions", hook.get("admissionReviewVersions") or [], any_version=lenient.reviews)
        name = hook.get("name") or ""
        if name in names and not lenient.names:
            yield duplicate(f"{path}.name", name)
        if name:
            names.add(name)


def _webhook(path: str, hook: JSONObject, lenient: _Leniency) -> Errors:
    yield from _full_name(f"{path}.name", hook.get("name") or "")
    for at, rule in enumerate(hook.get("rules") or ()):
        yield from _rule(f"{path}.rules[{at}]", rule)
    yield from _one_of(f"{path}.failurePolicy", hook.get("failurePolicy"), ["Fail", "Ignore"])
    yield from _one_of(f"{path}.matchPolicy", hook.get("matchPolicy"), ["Equivalent", "Exact"])
    allowed = _ANY_SIDE_EFFECTS if lenient.side_effects else _HARMLESS
    if hook.get("sideEffects") is None:
        yield required(f"{path}.sideEffects", f"must specify one of {', '.join(allowed)}")
    yield from _one_of(f"{path}.sideEffects", hook.get("sideEffects"), allowed)
    timeout = hook.get("timeoutSeconds")
    if timeout is not None and not 1 <= timeout <= 30:
        yield invalid(f"{path}.timeoutSeconds", timeout, "the timeout value must be between 1 and 30 seconds")
    for name in ("namespaceSelector", "objectSelector"):
        yield from label_selector(f"{path}.{name}", hook.get(name), any_value=lenient.label_values)
    yield from _one_of(f"{path}.reinvocationPolicy", hook.get("reinvocationPolicy"), ["IfNeeded", "Never"])
    yield from client_config(f"{path}.clientConfig", hook.get("clientConfig") or {})


def _one_of(path: str, value: str | None, allowed: list[str]) -> Errors:
    if value is not None and value not in allowed:
        yield unsupported(path, value, allowed)


def _full_name(path: str, name: str) -> Errors:
    if not name:
        yield required(path)
    elif faults := dns1123_subdomain(name):
        yield invalid(path, name, ",".join(faults))
    elif name.count(".") < _MOST_SEGMENTS - 1:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")


def _rule(path: str, rule: JSONObject) -> Errors:
    operations = rule.get("operations") or []
    yield from _all_or_some(f"{path}.operations", operations, "operations")
    for at, one in enumerate(operations):
        yield from _one_of(f"{path}.operations[{at}]", one, _OPERATIONS)
    yield from _all_or_some(f"{path}.apiGroups", rule.get("apiGroups") or [], "API groups")
    versions = rule.get("apiVersions") or []
    yield from _all_or_some(f"{path}.apiVersions", versions, "API versions")
    for at, one in enumerate(versions):
        if not one:
            yield required(f"{path}.apiVersions[{at}]")
    yield from _resources(f"{path}.resources", rule.get("resources") or [])
    yield from _one_of(f"{path}.scope", rule.get("scope"), _SCOPES)


def _all_or_some(path: str, values: list[str], what: str) -> Errors:
    if not values:
        yield required(path)
    if len(values) > 1 and "*" in values:
        yield invalid(path, values, f"if '*' is present, must not specify other {what}")


def _resources(path: str, resources: list[str]) -> Errors:
    if not resources:
        yield required(path)
    all_of: set[str] = set()
    of_all: set[str] = set()
    plain = False
    for at, text in enumerate(resources):
        if not text:
            yield required(f"{path}[{at}]")
            continue
        name, slash, sub = text.partition("/")
        if not slash:
            plain = text != "*"  # the last one decides, as upstream
            continue
        if name in all_of:
            yield invalid(f"{path}[{at}]", text, f"if '{name}/*' is present, must not specify {text}")
        if sub in of_all:
            yield invalid(f"{path}[{at}]", text, f"if '*/{sub}' is present, must not specify {text}")
        if sub == "*":
            all_of.add(name)
        if name == "*":
            of_all.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and plain:
        yield invalid(path, resources, "if '*' is present, must not specify other resources without subresources")


def _reviews(path: str, versions: list[str], *, any_version: bool) -> Errors:
    if not versions:
        yield required(path, f"must specify one of {', '.join(_REVIEWS)}")
        return
    seen: set[str] = set()
    for at, version in enumerate(versions):
        if version in seen:
            yield invalid(f"{path}[{at}]", version, "duplicate version")
            continue
        seen.add(version)
        for message in dns1035_label(version):
            yield invalid(f"{path}[{at}]", version, message)
    if not any_version and not seen & set(_REVIEWS):
        yield invalid(path, versions, f"must include at least one of {', '.join(_REVIEWS)}")


def _conditions(path: str, conditions: list[JSONObject]) -> Errors:
    if len(conditions) > _MOST_CONDITIONS:
        yield FieldError(FieldErrorType.TOO_MANY, path, len(conditions), f"must have at most {_MOST_CONDITIONS} items")
    names: set[str] = set()
    for at, condition in enumerate(conditions):
        yield from _condition(f"{path}[{at}]", condition)
        name = condition.get("name") or ""
        if name in names:
            yield duplicate(f"{path}[{at}].name", name)
        if name:
            names.add(name)


def _condition(path: str, condition: JSONObject) -> Errors:
    expression, name = (condition.get("expression") or "").strip(), condition.get("name") or ""
    if not expression:
        yield required(f"{path}.expression")
    elif fault := _expression_fault(expression):
        yield invalid(f"{path}.expression", expression, fault)
    if not name:
        yield required(f"{path}.name")
    else:
        for message in qualified_name(name):
            yield invalid(f"{path}.name", name, message)


def _expression_fault(expression: str) -> str:
    # CEL is imported when there is some: most servers never see any.
    from kubeloop.apiserver.webhooks.condition_language import ConditionFault, compiled

    try:
        compiled(expression)
    except ConditionFault as fault:
        return str(fault)
    return ""
