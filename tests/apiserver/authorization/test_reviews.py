"""What reviews say of one's own rights and those of others, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.authorization.conftest import As, rule

pytestmark = pytest.mark.server

REVIEWS = "/apis/authorization.k8s.io/v1"


async def test_a_review_says_what_a_user_may_do_and_by_which_binding(as_: As) -> None:
    eve, space = f"eve-{as_.namespace}", as_.namespace
    await as_.role("reader", rule("get list", "configmaps"), rule("delete", "configmaps", "", "mine"))
    await as_.bind("reader", eve)
    await as_.until(eve, verb="list", resource="configmaps", namespace=space)

    async def may(**attributes: str) -> Any:
        body = {"spec": {"resourceAttributes": {"namespace": space, **attributes}}}
        return (await as_("POST", f"{REVIEWS}/selfsubjectaccessreviews", body, user=eve))[1]["status"]

    reason = f'RBAC: allowed by RoleBinding "reader/{space}" of Role "reader" to User "{eve}"'
    assert await may(verb="get", resource="configmaps") == {"allowed": True, "reason": reason}
    assert await may(verb="delete", resource="configmaps", name="mine") == {"allowed": True, "reason": reason}
    assert await may(verb="delete", resource="configmaps", name="other") == {"allowed": False}
    _, found = await as_("POST", f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": space}}, user=eve)
    rules = found["status"]["resourceRules"]
    assert {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]} in rules
    assert {"verbs": ["delete"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"]} in rules
    assert found["status"]["incomplete"] is False


async def test_a_role_that_is_gone_is_named(as_: As) -> None:
    eve, space = f"eve-{as_.namespace}", as_.namespace
    await as_.role("reader", rule("get", "configmaps"))
    await as_.bind("reader", eve)
    await as_.until(eve, verb="get", resource="configmaps", namespace=space)
    await as_("DELETE", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}/roles/reader")
    await as_.until(eve, allowed=False, verb="get", resource="configmaps", namespace=space)
    _, refused = await as_("GET", f"/api/v1/namespaces/{space}/configmaps/a", user=eve)
    assert refused["message"].endswith('RBAC: role.rbac.authorization.k8s.io "reader" not found')


async def test_a_rules_review_says_that_the_rights_of_a_node_cannot_be_listed(as_: As) -> None:
    body = {"spec": {"namespace": as_.namespace}}
    node = {"user": "system:node:nobodys", "group": "system:nodes"}
    _, found = await as_("POST", f"{REVIEWS}/selfsubjectrulesreviews", body, **node)
    outcome = found["status"]["incomplete"], found["status"]["evaluationError"]
    assert outcome == (True, "node authorizer does not support user rule resolution")
