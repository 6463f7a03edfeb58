"""Decides by roles. Source: k8s.io/kubernetes plugin/pkg/auth/authorizer/rbac, pkg/registry/rbac/validation/rule.go."""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver.authentication import User
from kubeloop.apiserver.authorization.access import Access, Decision, Rules
from kubeloop.apiserver.authorization.rbac.held import HeldRights
from kubeloop.apiserver.authorization.rbac.index import Binding, RoleIndex, missing
from kubeloop.apiserver.authorization.union import joined

JSONObject = dict[str, Any]


class RoleAuthorizer:
    """Allows what a role allows that is bound to the user, one of his groups, or his service account; never denies."""

    def __init__(self, index: RoleIndex) -> None:
        self.index = index
        self._held = HeldRights(index)

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
