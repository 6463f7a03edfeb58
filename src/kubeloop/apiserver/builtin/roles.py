"""Strategies of roles and their bindings. Source: pkg/apis/rbac/validation."""

from __future__ import annotations

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import check_one_of, each, validate_subdomain_field
from kubeloop.apiserver.validation.metadata import validate_label_selector
from kubeloop.meta.field_error import Errors, FieldError, invalid, required
from kubeloop.meta.names import path_segment
from kubeloop.types import JSONObject

_GROUP = "rbac.authorization.k8s.io"


class _RbacStrategy(BuiltinStrategy):
    """Base class for the strategies of roles and bindings, whose names are path segments such as ``system:node``."""

    metadata_checks_on_update = ("create", "update")

    @property
    def namespaced(self) -> bool:
        """Whether the kind has namespaces."""
        return not self.kind.kind.startswith("Cluster")

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return path_segment(name, prefix)


class RoleStrategy(_RbacStrategy):
    """Strategy of Roles and ClusterRoles."""

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return [*_rules(obj, self.namespaced), *_aggregation(obj, any_value=False)]

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        selectors = (old.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
        any_value = any(list(validate_label_selector("", one)) for one in selectors)
        return [*_rules(obj, self.namespaced), *_aggregation(obj, any_value=any_value)]


class RoleBindingStrategy(_RbacStrategy):
    """Strategy of RoleBindings and ClusterRoleBindings. The roleRef is immutable."""

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_binding(obj, self.namespaced))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        result, role = list(_binding(obj, self.namespaced)), obj.get("roleRef") or {}
        if role != (old.get("roleRef") or {}):
            shown = {"APIGroup": role.get("apiGroup", ""), "Kind": role.get("kind", ""), "Name": role.get("name", "")}
            result.append(invalid("roleRef", shown, "cannot change roleRef"))
        return result


def _rules(obj: JSONObject, namespaced: bool) -> Errors:
    for index, rule in enumerate(obj.get("rules") or ()):
        here, urls = f"rules[{index}]", rule.get("nonResourceURLs") or []
        if not rule.get("verbs"):
            yield required(f"{here}.verbs", "verbs must contain at least one value")
        if urls:
            if namespaced:
                yield invalid(f"{here}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                yield invalid(f"{here}.nonResourceURLs", urls, "rules cannot apply to both regular resources and non-resource URLs")
            continue
        if not rule.get("apiGroups"):
            yield required(f"{here}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{here}.resources", "resource rules must supply at least one resource")


def _aggregation(obj: JSONObject, *, any_value: bool) -> Errors:
    rule, path = obj.get("aggregationRule"), "aggregationRule.clusterRoleSelectors"
    if rule is None:
        return
    selectors = rule.get("clusterRoleSelectors") or []
    if not selectors:
        yield required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
    for index, selector in enumerate(selectors):
        errors = list(validate_label_selector(f"{path}[{index}]", selector, any_value=any_value))
        yield from errors
        if errors:
            # Upstream reports it a second time, when it builds the selector.
            yield invalid(f"{path}[{index}]", None, "invalid label selector.")


def _binding(obj: JSONObject, namespaced: bool) -> Errors:
    role = obj.get("roleRef") or {}
    yield from check_one_of("roleRef.apiGroup", role.get("apiGroup", ""), (_GROUP,))
    yield from check_one_of("roleRef.kind", role.get("kind", ""), ("Role", "ClusterRole") if namespaced else ("ClusterRole",))
    if not role.get("name"):
        yield required("roleRef.name")
    else:
        yield from each("roleRef.name", role["name"], path_segment(role["name"]))
    for index, subject in enumerate(obj.get("subjects") or ()):
        yield from _subject(f"subjects[{index}]", subject, namespaced)


def _subject(path: str, subject: JSONObject, namespaced: bool) -> Errors:
    kind, name, group = subject.get("kind", ""), subject.get("name", ""), subject.get("apiGroup", "")
    if not name:
        yield required(f"{path}.name")
    if kind == "ServiceAccount":
        if name:
            yield from validate_subdomain_field(f"{path}.name", name)
        yield from check_one_of(f"{path}.apiGroup", group, ("",))
        if not namespaced and not subject.get("namespace"):
            yield required(f"{path}.namespace")
    elif kind in ("User", "Group"):
        yield from check_one_of(f"{path}.apiGroup", group, (_GROUP,))
    else:
        yield from check_one_of(f"{path}.kind", kind, ("ServiceAccount", "User", "Group"))
