"""A role's rules, made ready for questions: by resource, so that a question looks at few of them.

Source: k8s.io/kubernetes pkg/apis/rbac/v1/evaluation_helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.apiserver.request.access import Access
from kubeloop.types import JSONObject


def _some(values: Iterable[str], *, everything: bool) -> frozenset[str] | None:
    return None if everything else frozenset(values)


class ResourceRule:
    """What a rule says besides resources. Every request comes here: what is None stands for everything."""

    __slots__ = ("_groups", "_names", "_verbs")

    def __init__(self, rule: JSONObject) -> None:
        verbs, groups, names = (rule.get(one) or () for one in ("verbs", "apiGroups", "resourceNames"))
        self._verbs = _some(verbs, everything="*" in verbs)
        self._groups = _some(groups, everything="*" in groups)
        self._names = _some(names, everything=not names)

    def allows(self, access: Access) -> bool:
        verbs, groups, names = self._verbs, self._groups, self._names
        return (
            (verbs is None or access.verb in verbs)
            and (groups is None or access.group in groups)
            and (names is None or access.name in names)
        )


class PathRule:
    __slots__ = ("_paths", "_prefixes", "_verbs")

    def __init__(self, rule: JSONObject) -> None:
        verbs, paths = rule.get("verbs") or (), rule["nonResourceURLs"]
        self._verbs = _some(verbs, everything="*" in verbs)
        self._paths = frozenset(paths)
        self._prefixes = tuple(path.rstrip("*") for path in paths if path.endswith("*"))

    def allows(self, access: Access) -> bool:
        if self._verbs is not None and access.verb not in self._verbs:
            return False
        return access.path in self._paths or access.path.startswith(self._prefixes)


class RoleRules:
    """The rules of one role. ``source`` is what the role says, shared: do not change it."""

    __slots__ = ("by_resource", "paths", "source")

    def __init__(self, rules: list[JSONObject]) -> None:
        self.source = rules
        #: As rules name them: ``pods``, ``pods/log``, ``*/scale``, ``*``.
        self.by_resource: dict[str, list[ResourceRule]] = {}
        self.paths: list[PathRule] = []
        for rule in rules:
            if rule.get("nonResourceURLs"):
                self.paths.append(PathRule(rule))
            ready = ResourceRule(rule)
            for resource in dict.fromkeys(rule.get("resources") or ()):
                self.by_resource.setdefault(resource, []).append(ready)

    def allow(self, access: Access) -> bool:
        if not access.is_resource:
            return any(rule.allows(access) for rule in self.paths)
        return any(rule.allows(access) for name in names_of(access) for rule in self.by_resource.get(name, ()))


def names_of(access: Access) -> tuple[str, ...]:
    """As what a rule may name the resource of ``access``."""
    sub = access.subresource
    return (f"{access.resource}/{sub}", "*", f"*/{sub}") if sub else (access.resource, "*")
