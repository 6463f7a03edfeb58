"""Rules of roles: an index by resource for fast decisions, and the comparison of rules for escalation checks.

Source: k8s.io/kubernetes pkg/apis/rbac/v1/evaluation_helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from kubeloop.endpoints.access import Access
from kubeloop.meta.strconv import go_quoted
from kubeloop.types import JSONObject

# Comparison of rules: which rules are not covered, and their text in errors.
# Source: k8s.io/component-helpers auth/rbac/validation (Covers), k8s.io/kubernetes pkg/registry/rbac/validation/policy_compact.go,
# pkg/apis/rbac/v1/evaluation_helpers.go (CompactString).


class SingleRule(msgspec.Struct, frozen=True):
    """The smallest part of a rule: one verb on one resource (with one name, if ``name`` is not None) or on one path."""

    verb: str
    group: str = ""
    resource: str = ""
    name: str | None = None
    path: str | None = None

    def is_in(self, rule: JSONObject) -> bool:
        """Return whether ``rule`` covers this single rule."""
        if not _names(rule, "verbs", self.verb):
            return False
        named = rule.get("resourceNames") or ()
        if self.path is not None:
            return not named and any(_covers(path, self.path) for path in rule.get("nonResourceURLs") or ())
        if not _names(rule, "apiGroups", self.group) or (named and self.name not in named):
            return False
        resources = rule.get("resources") or ()
        sub = self.resource.partition("/")[2]
        return "*" in resources or self.resource in resources or ("/" in self.resource and f"*/{sub}" in resources)

    def as_rule(self) -> JSONObject:
        """Return the single rule as a PolicyRule."""
        if self.path is not None:
            return {"verbs": [self.verb], "nonResourceURLs": [self.path]}
        rule: JSONObject = {"verbs": [self.verb], "apiGroups": [self.group], "resources": [self.resource]}
        return rule if self.name is None else {**rule, "resourceNames": [self.name]}


def _names(rule: JSONObject, attribute: str, value: str) -> bool:
    values = rule.get(attribute) or ()
    return "*" in values or value in values


def _covers(path: str, desired: str) -> bool:
    return path == desired or (path.endswith("*") and desired.startswith(path.rstrip("*")))


def split_rules(rules: Sequence[JSONObject]) -> Iterator[SingleRule]:
    """Yield the smallest parts of rules, each with one verb."""
    for rule in rules:
        verbs = rule.get("verbs") or ()
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for verb in verbs:
                    for name in rule.get("resourceNames") or (None,):
                        yield SingleRule(verb, group, resource, name)
        for path in rule.get("nonResourceURLs") or ():
            for verb in verbs:
                yield SingleRule(verb, path=path)


def missing_rules(held: Sequence[JSONObject], desired: Sequence[JSONObject]) -> list[SingleRule]:
    """Return the parts of ``desired`` that no rule of ``held`` covers."""
    return [right for right in split_rules(desired) if not any(right.is_in(rule) for rule in held)]


def describe_rules(rights: Sequence[SingleRule]) -> str:
    """Return one line per resource or path, sorted, for an error text."""
    verbs: dict[tuple[str, str, str | None], list[str]] = {}
    lines = set()
    for right in rights:
        if right.path is not None:
            lines.add(f"{{NonResourceURLs:{quoted_list([right.path])}, Verbs:{quoted_list([right.verb])}}}")
        else:
            verbs.setdefault((right.group, right.resource, right.name), []).append(right.verb)
    for (group, resource, name), of_it in verbs.items():
        names = f", ResourceNames:{quoted_list([name])}" if name is not None else ""
        lines.add(f"{{APIGroups:{quoted_list([group])}, Resources:{quoted_list([resource])}{names}, Verbs:{quoted_list(of_it)}}}")
    return "\n".join(sorted(lines))


def quoted_list(texts: Sequence[str]) -> str:
    """Format strings as Go prints a slice with ``%q``."""
    return f"[{' '.join(map(go_quoted, texts))}]"


def _some(values: Iterable[str], *, everything: bool) -> frozenset[str] | None:
    return None if everything else frozenset(values)


class ResourceRule:
    """Verbs, API groups and resource names of a rule. ``RoleRules`` indexes it by its resources. None in a slot means everything."""

    __slots__ = ("_groups", "_names", "_verbs")

    def __init__(self, rule: JSONObject) -> None:
        verbs, groups, names = (rule.get(one) or () for one in ("verbs", "apiGroups", "resourceNames"))
        self._verbs = _some(verbs, everything="*" in verbs)
        self._groups = _some(groups, everything="*" in groups)
        self._names = _some(names, everything=not names)

    def allows(self, access: Access) -> bool:
        """Return whether the rule allows an access to its resource."""
        verbs, groups, names = self._verbs, self._groups, self._names
        return (
            (verbs is None or access.verb in verbs)
            and (groups is None or access.group in groups)
            and (names is None or access.name in names)
        )


class PathRule:
    """A rule for non-resource URLs."""

    __slots__ = ("_paths", "_prefixes", "_verbs")

    def __init__(self, rule: JSONObject) -> None:
        verbs, paths = rule.get("verbs") or (), rule["nonResourceURLs"]
        self._verbs = _some(verbs, everything="*" in verbs)
        self._paths = frozenset(paths)
        self._prefixes = tuple(path.rstrip("*") for path in paths if path.endswith("*"))

    def allows(self, access: Access) -> bool:
        """Return whether the rule allows an access."""
        if self._verbs is not None and access.verb not in self._verbs:
            return False
        return access.path in self._paths or access.path.startswith(self._prefixes)


class RoleRules:
    """The rules of one role. ``source`` has the original rules; it is shared and read-only."""

    __slots__ = ("by_resource", "paths", "source")

    def __init__(self, rules: list[JSONObject]) -> None:
        self.source = rules
        #: Resource as in rules (``pods``, ``pods/log``, ``*/scale``, ``*``) -> rules.
        self.by_resource: dict[str, list[ResourceRule]] = {}
        self.paths: list[PathRule] = []
        for rule in rules:
            if rule.get("nonResourceURLs"):
                self.paths.append(PathRule(rule))
            ready = ResourceRule(rule)
            for resource in dict.fromkeys(rule.get("resources") or ()):
                self.by_resource.setdefault(resource, []).append(ready)

    def allow(self, access: Access) -> bool:
        """Return whether a rule allows an access."""
        if not access.is_resource:
            return any(rule.allows(access) for rule in self.paths)
        return any(rule.allows(access) for name in names_of(access) for rule in self.by_resource.get(name, ()))


def names_of(access: Access) -> tuple[str, ...]:
    """Return the names by which a rule may refer to the resource of ``access``."""
    sub = access.subresource
    return (f"{access.resource}/{sub}", "*", f"*/{sub}") if sub else (access.resource, "*")


def join_errors(errors: Sequence[str]) -> str:
    """Join error texts as the aggregate of apimachinery prints them: each text once, several in brackets."""
    different = list(dict.fromkeys(errors))
    return different[0] if len(different) == 1 else f"[{', '.join(different)}]" if different else ""
