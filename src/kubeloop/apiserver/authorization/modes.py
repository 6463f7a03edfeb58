"""The authorizers of ``--authorization-mode`` in its order, and their union.

Source: k8s.io/kubernetes pkg/kubeapiserver/authorizer; k8s.io/apiserver pkg/authorization/union, pkg/authorization/authorizerfactory.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.apiserver.authorization.node import NodeAuthorizer
from kubeloop.apiserver.authorization.rbac import GROUP, RoleAuthorizer, RoleIndex
from kubeloop.apiserver.authorization.rbac_rules import join_errors
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.resource_controller import follow_objects
from kubeloop.apiserver.storage.watch_cache import ROOT, WatchCache
from kubeloop.endpoints.access import MASTERS, NO_OPINION, Access, Authorizer, Decision, Rules, User
from kubeloop.meta.errors import ConfigError

# The union of authorizers, and authorizers with a constant decision.
#
# Source: k8s.io/apiserver pkg/authorization/union, pkg/authorization/authorizerfactory.


_ALLOWED = Decision(True)
_REFUSED = Decision(False, reason="Everything is forbidden.")


class Union:
    """A union of authorizers, in which the first decision to allow or deny counts.

    If there is no such decision, the result has the reasons of all authorizers.
    """

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
        result, errors = Rules(), []
        for one in self._authorizers:
            rules = one.rules(user, namespace)
            result.resources += rules.resources
            result.paths += rules.paths
            result.incomplete |= rules.incomplete
            if rules.error:
                errors.append(rules.error)
        result.error = join_errors(errors)
        return result

    async def prepare(self, user: User) -> None:
        for one in self._authorizers:
            await one.prepare(user)


class SystemMastersAuthorizer:
    """Allows everything to members of system:masters. ``rules`` returns none: with RBAC, the role cluster-admin has the same rules."""

    def authorize(self, access: Access) -> Decision:
        return _ALLOWED if MASTERS in access.user.groups else NO_OPINION

    def rules(self, user: User, namespace: str) -> Rules:
        return Rules()

    async def prepare(self, user: User) -> None:
        """Do nothing."""


class ConstantAuthorizer:
    """The authorizer of the modes AlwaysAllow (``allow`` is True) and AlwaysDeny."""

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
        """Do nothing."""


#: The modes of a server whose options name none.
MODES = ("Node", "RBAC")
_KNOWN = ("Node", "RBAC", "AlwaysAllow", "AlwaysDeny")


def check_modes(modes: Sequence[str]) -> None:
    """Check a list of authorization modes. Raises ConfigError if it is empty or has an unknown or repeated mode."""
    if not modes:
        raise ConfigError(f"--authorization-mode names no mode; known are {', '.join(_KNOWN)}")
    for mode in modes:
        if mode not in _KNOWN:
            raise ConfigError(f"--authorization-mode: {mode!r} is not a mode of this server; known: {', '.join(_KNOWN)}")
        if modes.count(mode) > 1:
            raise ConfigError(f"--authorization-mode names {mode} more than once")


async def follow_roles(index: RoleIndex, objects: Objects, cache: WatchCache) -> None:
    """Load the stored roles and bindings into ``index`` and apply later changes."""
    for resource in ("roles", "clusterroles"):
        await follow_objects(f"{ROOT}{GROUP}/{resource}/", index.put_role, objects, cache, wait=True)
    for resource in ("rolebindings", "clusterrolebindings"):
        await follow_objects(f"{ROOT}{GROUP}/{resource}/", index.put_binding, objects, cache, wait=True)


class Authorization:
    """Authorizes requests by ``modes`` in order; members of system:masters are always allowed. Implements ``Authorizer``.

    Guarantees
        After ``start``, a write of a role or binding takes effect before its response is sent.
        Decisions are made in memory, in microseconds.
        If changes can no longer be read, only system:masters has any rights, so that a revoked right does not stay in effect.

    Raises
        ConfigError: ``modes`` is invalid.
    """

    def __init__(self, objects: Objects, cache: WatchCache, modes: Sequence[str] = MODES) -> None:
        check_modes(modes)
        self._objects = objects
        self._cache = cache
        #: All roles and bindings. The escalation check needs them in all modes.
        self.roles = RoleAuthorizer(RoleIndex())
        self.modes = tuple(modes)
        self._union = Union([SystemMastersAuthorizer(), *map(self._of, modes)])
        self._superusers = SystemMastersAuthorizer()

    async def start(self) -> None:
        """Load the stored roles and bindings. The watch cache must have been started."""
        await follow_roles(self.roles.index, self._objects, self._cache)

    def authorize(self, access: Access) -> Decision:
        if self._cache.fault and not self._superusers.authorize(access).allowed:
            return Decision(False, reason=self._cache.fault)
        return self._union.authorize(access)

    def rules(self, user: User, namespace: str) -> Rules:
        return self._union.rules(user, namespace)

    async def prepare(self, user: User) -> None:
        await self._union.prepare(user)

    def _of(self, mode: str) -> Authorizer:
        if mode == "RBAC":
            return self.roles
        if mode == "Node":
            return NodeAuthorizer(self._objects, self._cache)
        return ConstantAuthorizer(allow=mode == "AlwaysAllow")
