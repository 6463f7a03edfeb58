"""Strategies of FlowSchemas and PriorityLevelConfigurations. Source: pkg/apis/flowcontrol/validation."""

from __future__ import annotations

import math
import re

from kubeloop.apiserver.builtin.bootstrap.objects import mandatory
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import check_one_of, each, unsupported, validate_subdomain_field
from kubeloop.meta.field_error import Errors, FieldError, duplicate, forbidden, invalid, required
from kubeloop.meta.names import dns1123_label, dns1123_subdomain
from kubeloop.types import JSONObject

_LARGEST_PRECEDENCE = 10_000
_METHODS = ("ByNamespace", "ByUser")
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
#: Kind of a subject -> the field that describes it.
_SUBJECTS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}


class FlowSchemaStrategy(BuiltinStrategy):
    """Strategy of FlowSchemas."""

    metadata_checks_on_update = ("create",)
    metadata_checks_on_status = ()
    status_keeps_metadata = True

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        name, spec = obj["metadata"].get("name", ""), obj["spec"]
        errors = list(_schema_spec(name, spec))
        fixed = mandatory("flowschemas").get(name)
        if fixed is not None and spec != fixed:
            errors.append(invalid("spec", spec, f"spec of '{name}' must equal the fixed value"))
        return [*errors, *check_condition_types(obj)]

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return self.validate_create(context, obj)

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(check_condition_types(obj))


def check_condition_types(obj: JSONObject) -> Errors:
    """Check that conditions have types and that these are unique."""
    known: set[str] = set()
    for index, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
        kind = condition.get("type", "")
        if kind in known:
            yield duplicate(f"status.conditions[{index}].type", kind)
        known.add(kind)
        if not kind:
            yield required(f"status.conditions[{index}].type")


def _schema_spec(name: str, spec: JSONObject) -> Errors:
    precedence, method = spec.get("matchingPrecedence", 0), spec.get("distinguisherMethod")
    if precedence <= 0:
        yield invalid("spec.matchingPrecedence", precedence, "must be a positive value")
    if precedence > _LARGEST_PRECEDENCE:
        yield invalid("spec.matchingPrecedence", precedence, f"must not be greater than {_LARGEST_PRECEDENCE}")
    if precedence == 1 and name != "exempt":
        yield invalid("spec.matchingPrecedence", precedence, "only the schema named 'exempt' may have matchingPrecedence 1")
    if method is not None and method.get("type", "") not in _METHODS:
        yield unsupported("spec.distinguisherMethod.type", {"Type": method.get("type", "")}, _METHODS)
    level = (spec.get("priorityLevelConfiguration") or {}).get("name", "")
    if level:
        yield from each("spec.priorityLevelConfiguration.name", level, dns1123_subdomain(level))
    else:
        yield required("spec.priorityLevelConfiguration.name", "must reference a priority level")
    for index, rule in enumerate(spec.get("rules") or ()):
        yield from _rule(f"spec.rules[{index}]", rule)


def _rule(path: str, rule: JSONObject) -> Errors:
    subjects, of_resources, of_paths = (rule.get(name) or [] for name in ("subjects", "resourceRules", "nonResourceRules"))
    for index, subject in enumerate(subjects):
        yield from _subject(f"{path}.subjects[{index}]", subject)
    if not subjects:
        yield required(f"{path}.subjects", "subjects must contain at least one value")
    if not of_resources and not of_paths:
        yield required(path, "at least one of resourceRules and nonResourceRules has to be non-empty")
    for index, one in enumerate(of_resources):
        yield from _resources(f"{path}.resourceRules[{index}]", one)
    for index, one in enumerate(of_paths):
        yield from _paths(f"{path}.nonResourceRules[{index}]", one)


def _subject(path: str, subject: JSONObject) -> Errors:
    kind = subject.get("kind", "")
    if kind not in _SUBJECTS:
        yield unsupported(f"{path}.kind", kind, _SUBJECTS)
        return
    own = _SUBJECTS[kind]
    described = subject.get(own)
    if described is None:
        yield required(f"{path}.{own}", f"{own} is required when subject kind is '{kind}'")
    else:
        yield from _described(f"{path}.{own}", kind, described)
    for other_kind, other in (("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")):
        if other != own and subject.get(other) is not None:
            yield forbidden(f"{path}.{other}", f"{other} is forbidden when subject kind is not '{other_kind}'")


def _described(path: str, kind: str, described: JSONObject) -> Errors:
    name, namespace = described.get("name", ""), described.get("namespace", "")
    if not name:
        yield required(f"{path}.name")
    if kind != "ServiceAccount":
        return
    if name and name != "*":
        yield from validate_subdomain_field(f"{path}.name", name)
    if namespace:
        yield from each(f"{path}.namespace", namespace, dns1123_label(namespace))
    else:
        yield required(f"{path}.namespace", "must specify namespace for service account")


def _alone(path: str, values: list[str], plural_name: str) -> Errors:
    if "*" in values and len(values) > 1:
        yield invalid(path, values, f"if '*' is present, must not specify other {plural_name}")


def _verbs(path: str, verbs: list[str]) -> Errors:
    if not verbs:
        yield required(path, "verbs must contain at least one value")
    elif "*" in verbs:
        yield from _alone(path, verbs, "verbs")
    elif not set(verbs) <= set(_VERBS):
        yield unsupported(path, verbs, _VERBS)


def _paths(path: str, rule: JSONObject) -> Errors:
    yield from _verbs(f"{path}.verbs", rule.get("verbs") or [])
    urls = rule.get("nonResourceURLs") or []
    if not urls:
        yield required(f"{path}.nonResourceURLs", "nonResourceURLs must contain at least one value")
    elif "*" in urls:
        yield from _alone(f"{path}.nonResourceURLs", urls, "non-resource URLs")
    else:
        for index, url in enumerate(urls):
            if error := _url_fault(url):
                yield invalid(f"{path}.nonResourceURLs[{index}]", url, error)


def _url_fault(url: str) -> str:
    if not url:
        return "must not be empty"
    if url == "/":
        return ""
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    return "" if re.fullmatch(r"[^*]*(/\*)?", url) else "wildcard can only do suffix matching"


def _resources(path: str, rule: JSONObject) -> Errors:
    yield from _verbs(f"{path}.verbs", rule.get("verbs") or [])
    for name, one, others in (("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")):
        values = rule.get(name) or []
        if not values:
            yield required(f"{path}.{name}", f"resource rules must supply at least one {one}")
        else:
            yield from _alone(f"{path}.{name}", values, others)
    namespaces = rule.get("namespaces") or []
    if not namespaces and not rule.get("clusterScope"):
        yield required(f"{path}.namespaces", "resource rules that are not cluster scoped must supply at least one namespace")
    elif "*" in namespaces:
        yield from _alone(f"{path}.namespaces", namespaces, "namespaces")
    else:
        intro = "each member of this list must be '*' or a DNS-1123 label; "
        for index, namespace in enumerate(namespaces):
            for message in dns1123_label(namespace):
                yield invalid(f"{path}.namespaces[{index}]", namespace, intro + message)


_MOST_QUEUES = 10_000_000
#: Bits of the hash for shuffle sharding (shufflesharding.MaxHashBits).
_HASH_BITS = 60
_OLD_ANNOTATION = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"


class PriorityLevelStrategy(BuiltinStrategy):
    """Strategy of PriorityLevelConfigurations."""

    metadata_checks_on_update = ("create",)
    metadata_checks_on_status = ()
    status_keeps_metadata = True

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        metadata, spec = obj["metadata"], obj["spec"]
        name, value = metadata.get("name", ""), []
        if _OLD_ANNOTATION in (metadata.get("annotations") or {}):
            value.append(forbidden("metadata.annotations", f"annotation '{_OLD_ANNOTATION}' is forbidden"))
        return [*value, *_level_spec(name, spec), *_fixed_level(name, spec), *check_condition_types(obj)]

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return self.validate_create(context, obj)

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(check_condition_types(obj))


def _fixed_level(name: str, spec: JSONObject) -> Errors:
    """Check that the mandatory levels are unchanged, except for the numbers of the exempt level."""
    fixed = mandatory("prioritylevelconfigurations").get(name)
    if fixed is None:
        return
    if name == "exempt":
        if {**spec, "exempt": None} != {**fixed, "exempt": None}:
            yield invalid("spec", spec, f"spec of '{name}' except the 'spec.exempt' field must equal the fixed value")
    elif spec != fixed:
        yield invalid("spec", spec, f"spec of '{name}' must equal the fixed value")


def _level_spec(name: str, spec: JSONObject) -> Errors:
    kind, exempt, limited = spec.get("type", ""), spec.get("exempt"), spec.get("limited")
    if (name == "exempt") != (kind == "Exempt"):
        yield invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'")
    if kind == "Exempt":
        if limited is not None:
            yield forbidden("spec.limited", "must be nil if the type is not Limited")
        if exempt is not None:
            yield from _shares("spec.exempt", exempt)
            yield from _percentage("spec.exempt", exempt)
    elif kind == "Limited":
        if exempt is not None:
            yield forbidden("spec.exempt", "must be nil if the type is Limited")
        if limited is None:
            yield required("spec.limited", "must not be empty when type is Limited")
        else:
            yield from _limited("spec.limited", limited)
    elif not kind:
        yield required("spec.type")
    else:
        yield from check_one_of("spec.type", kind, ("Exempt", "Limited"))


def _shares(path: str, level: JSONObject) -> Errors:
    shares = level.get("nominalConcurrencyShares")
    if shares is not None and shares < 0:
        yield invalid(f"{path}.nominalConcurrencyShares", shares, "must be a non-negative integer")


def _percentage(path: str, level: JSONObject) -> Errors:
    lendable = level.get("lendablePercent")
    if lendable is not None and not 0 <= lendable <= 100:
        yield invalid(f"{path}.lendablePercent", lendable, "must be between 0 and 100, inclusive")


def _limited(path: str, limited: JSONObject) -> Errors:
    yield from _shares(path, limited)
    response = limited.get("limitResponse") or {}
    here, kind, queuing = f"{path}.limitResponse", response.get("type", ""), response.get("queuing")
    if kind == "Reject":
        if queuing is not None:
            yield forbidden(f"{here}.queuing", "must be nil if limited.limitResponse.type is not Limited")
    elif kind == "Queue":
        if queuing is None:
            yield required(f"{here}.queuing", "must not be empty if limited.limitResponse.type is Limited")
        else:
            yield from _queuing(f"{here}.queuing", queuing)
    elif not kind:
        yield required(f"{here}.type")
    else:
        yield from check_one_of(f"{here}.type", kind, ("Queue", "Reject"))
    yield from _percentage(path, limited)
    borrowed = limited.get("borrowingLimitPercent")
    if borrowed is not None and borrowed < 0:
        yield invalid(f"{path}.borrowingLimitPercent", borrowed, "if specified, must be a non-negative integer")


def _queuing(path: str, queuing: JSONObject) -> Errors:
    length, queues, hand = (queuing.get(name, 0) for name in ("queueLengthLimit", "queues", "handSize"))
    if length <= 0:
        yield invalid(f"{path}.queueLengthLimit", length, "must be positive")
    if queues <= 0:
        yield invalid(f"{path}.queues", queues, "must be positive")
    elif queues > _MOST_QUEUES:
        yield invalid(f"{path}.queues", queues, f"must not be greater than {_MOST_QUEUES}")
    if hand <= 0:
        yield invalid(f"{path}.handSize", hand, "must be positive")
    elif hand > queues:
        yield invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})")
    elif math.ceil(math.log2(queues) * hand) > _HASH_BITS:
        detail = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_HASH_BITS}"
        yield invalid(f"{path}.handSize", hand, detail)
