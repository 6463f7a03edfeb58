"""Audit policies: they decide which requests are logged, at which level, and at which stages. Source: audit.k8s.io/v1 Policy and Event."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubeloop.codec import read_yaml
from kubeloop.endpoints.access import User
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.meta.errors import ConfigError, DecodeError
from kubeloop.meta.names import dns1123_subdomain

NONE: Final = "None"
METADATA: Final = "Metadata"
REQUEST: Final = "Request"
REQUEST_RESPONSE: Final = "RequestResponse"
#: Levels, from the least detailed one.
LEVELS: Final = (NONE, METADATA, REQUEST, REQUEST_RESPONSE)

RECEIVED: Final = "RequestReceived"
STARTED: Final = "ResponseStarted"
COMPLETE: Final = "ResponseComplete"
PANIC: Final = "Panic"
STAGES: Final = (RECEIVED, STARTED, COMPLETE, PANIC)


_LOG = logging.getLogger("kubeloop.apiserver.audit")

_POLICY_FIELDS = frozenset({"apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"})
_RULE_FIELDS = frozenset(
    {"level", "users", "userGroups", "verbs", "resources", "namespaces", "nonResourceURLs", "omitStages", "omitManagedFields"}
)
_RESOURCE_FIELDS = frozenset({"group", "resources", "resourceNames"})


@dataclass(frozen=True, slots=True)
class AuditDecision:
    """The audit level and stages that apply to a request. ``level`` is an index into LEVELS."""

    level: int
    omit_stages: frozenset[str] = frozenset()
    omit_managed_fields: bool = False


@dataclass(frozen=True, slots=True)
class GroupResources:
    """Resources of an API group; the group ``*`` stands for all groups.

    ``resources`` may be ``pods``, ``pods/log``, ``pods/*``, ``*/scale`` or ``*``. An empty list means all resources of the group.
    """

    group: str = ""
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def match(self, info: RequestInfo) -> bool:
        """Return whether a request is about one of the resources."""
        if self.group not in (info.group, "*"):
            return False
        if not self.resources:
            return True
        if self.names and info.name not in self.names:
            return False
        resource, subresource = info.resource, info.subresource
        combined = f"{resource}/{subresource}" if subresource else resource
        return any(
            one in (combined, "*") or (subresource and one == f"*/{subresource}") or one == f"{resource}/*" for one in self.resources
        )


@dataclass(frozen=True, slots=True)
class AuditRule:
    """A rule of a policy. An empty field matches everything."""

    logged: AuditDecision
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    resources: tuple[GroupResources, ...] = ()
    namespaces: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()

    def match(self, user: User | None, info: RequestInfo) -> bool:
        """Return whether the rule applies to a request."""
        if self.users and (user is None or user.name not in self.users):
            return False
        if self.groups and (user is None or self.groups.isdisjoint(user.groups)):
            return False
        if self.verbs and info.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            if not info.is_resource or (self.namespaces and info.namespace not in self.namespaces):
                return False
            return not self.resources or any(one.match(info) for one in self.resources)
        if self.paths:
            return not info.is_resource and any(_path_matches(info.path, one) for one in self.paths)
        return True


@dataclass(frozen=True, slots=True)
class AuditPolicy:
    """An audit policy. The first matching rule decides; if none matches, the request is not logged."""

    rules: tuple[AuditRule, ...]
    otherwise: AuditDecision = field(default_factory=lambda: AuditDecision(0))

    def decide(self, user: User | None, info: RequestInfo) -> AuditDecision:
        """Return the audit level and stages for a request."""
        for rule in self.rules:
            if rule.match(user, info):
                return rule.logged
        return self.otherwise

    @classmethod
    def read(cls, path: Path) -> AuditPolicy:
        """Read a policy file. Unknown fields are ignored with a warning in the log, as in kube-apiserver.

        Raises:
            ConfigError: The file or its fields are invalid. The message names them.
        """
        try:
            documents = read_yaml(path.read_bytes(), name=str(path))
        except OSError as error:
            raise ConfigError(f"cannot read audit policy {path}: {error.strerror or error}") from None
        except DecodeError as error:
            raise ConfigError(f"audit policy: {error}") from None
        tree = documents[0] if documents else None
        if not isinstance(tree, dict) or (tree.get("apiVersion"), tree.get("kind")) != ("audit.k8s.io/v1", "Policy"):
            raise ConfigError(f"audit policy {path}: wanted apiVersion audit.k8s.io/v1, kind Policy")
        reading = _Reading(path)
        policy = reading.policy(tree)
        if reading.faults:
            raise ConfigError(f"audit policy {path}: {'; '.join(reading.faults)}")
        return policy


class _Reading:
    """Parses a policy and collects its errors in the form ``field: error``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.faults: list[str] = []

    def policy(self, tree: dict[str, Any]) -> AuditPolicy:
        self._known(tree, _POLICY_FIELDS, "")
        omit = self._stages(tree, "omitStages")
        managed = self._flag(tree, "omitManagedFields", default=False)
        rules = tree.get("rules")
        if not isinstance(rules, list) or not rules:
            self.faults.append("rules: a policy needs at least one")
            return AuditPolicy(())
        result = tuple(self._rule(rule, f"rules[{at}]", omit, managed=managed) for at, rule in enumerate(rules))
        return AuditPolicy(result, AuditDecision(0, omit, managed))

    def _rule(self, rule: Any, path: str, omit: frozenset[str], *, managed: bool) -> AuditRule:
        if not isinstance(rule, dict):
            self.faults.append(f"{path}: is not an object")
            return AuditRule(AuditDecision(0))
        self._known(rule, _RULE_FIELDS, path)
        level = rule.get("level")
        if level not in LEVELS:
            desired = f"wanted one of {', '.join(LEVELS)}"
            self.faults.append(f"{path}.level: {f'unknown {level!r}, ' if level else ''}{desired}")
            level = NONE
        omitted = omit | self._stages(rule, f"{path}.omitStages")
        logged = AuditDecision(LEVELS.index(level), omitted, self._flag(rule, f"{path}.omitManagedFields", default=managed))
        paths = self._texts(rule, f"{path}.nonResourceURLs")
        for at, one in enumerate(paths):
            self._check_path(one, f"{path}.nonResourceURLs[{at}]")
        resources = self._resources(rule.get("resources") or [], f"{path}.resources")
        namespaces = self._texts(rule, f"{path}.namespaces")
        if paths and (resources or namespaces):
            self.faults.append(f"{path}.nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs")
        users, groups, verbs = (frozenset(self._texts(rule, f"{path}.{name}")) for name in ("users", "userGroups", "verbs"))
        return AuditRule(logged, users, groups, verbs, resources, frozenset(namespaces), paths)

    def _resources(self, requested: Any, path: str) -> tuple[GroupResources, ...]:
        if not isinstance(requested, list) or not all(isinstance(one, dict) for one in requested):
            self.faults.append(f"{path}: is not a list of objects")
            return ()
        result = []
        for at, one in enumerate(requested):
            here = f"{path}[{at}]"
            self._known(one, _RESOURCE_FIELDS, here)
            group = one.get("group") or ""
            if group not in ("", "*") and (not isinstance(group, str) or dns1123_subdomain(group)):
                self.faults.append(f"{here}.group: {group!r} is not a valid name of an API group (without a version)")
            resources, names = self._texts(one, f"{here}.resources"), self._texts(one, f"{here}.resourceNames")
            if names and not resources:
                self.faults.append(f"{here}.resourceNames: using resourceNames requires at least one resource")
            result.append(GroupResources(group, resources, names))
        return tuple(result)

    def _check_path(self, path: str, place: str) -> None:
        if path != "*" and not path.startswith("/"):
            self.faults.append(f"{place}: non-resource URL rules must begin with a '/' character")
        elif "*" in path[:-1]:
            self.faults.append(f"{place}: non-resource URL wildcards '*' must be the final character of the rule")

    def _stages(self, tree: dict[str, Any], path: str) -> frozenset[str]:
        stages = self._texts(tree, path)
        for at, one in enumerate(stages):
            if one not in STAGES:
                self.faults.append(f"{path}[{at}]: {one!r}: allowed stages are {', '.join(STAGES)}")
        return frozenset(stages)

    def _texts(self, tree: dict[str, Any], path: str) -> tuple[str, ...]:
        requested = tree.get(path.rpartition(".")[2])
        if requested is None:
            return ()
        if not isinstance(requested, list) or not all(isinstance(one, str) for one in requested):
            self.faults.append(f"{path}: is not a list of texts")
            return ()
        return tuple(requested)

    def _flag(self, tree: dict[str, Any], path: str, *, default: bool) -> bool:
        requested = tree.get(path.rpartition(".")[2])
        if requested is None:
            return default
        if not isinstance(requested, bool):
            self.faults.append(f"{path}: is neither true nor false")
            return default
        return requested

    def _known(self, tree: dict[str, Any], fields: frozenset[str], path: str) -> None:
        for name in tree.keys() - fields:
            _LOG.warning("audit policy %s: unknown field %s", self._path, f"{path}.{name}" if path else name)


def _path_matches(path: str, pattern: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))
