"""Rejects writes that would grant rights that their user lacks: roles and bindings, statuses of claims, updates that create.

Source: k8s.io/kubernetes pkg/registry/rbac/{escalation_check.go,role,clusterrole,rolebinding,clusterrolebinding}/policybased,
k8s.io/apiserver pkg/endpoints/handlers/update.go (withAuthorization).
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.apiserver.authorization.impersonation import NODE_NAME, account_of
from kubeloop.apiserver.authorization.rbac import GROUP, RoleAuthorizer
from kubeloop.apiserver.authorization.rbac_rules import describe_rules, join_errors, missing_rules, quoted_list
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import MASTERS, Access, Authorizer, require
from kubeloop.meta.errors import ApiError
from kubeloop.meta.field_error import FieldError, forbidden
from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.names import path_segment
from kubeloop.meta.strconv import go_quoted
from kubeloop.types import JSONObject

# Additional rights for writes of a ResourceClaim's status: ``resourceclaims/binding`` for allocators and ``resourceclaims/driver`` for
# drivers. The server serves neither subresource.
# Source: k8s.io/kubernetes pkg/registry/resource/utils.go, feature DRAResourceClaimGranularStatusAuthorization.


_BINDING = "changing status.allocation or status.reservedFor"


def status_faults(authorizer: Authorizer, write: WriteRequest, obj: JSONObject, old: JSONObject) -> Iterator[FieldError]:
    """Yield the errors of changes in a ResourceClaim's status that the user has no permission to make.

    Args:
        authorizer: Decides about the additional rights.
        write: The write of the status.
        obj: The new claim.
        old: The stored claim.
    """
    new, before = obj.get("status") or {}, old.get("status") or {}
    # An empty list is no reservation, but an empty allocation is an allocation.
    if new.get("allocation") != before.get("allocation") or (new.get("reservedFor") or []) != (before.get("reservedFor") or []):
        reason = _refused(authorizer, write, write.verb, "binding", "", "")
        if reason:
            yield forbidden(
                "status.allocation", f'{_BINDING} requires resource="resourceclaims/binding", verb="{write.verb}" permission: {reason}'
            )
    allocation = new.get("allocation")
    if allocation is None:
        return  # a deallocation also removes the data of drivers
    verbs = [f"arbitrary-node:{write.verb}"]
    if _is_there(write, allocation):
        verbs.insert(0, f"associated-node:{write.verb}")
    for driver in _drivers(new, before):
        refused = [_refused(authorizer, write, verb, "driver", write.namespace, driver) for verb in verbs]
        if all(refused):
            reported = f'changing status.devices requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission'
            yield forbidden("status.devices", f"{reported}: {refused[0]}")


def _refused(authorizer: Authorizer, write: WriteRequest, verb: str, subresource: str, namespace: str, name: str) -> str:
    gvr = write.resource.gvr
    try:
        require(authorizer, Access(write.user, verb, gvr.group, gvr.version, gvr.resource, subresource, namespace, name))
    except ApiError as refusal:
        return refusal.status.message
    return ""


def _drivers(new: JSONObject, old: JSONObject) -> list[str]:
    """Return the drivers of devices that were added, changed or removed, sorted."""
    current, before = ({_device(one): one for one in status.get("devices") or ()} for status in (new, old))
    return sorted({key[0] for key in {*current, *before} if current.get(key) != before.get(key)})


def _device(device: JSONObject) -> tuple[str, ...]:
    return tuple(device.get(name) or "" for name in ("driver", "pool", "device", "shareID"))


def _is_there(write: WriteRequest, allocation: JSONObject) -> bool:
    """Return whether the user's service account token is bound to the node of the allocation."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    fields = terms[0].get("matchFields") or [] if len(terms) == 1 and not terms[0].get("matchExpressions") else []
    if len(fields) != 1 or fields[0].get("key") != "metadata.name" or fields[0].get("operator") != "In" or len(fields[0]["values"]) != 1:
        return False
    return account_of(write.user.name) is not None and write.user.extra.get(NODE_NAME) == tuple(fields[0]["values"])


_EVERYTHING: list[JSONObject] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]
_CLAIMS = GroupResource("resource.k8s.io", "resourceclaims")
_ROLES = {"Role": "roles", "ClusterRole": "clusterroles"}
#: Metadata of roles that the garbage collector and similar clients may change without the rights of the role.
_TIDIED = frozenset({"ownerReferences", "finalizers", "selfLink", "managedFields"})


class EscalationCheck:
    """Rejects writes that would grant rights that their user lacks. Implements the ``WriteAuthorization`` of the store.

    Members of system:masters may grant any right.
    """

    def __init__(self, authorizer: Authorizer, roles: RoleAuthorizer) -> None:
        self._authorizer = authorizer
        self._roles = roles

    def check_write(self, write: WriteRequest, obj: JSONObject, old: JSONObject | None) -> None:
        """Check a write of a role, a binding or the status of a claim. Errors in the status of a claim become validation errors.

        Raises:
            Forbidden: The user lacks rights that the write would grant.
            NotFound: The role of a binding does not exist.
        """
        gvr = write.resource.gvr
        if gvr.group_resource == _CLAIMS and write.subresource == "status" and old is not None:
            write.findings += status_faults(self._authorizer, write, obj, old)
        if gvr.group != GROUP or MASTERS in write.user.groups or (old is not None and _is_tidied(obj, old)):
            return
        if gvr.resource in _ROLES.values():
            self._check_role(write, obj, old)
        else:
            self._check_binding(write, obj)

    def check_creation(self, write: WriteRequest) -> None:
        """Check that the user may create the object, when an update is about to create it. Raises Forbidden if not."""
        gvr = write.resource.gvr
        attributes = gvr.group, gvr.version, gvr.resource, write.subresource, write.namespace, write.name
        require(self._authorizer, Access(write.user, "create", *attributes))

    def _check_role(self, write: WriteRequest, obj: JSONObject, old: JSONObject | None) -> None:
        gvr = write.resource.gvr
        access = Access(write.user, "escalate", gvr.group, "*", gvr.resource, "", write.namespace, write.name_in_path)
        if self._authorizer.authorize(access).allowed:
            return
        self._check_held(write, obj.get("rules") or [])
        if (_aggregates(obj) or _aggregates(old or {})) and self._lacks(write, _EVERYTHING):
            reason = "must have cluster-admin privileges to use the aggregationRule"
            raise api_errors.forbidden(gvr.group_resource, write.name, reason)

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
        """Return the rules of a binding's role. As upstream, NotFound has the name of the role and the resource of the binding."""
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
        reason = self._lacks(write, rules)
        if reason:
            raise api_errors.forbidden(write.resource.gvr.group_resource, write.name, reason)

    def _lacks(self, write: WriteRequest, rules: list[JSONObject]) -> str:
        """Return a text about the rules that the user lacks where the write takes place, or "" if the user has them all."""
        held, lost = self._roles.resolve_rules(write.user, write.namespace)
        lacks = missing_rules(held, rules)
        if not lacks:
            return ""
        who = f"user {go_quoted(write.user.name)} (groups={quoted_list(write.user.groups)})"
        text = f"{who} is attempting to grant RBAC permissions not currently held:\n{describe_rules(lacks)}"
        errors = join_errors([f"{write.resource.gvr.group_resource} {go_quoted(one.role_name)} not found" for one in lost])
        return f"{text}; resolution errors: [{errors}]" if errors else text


def _is_tidied(obj: JSONObject, old: JSONObject) -> bool:
    def rest(rbac_object: JSONObject) -> JSONObject:
        metadata = {name: value for name, value in rbac_object["metadata"].items() if name not in _TIDIED and value}
        return {**{name: value for name, value in rbac_object.items() if value}, "metadata": metadata}

    return rest(obj) == rest(old)


def _aggregates(role: JSONObject) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))
