"""Decides by roles. Source: k8s.io/kubernetes plugin/pkg/auth/authorizer/rbac, pkg/registry/rbac/validation/rule.go."""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.apiserver.authorization.rbac.index import Binding, RoleIndex, missing
from kubeloop.apiserver.authorization.rbac.rules import PathRule, ResourceRule, names_of
from kubeloop.apiserver.authorization.union import joined
from kubeloop.endpoints.access import NO_OPINION, Access, Decision, Rules, User
from kubeloop.types import JSONObject

#: Users, or users in namespaces, of whom that is kept; the ones asked about least recently go.
_MOST = 2048
#: Characters of a user's name and groups, each group counted as some more, beyond which nothing is kept: reviews may name any user.
_LONGEST = 4096
_OF_A_GROUP = 64

_Key = tuple[str, tuple[str, ...], str]


class _Held:
    __slots__ = ("_by_resource", "_paths", "faults")

    def __init__(self, user: User, index: RoleIndex, bindings: Iterable[Binding]) -> None:
        self._by_resource: dict[str, list[tuple[ResourceRule, Decision]]] = {}
        self._paths: list[tuple[PathRule, Decision]] = []
        self.faults: list[str] = []
        for binding in dict.fromkeys(bindings):
            role = index.role(binding.role_kind, binding.role_name, binding.namespace)
            if role is None:
                self.faults.append(missing(binding.role_kind, binding.role_name))
                continue
            allowed = binding.allows(user)
            self._paths += [(rule, allowed) for rule in role.paths]
            for resource, rules in role.by_resource.items():
                self._by_resource.setdefault(resource, []).extend((rule, allowed) for rule in rules)

    def decide(self, access: Access) -> Decision | None:
        if not access.is_resource:
            return next((allowed for rule, allowed in self._paths if rule.allows(access)), None)
        for name in names_of(access):
            for rule, allowed in self._by_resource.get(name, ()):
                if rule.allows(access):
                    return allowed
        return None


class UserRules:
    """Answers from what is kept, bounded in users and in bytes. A user who asked before costs some microseconds, others more."""

    def __init__(self, index: RoleIndex) -> None:
        self._index = index
        self._kept: dict[_Key, _Held] = {}
        self._revision = -1

    def decide(self, access: Access) -> tuple[Decision, list[str]]:
        """And, where nothing allows it, what was not found."""
        everywhere = self._of(access.user, "")
        found = everywhere.decide(access)
        if found is not None:
            return found, []
        if not access.namespace or not self._index.has_bindings(access.namespace):
            return NO_OPINION, everywhere.faults
        there = self._of(access.user, access.namespace)
        found = there.decide(access)
        return (found, []) if found is not None else (NO_OPINION, everywhere.faults + there.faults)

    def _of(self, user: User, namespace: str) -> _Held:
        kept = self._kept
        if self._revision != self._index.revision:
            kept.clear()
            self._revision = self._index.revision
        key = (user.name, user.groups, namespace)
        held = kept.pop(key, None)
        if held is None:
            held = _Held(user, self._index, self._index.bindings_in(user, namespace))
            if len(user.name) + sum(map(len, user.groups)) + _OF_A_GROUP * len(user.groups) > _LONGEST:
                return held
            if len(kept) >= _MOST:
                del kept[next(iter(kept))]
        kept[key] = held
        return held


class RoleAuthorizer:
    """Allows what a role allows that is bound to the user, one of his groups, or his service account; never denies."""

    def __init__(self, index: RoleIndex) -> None:
        self.index = index
        self._held = UserRules(index)

    def authorize(self, access: Access) -> Decision:
        decision, faults = self._held.decide(access)
        return Decision(False, reason=f"RBAC: {joined(faults)}") if faults else decision

    def rules(self, user: User, namespace: str) -> Rules:
        rules, lost = self.held(user, namespace)
        found = Rules(error=joined([missing(one.role_kind, one.role_name) for one in lost]))
        for rule in rules:
            if rule.get("resources"):
                names = ("verbs", "apiGroups", "resources", "resourceNames")
                found.resources.append({name: rule[name] for name in names if rule.get(name)})
            if rule.get("nonResourceURLs"):
                found.paths.append({name: rule[name] for name in ("verbs", "nonResourceURLs") if rule.get(name)})
        return found

    def held(self, user: User, namespace: str) -> tuple[list[JSONObject], list[Binding]]:
        """The rules of all roles that ``user`` has in ``namespace``, in order of the bindings' names; and bindings of roles that are not
        there."""
        rules: list[JSONObject] = []
        lost: list[Binding] = []
        different: dict[int, Binding] = {id(one): one for one in self.index.bindings(user, namespace)}
        for binding in sorted(different.values(), key=lambda one: (bool(one.namespace), one.name)):
            role = self.index.role(binding.role_kind, binding.role_name, binding.namespace)
            if role is None:
                lost.append(binding)
            else:
                rules += role.source
        return rules, lost

    async def prepare(self, user: User) -> None:
        """Everything is in memory."""
