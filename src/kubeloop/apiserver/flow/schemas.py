"""Which FlowSchema a request belongs to. Source: k8s.io/apiserver pkg/util/flowcontrol/rule.go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubeloop.apiserver.authentication import User
from kubeloop.apiserver.request_info import RequestInfo

JSONObject = dict[str, Any]

_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class FlowSchema:
    """``by``: what tells flows of one schema apart, ``ByUser``, ``ByNamespace`` or nothing."""

    name: str
    uid: str
    precedence: int
    level: str
    by: str
    rules: tuple[JSONObject, ...]

    @classmethod
    def of(cls, obj: JSONObject) -> FlowSchema:
        spec, metadata = obj.get("spec") or {}, obj["metadata"]
        return cls(
            metadata["name"],
            metadata.get("uid") or "",
            spec.get("matchingPrecedence") or 0,
            (spec.get("priorityLevelConfiguration") or {}).get("name") or "",
            (spec.get("distinguisherMethod") or {}).get("type") or "",
            tuple(spec.get("rules") or ()),
        )

    def match(self, user: User, info: RequestInfo) -> bool:
        return any(_matches(rule, user, info) for rule in self.rules)

    def flow(self, user: User, info: RequestInfo) -> str:
        """Requests of the same flow wait for each other; those of other flows do not."""
        return user.name if self.by == "ByUser" else info.namespace if self.by == "ByNamespace" else ""


def _matches(rule: JSONObject, user: User, info: RequestInfo) -> bool:
    if not any(_is_subject(one, user) for one in rule.get("subjects") or ()):
        return False
    if info.is_resource:
        return any(_is_resource(one, info) for one in rule.get("resourceRules") or ())
    return any(
        _contains(one.get("verbs") or (), info.verb) and _is_path(one.get("nonResourceURLs") or (), info.path)
        for one in rule.get("nonResourceRules") or ()
    )


def _is_subject(subject: JSONObject, user: User) -> bool:
    match subject.get("kind"):
        case "User":
            return (subject.get("user") or {}).get("name") in ("*", user.name)
        case "Group":
            name = (subject.get("group") or {}).get("name")
            return name == "*" or name in user.groups
        case "ServiceAccount":
            account = subject.get("serviceAccount") or {}
            prefix = f"{_ACCOUNT}{account.get('namespace')}:"
            return user.name.startswith(prefix) and account.get("name") in ("*", user.name.removeprefix(prefix))
    return False


def _is_resource(rule: JSONObject, info: RequestInfo) -> bool:
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    return (
        _contains(rule.get("verbs") or (), info.verb)
        and _contains(rule.get("resources") or (), resource)
        and _contains(rule.get("apiGroups") or (), info.group)
        and (_contains(rule.get("namespaces") or (), info.namespace) if info.namespace else bool(rule.get("clusterScope")))
    )


def _is_path(patterns: Sequence[str], path: str) -> bool:
    for one in patterns:
        prefix = one.removesuffix("*")
        if one in ("*", path) or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/"):
            return True
    return False


def _contains(found: Sequence[str], wanted: str) -> bool:
    return wanted in found or "*" in found
