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

# Several authorizers as one, and authorizers that decide without reading objects.
#
# Source: k8s.io/apiserver pkg/authorization/union, pkg/authorization/authorizerfactory.


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
        found.error = join_errors(errors)
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


#: The modes of a server whose options name none.
MODES = ("Node", "RBAC")
_KNOWN = ("Node", "RBAC", "AlwaysAllow", "AlwaysDeny")


def check_modes(modes: Sequence[str]) -> None:
    """Raises ConfigError for what is no list of modes: none, an unknown one, one twice."""
    if not modes:
        raise ConfigError(f"--authorization-mode names no mode; known are {', '.join(_KNOWN)}")
    for mode in modes:
        if mode not in _KNOWN:
            raise ConfigError(f"--authorization-mode: {mode!r} is no mode of this server; known are {', '.join(_KNOWN)}")
        if modes.count(mode) > 1:
            raise ConfigError(f"--authorization-mode names {mode} more than once")


async def follow_roles(index: RoleIndex, objects: Objects, cache: WatchCache) -> None:
    """Load the stored roles and bindings into ``index``, and every change of them from now on."""
    for resource in ("roles", "clusterroles"):
        await follow_objects(f"{ROOT}{GROUP}/{resource}/", index.put_role, objects, cache, wait=True)
    for resource in ("rolebindings", "clusterrolebindings"):
        await follow_objects(f"{ROOT}{GROUP}/{resource}/", index.put_binding, objects, cache, wait=True)


class Authorization:
    """Decides by ``modes``, in order, after the superusers of system:masters. An ``Authorizer``.

    Guarantees
        From ``start`` on a role or binding is in force when its write was answered, and out of force when its removal was.
        A decision takes microseconds: it is made from memory.
        Where changes are no longer followed, only superusers may do anything: what was taken away must not go on to hold.

    Raises
        ConfigError: of ``modes``.
    """

    def __init__(self, objects: Objects, cache: WatchCache, modes: Sequence[str] = MODES) -> None:
        check_modes(modes)
        self._objects = objects
        self._cache = cache
        #: All roles and bindings, whatever the modes: what somebody may grant depends on them too.
        self.roles = RoleAuthorizer(RoleIndex())
        self.modes = tuple(modes)
        self._union = Union([SystemMastersAuthorizer(), *map(self._of, modes)])
        self._superusers = SystemMastersAuthorizer()

    async def start(self) -> None:
        """The cache has been started."""
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
        return Always(allow=mode == "AlwaysAllow")
