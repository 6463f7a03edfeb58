"""Nobody grants what he does not hold: checks of writes of roles and bindings, of claims' statuses, and of updates that create.

Source: k8s.io/kubernetes pkg/registry/rbac/{escalation_check.go,role,clusterrole,rolebinding,clusterrolebinding}/policybased,
k8s.io/apiserver pkg/endpoints/handlers/update.go (withAuthorization).
"""

from __future__ import annotations

from kubeloop.apiserver.authorization.rbac.authorizer import RoleAuthorizer
from kubeloop.apiserver.authorization.rbac.index import GROUP
from kubeloop.apiserver.authorization.rbac.rules import lacking, quoted_list, told
from kubeloop.apiserver.authorization.union import joined
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import MASTERS, Access, Authorizer, require
from kubeloop.meta.go_quote import go_quoted
from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.names import path_segment
from kubeloop.types import JSONObject

_EVERYTHING: list[JSONObject] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]
_CLAIMS = GroupResource("resource.k8s.io", "resourceclaims")
_ROLES = {"Role": "roles", "ClusterRole": "clusterroles"}
#: What the garbage collector, and whoever else only tidies up, may change of any role.
_TIDIED = frozenset({"ownerReferences", "finalizers", "selfLink", "managedFields"})


class EscalationCheck:
    """A ``writing.Guard``. Members of system:masters may grant anything."""

    def __init__(self, authorizer: Authorizer, roles: RoleAuthorizer) -> None:
        self._authorizer = authorizer
        self._roles = roles

    def check_write(self, write: WriteRequest, obj: JSONObject, old: JSONObject | None) -> None:
        """Raises Forbidden, or NotFound for a binding of a role that is not there. What a claim's status lacks is among its findings."""
        gvr = write.resource.gvr
        if gvr.group_resource == _CLAIMS and write.subresource == "status" and old is not None:
            from kubeloop.apiserver.authorization.claims import status_faults

            write.findings += status_faults(self._authorizer, write, obj, old)
        if gvr.group != GROUP or MASTERS in write.user.groups or (old is not None and _is_tidied(obj, old)):
            return
        if gvr.resource in _ROLES.values():
            self._check_role(write, obj, old)
        else:
            self._check_binding(write, obj)

    def check_creation(self, write: WriteRequest) -> None:
        """Raises Forbidden for an update that creates, of somebody who may not create."""
        gvr = write.resource.gvr
        where = gvr.group, gvr.version, gvr.resource, write.subresource, write.namespace, write.name
        require(self._authorizer, Access(write.user, "create", *where))

    def _check_role(self, write: WriteRequest, obj: JSONObject, old: JSONObject | None) -> None:
        gvr = write.resource.gvr
        access = Access(write.user, "escalate", gvr.group, "*", gvr.resource, "", write.namespace, write.name_in_path)
        if self._authorizer.authorize(access).allowed:
            return
        self._check_held(write, obj.get("rules") or [])
        if (_aggregates(obj) or _aggregates(old or {})) and self._lacks(write, _EVERYTHING):
            why = "must have cluster-admin privileges to use the aggregationRule"
            raise api_errors.forbidden(gvr.group_resource, write.name, why)

    def _check_binding(self, write: WriteRequest, obj: JSONObject) -> None:
        role = obj.get("roleRef") or {}
        kind, name = role.get("kind", ""), role.get("name", "")
        if kind not in _ROLES:
            raise api_errors.internal(f"unsupported role reference kind: {go_quoted(kind)}")
        access = Access(write.user, "bind", role.get("apiGroup", ""), "*", _ROLES[kind], "", write.namespace, name)
        if self._authorizer.authorize(access).allowed:
            return
        self._check_held(write, self._rules(write, kind, name))

    def _rules(self, write: WriteRequest, kind: str, name: str) -> list[JSONObject]:
        """Of the role that a binding names. Upstream looks for it as if the request were about it, and says so."""
        if kind == "Role" and not write.namespace:
            raise api_errors.bad_request("Namespace parameter required.")
        if not name:
            raise api_errors.bad_request("Name parameter required.")
        if faults := path_segment(name):
            raise api_errors.bad_request(f"Name parameter invalid: {go_quoted(name)}: {';'.join(faults)}")
        role = self._roles.index.role(kind, name, write.namespace)
        if role is None:
            raise api_errors.not_found(write.resource.gvr.group_resource, name)
        return role.source

    def _check_held(self, write: WriteRequest, rules: list[JSONObject]) -> None:
        why = self._lacks(write, rules)
        if why:
            raise api_errors.forbidden(write.resource.gvr.group_resource, write.name, why)

    def _lacks(self, write: WriteRequest, rules: list[JSONObject]) -> str:
        """What to say of rights among ``rules`` that the user does not have where he writes; empty: he has them all."""
        held, lost = self._roles.held(write.user, write.namespace)
        lacks = lacking(held, rules)
        if not lacks:
            return ""
        who = f"user {go_quoted(write.user.name)} (groups={quoted_list(write.user.groups)})"
        text = f"{who} is attempting to grant RBAC permissions not currently held:\n{told(lacks)}"
        errors = joined([f"{write.resource.gvr.group_resource} {go_quoted(one.role_name)} not found" for one in lost])
        return f"{text}; resolution errors: [{errors}]" if errors else text


def _is_tidied(obj: JSONObject, old: JSONObject) -> bool:
    def rest(one: JSONObject) -> JSONObject:
        metadata = {name: value for name, value in one["metadata"].items() if name not in _TIDIED and value}
        return {**{name: value for name, value in one.items() if value}, "metadata": metadata}

    return rest(obj) == rest(old)


def _aggregates(role: JSONObject) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))
