"""Which users may write which roles, bindings and statuses of claims. ``test_rights.py`` and ``test_claims.py`` ask both servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubeloop.apiserver.authorization.escalation_check import EscalationCheck
from kubeloop.apiserver.authorization.rbac import RoleAuthorizer, RoleIndex
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.endpoints.access import MASTERS, Access, Decision, Rules, User
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupVersionResource
from tests.apiserver.write_requests import RESOURCE

RBAC, DEVICES = "rbac.authorization.k8s.io", "resource.k8s.io"
EVE = User("eve")
ROBOT = User("system:serviceaccount:shop:robot", extra={"authentication.kubernetes.io/node-name": ("n1",)})
GET_PODS = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
GET_SECRETS = {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}
EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]
ATTEMPT = 'user "eve" (groups=[]) is attempting to grant RBAC permissions not currently held:\n'
SECRETS = f'{ATTEMPT}{{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}}'


class Some:
    """Allows the listed accesses, as ``VERB RESOURCE.GROUP NAMESPACE/NAME``."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = set(allowed)

    def authorize(self, access: Access) -> Decision:
        resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
        return Decision(f"{access.verb} {resource}.{access.group} {access.namespace}/{access.name}" in self.allowed)

    def rules(self, user: User, namespace: str) -> Rules:
        return Rules()

    async def prepare(self, user: User) -> None:
        """Nothing is needed."""


def write(resource: str, *, group: str = RBAC, user: User = EVE, namespace: str = "shop", **more: Any) -> WriteRequest:
    served = replace(RESOURCE, gvr=GroupVersionResource(group, "v1", resource), kind="X")
    return WriteRequest(served, namespace, "x", user, verb="update", **more)


def check(
    request: WriteRequest, obj: dict[str, Any], old: dict[str, Any] | None = None, *, allowed: str = "", held: Any = (GET_PODS,)
) -> str:
    """The error of a write by a user who has the rules ``held``; "" if there is none."""
    index = RoleIndex()
    index.put_role("shop", "held", {"rules": list(held)})
    index.put_role("shop", "secrets", {"rules": [GET_SECRETS]})
    index.put_role("", "pods", {"rules": [GET_PODS]})
    for name, role in (("a", "held"), *((("b", "gone"),) if request.user == User("lost") else ())):
        subjects = [{"kind": "User", "name": request.user.name}]
        index.put_binding("shop", name, {"metadata": {"name": name}, "roleRef": {"kind": "Role", "name": role}, "subjects": subjects})
    try:
        EscalationCheck(Some(allowed), RoleAuthorizer(index)).check_write(request, obj, old)
    except ApiError as refused:
        return refused.status.message
    return ""


def role(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", **more.pop("metadata", {})}, "rules": list(rules), **more}


def binding(kind: str, name: str) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name}}


AGGREGATED = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
FORBIDDEN = f'{{}}.{RBAC} "x" is forbidden: {{}}'


@pytest.mark.parametrize(
    ("obj", "old", "options", "error"),
    [
        pytest.param(role(GET_PODS), None, {}, "", id="of rights that the user has"),
        pytest.param(role(GET_SECRETS), None, {}, SECRETS, id="of rights that the user lacks: refused"),
        pytest.param(role(), role(GET_SECRETS), {}, "", id="that loses rights"),
        pytest.param(role(GET_SECRETS), None, {"allowed": f"escalate roles.{RBAC} shop/"}, "", id="of any rights, by the verb escalate"),
        pytest.param(role(GET_SECRETS), None, {"user": User("root", (MASTERS,))}, "", id="of any rights, by system:masters"),
        pytest.param(
            role(GET_SECRETS, metadata={"finalizers": ["f"], "ownerReferences": []}),
            role(GET_SECRETS, metadata={"finalizers": ["g"], "managedFields": [{}]}),
            {},
            "",
            id="whose finalizers change",
        ),
        pytest.param(role(GET_SECRETS, metadata={"labels": {"a": "b"}}), role(GET_SECRETS), {}, SECRETS, id="whose labels change: refused"),
        pytest.param(
            role(**AGGREGATED), None, {}, "must have cluster-admin privileges to use the aggregationRule", id="that aggregates: refused"
        ),
        pytest.param(
            role(),
            role(**AGGREGATED),
            {},
            "must have cluster-admin privileges to use the aggregationRule",
            id="that does not aggregate any more: refused",
        ),
        pytest.param(role(**AGGREGATED), None, {"held": EVERYTHING}, "", id="that aggregates, by a user with all rights"),
        pytest.param(
            role(GET_SECRETS),
            None,
            {"user": User("lost")},
            f'{SECRETS.replace("eve", "lost")}; resolution errors: [roles.{RBAC} "gone" not found]',
            id="of rights that a missing role may have: refused",
        ),
    ],
)
def test_a_write_of_a_role(obj: dict[str, Any], old: dict[str, Any] | None, options: dict[str, Any], error: str) -> None:
    request = write("roles", user=options.pop("user", EVE))
    assert check(request, obj, old, **options) == (FORBIDDEN.format("roles", error) if error else "")


@pytest.mark.parametrize(
    ("obj", "options", "error"),
    [
        pytest.param(binding("ClusterRole", "pods"), {}, "", id="to a role of rights that the user has"),
        pytest.param(binding("Role", "secrets"), {}, FORBIDDEN.format("rolebindings", SECRETS), id="to a role of others: refused"),
        pytest.param(
            binding("Role", "secrets"), {"allowed": f"bind roles.{RBAC} shop/secrets"}, "", id="to a role of others, by the verb bind"
        ),
        pytest.param(
            binding("Role", "secrets"),
            {"allowed": f"bind clusterroles.{RBAC} shop/secrets"},
            FORBIDDEN.format("rolebindings", SECRETS),
            id="to a role, by the right to bind a cluster role: refused",
        ),
        pytest.param(binding("Role", "other"), {}, f'rolebindings.{RBAC} "other" not found', id="to a role that does not exist: refused"),
        pytest.param(binding("Role", ""), {}, "Name parameter required.", id="to a role without a name: refused"),
        pytest.param(
            binding("Role", "a/b"), {}, "Name parameter invalid: \"a/b\": may not contain '/'", id="to a name that is no path: refused"
        ),
        pytest.param(binding("User", "eve"), {}, 'unsupported role reference kind: "User"', id="to something else: refused"),
    ],
)
def test_a_write_of_a_binding(obj: dict[str, Any], options: dict[str, Any], error: str) -> None:
    assert check(write("rolebindings"), obj, **options) == error


def test_a_cluster_role_binding_names_no_role_of_a_namespace() -> None:
    assert check(write("clusterrolebindings", namespace=""), binding("Role", "secrets")) == "Namespace parameter required."


def test_a_write_of_another_group_grants_nothing() -> None:
    assert check(write("roles", group="example.com"), role(GET_SECRETS)) == ""


def test_an_update_that_creates_needs_the_right_to_create() -> None:
    EscalationCheck(Some(f"create roles.{RBAC} shop/x"), RoleAuthorizer(RoleIndex())).check_creation(write("roles"))
    with pytest.raises(ApiError, match='User "eve" cannot create resource "roles" in API group'):
        EscalationCheck(Some(f"update roles.{RBAC} shop/x"), RoleAuthorizer(RoleIndex())).check_creation(write("roles"))


def selected(
    *values: str, key: str = "metadata.name", operator: str = "In", fields: int = 1, terms: int = 1, **more: Any
) -> dict[str, Any]:
    """An allocation for nodes."""
    field = {"key": key, "operator": operator, "values": list(values)}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field] * fields, **more}] * terms}}


DEVICE = {"driver": "d.example.com", "pool": "p", "device": "x"}
ANY, HERE = (f"{verb}:update resourceclaims/driver.{DEVICES} shop/d.example.com" for verb in ("arbitrary-node", "associated-node"))
BINDING = f"update resourceclaims/binding.{DEVICES} /"


@pytest.mark.parametrize(
    ("new", "old", "user", "allowed", "fields"),
    [
        pytest.param(
            {"allocation": {}}, {}, EVE, "", ["status.allocation"], id="an allocation needs the right to bind, even if it is empty"
        ),
        pytest.param({"reservedFor": [{}]}, {}, EVE, "", ["status.allocation"], id="and so does a reservation"),
        pytest.param({"allocation": {}}, {}, EVE, BINDING, [], id="which this user has"),
        pytest.param({"allocation": {}, "reservedFor": []}, {"allocation": {}}, EVE, "", [], id="an empty list is as good as none"),
        pytest.param(
            {"allocation": {}, "devices": [DEVICE]}, {"allocation": {}}, EVE, "", ["status.devices"], id="a device needs its driver's"
        ),
        pytest.param({"allocation": {}, "devices": [DEVICE]}, {"allocation": {}}, EVE, ANY, [], id="which this user has for all nodes"),
        pytest.param(
            {"allocation": {}}, {"allocation": {}, "devices": [DEVICE]}, EVE, "", ["status.devices"], id="and so does its removal"
        ),
        pytest.param(
            {"allocation": {}, "devices": [DEVICE]}, {"allocation": {}, "devices": [DEVICE]}, EVE, "", [], id="a device that stays does not"
        ),
        *(
            pytest.param(
                {"allocation": {}, "devices": [DEVICE]},
                {"allocation": {}, "devices": [{**DEVICE, name: "other"}]},
                EVE,
                "",
                ["status.devices"] * (2 if name == "driver" else 1),  # an error for each driver
                id=f"another {name} is another device",
            )
            for name in ("driver", "pool", "device", "shareID")
        ),
        *(
            pytest.param(
                {"allocation": {}, "devices": [DEVICE, {**DEVICE, name: "other"}]},
                {"allocation": {}, "devices": [{**DEVICE, name: "other"}, DEVICE]},
                EVE,
                "",
                [],
                id=f"two that differ by {name} may change their places",
            )
            for name in ("driver", "pool", "device", "shareID")
        ),
        pytest.param({"devices": [DEVICE]}, {}, EVE, "", [], id="without an allocation the data of drivers goes"),
        *(
            pytest.param({"allocation": allocation, "devices": [DEVICE]}, {"allocation": allocation}, user, HERE, fields, id=name)
            for allocation, user, fields, name in (
                (selected("n1"), ROBOT, [], "a driver on the node of the allocation needs the right for its node only"),
                (selected("n2"), ROBOT, ["status.devices"], "a driver on another node needs that for all"),
                (selected("n1"), EVE, ["status.devices"], "and so does a user who is on no node"),
                (selected("n1"), User(ROBOT.name), ["status.devices"], "or whose token names none"),
                (selected("n1", "n2"), ROBOT, ["status.devices"], "or an allocation for two nodes"),
                (selected("n1", key="metadata.labels"), ROBOT, ["status.devices"], "or by another field"),
                (selected("n1", operator="NotIn"), ROBOT, ["status.devices"], "or for all but one"),
                (selected("n1", fields=2), ROBOT, ["status.devices"], "or by two fields"),
                (selected("n1", terms=2), ROBOT, ["status.devices"], "or by two terms"),
                (selected("n1", matchExpressions=[{}]), ROBOT, ["status.devices"], "or by labels too"),
                ({"nodeSelector": None}, ROBOT, ["status.devices"], "or for any node"),
            )
        ),
    ],
)
def test_a_status_of_a_claim(new: dict[str, Any], old: dict[str, Any], user: User, allowed: str, fields: list[str]) -> None:
    request = write("resourceclaims", group=DEVICES, user=user, subresource="status")
    assert check(request, {"status": new}, {"status": old}, allowed=allowed) == ""
    assert [error.field for error in request.findings] == fields


def test_a_refused_driver_names_the_right_that_is_missing() -> None:
    request = write("resourceclaims", group=DEVICES, user=ROBOT, subresource="status")
    check(request, {"status": {"allocation": selected("n1"), "devices": [DEVICE]}}, {"status": {"allocation": selected("n1")}})
    (error,) = request.findings
    needs = 'requires resource="resourceclaims/driver", verb="[associated-node:update arbitrary-node:update]" permission: '
    assert needs in error.detail
    assert f'User "{ROBOT.name}" cannot associated-node:update resource "resourceclaims/driver"' in error.detail
