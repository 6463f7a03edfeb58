"""Several authorizers as one, and those that decide without looking.

Source: k8s.io/apiserver pkg/authorization/union, pkg/authorization/authorizerfactory.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.endpoints.access import MASTERS, NO_OPINION, Access, Authorizer, Decision, Rules, User

_ALLOWED = Decision(True)
_REFUSED = Decision(False, reason="Everything is forbidden.")


class Union:
    """The first that allows or denies decides; when none does, the reasons of all are told."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def authorize(self, access: Access) -> Decision:
        reasons = []
        for one in self._authorizers:
            decision = one.authorize(access)
            if decision.allowed or decision.denied:
                return decision
            if decision.reason:
                reasons.append(decision.reason)
        return Decision(False, reason="\n".join(reasons)) if reasons else NO_OPINION

    def rules(self, user: User, namespace: str) -> Rules:
        found, errors = Rules(), []
        for one in self._authorizers:
            rules = one.rules(user, namespace)
            found.resources += rules.resources
            found.paths += rules.paths
            found.incomplete |= rules.incomplete
            if rules.error:
                errors.append(rules.error)
        found.error = joined(errors)
        return found

    async def prepare(self, user: User) -> None:
        for one in self._authorizers:
            await one.prepare(user)


class SystemMastersAuthorizer:
    """Members of system:masters may do everything, whatever any role says; that they may is told by the role cluster-admin."""

    def authorize(self, access: Access) -> Decision:
        return _ALLOWED if MASTERS in access.user.groups else NO_OPINION

    def rules(self, user: User, namespace: str) -> Rules:
        return Rules()

    async def prepare(self, user: User) -> None:
        """Nothing is needed."""


class Always:
    """AlwaysAllow and AlwaysDeny."""

    def __init__(self, *, allow: bool) -> None:
        self._allow = allow

    def authorize(self, access: Access) -> Decision:
        return _ALLOWED if self._allow else _REFUSED

    def rules(self, user: User, namespace: str) -> Rules:
        if not self._allow:
            return Rules()
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return Rules([everything], [{"verbs": ["*"], "nonResourceURLs": ["*"]}])

    async def prepare(self, user: User) -> None:
        """Nothing is needed."""


def joined(errors: Sequence[str]) -> str:
    """As Go's aggregate of errors shows itself: equal ones once."""
    different = list(dict.fromkeys(errors))
    return different[0] if len(different) == 1 else f"[{', '.join(different)}]" if different else ""
