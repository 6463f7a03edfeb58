"""A role's rules, made ready for questions: by resource, so that a question looks at few of them.

Source: k8s.io/kubernetes pkg/apis/rbac/v1/evaluation_helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kubeloop.apiserver.authorization.access import Access

JSONObject = dict[str, Any]


class _Some:
    """The values that one attribute of a rule names."""

    __slots__ = ("_all", "_values")

    def __init__(self, values: Iterable[str], *, everything: bool) -> None:
        self._values = frozenset(values)
        self._all = everything

    def __contains__(self, value: str) -> bool:
        return self._all or value in self._values


class _ResourceRule:
    __slots__ = ("_groups", "_names", "_verbs")

    def __init__(self, rule: JSONObject) -> None:
        verbs, groups, names = (rule.get(one) or () for one in ("verbs", "apiGroups", "resourceNames"))
        self._verbs = _Some(verbs, everything="*" in verbs)
        self._groups = _Some(groups, everything="*" in groups)
        self._names = _Some(names, everything=not names)

    def allows(self, access: Access) -> bool:
        return access.verb in self._verbs and access.group in self._groups and access.name in self._names


class _PathRule:
    __slots__ = ("_paths", "_prefixes", "_verbs")

    def __init__(self, rule: JSONObject) -> None:
        verbs, paths = rule.get("verbs") or (), rule["nonResourceURLs"]
        self._verbs = _Some(verbs, everything="*" in verbs)
        self._paths = frozenset(paths)
        self._prefixes = tuple(path.rstrip("*") for path in paths if path.endswith("*"))

    def allows(self, access: Access) -> bool:
        return access.verb in self._verbs and (access.path in self._paths or access.path.startswith(self._prefixes))


class RoleRules:
    """The rules of one role. ``source`` is what the role says, shared: do not change it."""

    __slots__ = ("_by_resource", "_paths", "source")

    def __init__(self, rules: list[JSONObject]) -> None:
        self.source = rules
        self._by_resource: dict[str, list[_ResourceRule]] = {}
        self._paths: list[_PathRule] = []
        for rule in rules:
            if rule.get("nonResourceURLs"):
                self._paths.append(_PathRule(rule))
            ready = _ResourceRule(rule)
            for resource in dict.fromkeys(rule.get("resources") or ()):
                self._by_resource.setdefault(resource, []).append(ready)

    def allow(self, access: Access) -> bool:
        if not access.is_resource:
            return any(rule.allows(access) for rule in self._paths)
        sub, find = access.subresource, self._by_resource.get
        named = find(f"{access.resource}/{sub}" if sub else access.resource, ())
        return _any(named, access) or _any(find("*", ()), access) or (bool(sub) and _any(find(f"*/{sub}", ()), access))


def _any(rules: Sequence[_ResourceRule], access: Access) -> bool:
    for rule in rules:  # noqa: SIM110 - every request comes here, and a generator would double its cost
        if rule.allows(access):
            return True
    return False
