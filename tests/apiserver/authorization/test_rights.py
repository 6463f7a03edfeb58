"""What users may do, and which rights they may grant, on both servers."""

from __future__ import annotations

import pytest

from tests.apiserver.authorization.conftest import GROUP, RBAC, As, rule

pytestmark = pytest.mark.server


async def test_a_user_may_do_what_a_role_of_the_namespace_allows_and_no_more(as_: As) -> None:
    eve, configmaps = f"eve-{as_.namespace}", f"/api/v1/namespaces/{as_.namespace}/configmaps"
    where = f'in API group "" in the namespace "{as_.namespace}"'
    assert await as_("GET", configmaps, user=eve) == (
        403,
        {"message": f'configmaps is forbidden: User "{eve}" cannot list resource "configmaps" {where}', "reason": "Forbidden"},
    )
    await as_.role("reader", rule("list create", "configmaps"))
    await as_.bind("reader", eve)
    await as_.until(eve, verb="list", resource="configmaps", namespace=as_.namespace)
    assert (await as_("GET", configmaps, user=eve))[0] == 200
    assert (await as_("POST", configmaps, {"metadata": {"name": "a"}}, user=eve))[0] == 201
    assert (await as_("DELETE", f"{configmaps}/a", user=eve))[0] == 403
    assert (await as_("GET", "/api/v1/configmaps", user=eve))[0] == 403
    await as_("DELETE", f"{RBAC}/namespaces/{as_.namespace}/rolebindings/reader")
    await as_.until(eve, allowed=False, verb="list", resource="configmaps", namespace=as_.namespace)
    assert (await as_("GET", configmaps, user=eve))[0] == 403


async def test_no_verb_lets_a_user_grant_rights_that_he_does_not_hold(as_: As) -> None:
    eve, roles = f"eve-{as_.namespace}", f"{RBAC}/namespaces/{as_.namespace}/roles"
    await as_.role("keeper", rule("get create update patch", "roles", GROUP), rule("get", "configmaps"))
    await as_.bind("keeper", eve)
    await as_.until(eve, verb="patch", resource="roles", of=GROUP, namespace=as_.namespace)
    less, more = ({"metadata": {"name": "r"}, "rules": [rule(verbs, "configmaps")]} for verbs in ("get", "get watch"))
    lacks = '{APIGroups:[""], Resources:["configmaps"], Verbs:["watch"]}'
    said = (
        f'roles.{GROUP} "r" is forbidden: user "{eve}" (groups=["system:authenticated"]) '
        f"is attempting to grant RBAC permissions not currently held:\n{lacks}"
    )
    assert await as_("POST", roles, more, user=eve) == (403, {"message": said, "reason": "Forbidden"})
    assert (await as_("PUT", f"{roles}/r", more, user=eve))[1]["message"] == said
    assert (await as_("POST", roles, less, user=eve))[0] == 201
    assert (await as_("PUT", f"{roles}/r", more, user=eve))[1]["message"] == said
    merge = "application/merge-patch+json"
    assert (await as_("PATCH", f"{roles}/r", {"rules": more["rules"]}, user=eve, content=merge))[1]["message"] == said
    applied = {"apiVersion": f"{GROUP}/v1", "kind": "Role", **more}
    apply = "application/apply-patch+yaml"
    assert (await as_("PATCH", f"{roles}/r?fieldManager=t&force=true", applied, user=eve, content=apply))[1]["message"] == said
    assert (await as_("PATCH", f"{roles}/r", {"metadata": {"labels": {"a": "b"}}}, user=eve, content=merge))[0] == 200


async def test_a_user_who_may_escalate_or_bind_may_grant_more(as_: As) -> None:
    eve, place = f"eve-{as_.namespace}", f"{RBAC}/namespaces/{as_.namespace}"
    await as_.role("keeper", rule("create escalate", "roles", GROUP), rule("create", "rolebindings", GROUP))
    await as_.role("binder", rule("bind", "roles", GROUP, "strong"))
    for name in ("keeper", "binder"):
        await as_.bind(name, eve)
    await as_.until(eve, verb="bind", resource="roles", of=GROUP, namespace=as_.namespace, name="strong")
    await as_.until(eve, verb="escalate", resource="roles", of=GROUP, namespace=as_.namespace)
    for name in ("strong", "stronger"):
        made = await as_("POST", f"{place}/roles", {"metadata": {"name": name}, "rules": [rule("*", "secrets")]}, user=eve)
        assert made[0] == 201
    for name, status in (("strong", 201), ("stronger", 403), ("nosuch", 404)):
        role = {"apiGroup": GROUP, "kind": "Role", "name": name}
        bound = await as_("POST", f"{place}/rolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": []}, user=eve)
        assert (name, bound[0]) == (name, status)


async def test_only_whose_rights_are_everything_makes_a_role_of_other_roles(as_: As) -> None:
    eve, name = f"eve-{as_.namespace}", f"{as_.namespace}-collector"
    await as_.role(f"{name}-maker", rule("create", "clusterroles", GROUP), everywhere=True)
    await as_.bind(f"{name}-maker", eve, everywhere=True)
    await as_.until(eve, verb="create", resource="clusterroles", of=GROUP)
    role = {"metadata": {"name": name}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    _, refused = await as_("POST", f"{RBAC}/clusterroles", role, user=eve)
    why = "must have cluster-admin privileges to use the aggregationRule"
    assert refused["message"] == f'clusterroles.{GROUP} "{name}" is forbidden: {why}'


async def test_an_update_that_creates_needs_the_right_to_create(as_: As) -> None:
    eve, roles = f"eve-{as_.namespace}", f"{RBAC}/namespaces/{as_.namespace}/roles"
    await as_.role("updater", rule("update patch", "roles", GROUP))
    await as_.bind("updater", eve)
    await as_.until(eve, verb="patch", resource="roles", of=GROUP, namespace=as_.namespace)
    cannot = f'roles.{GROUP} "new" is forbidden: User "{eve}" cannot create resource "roles" in API group "{GROUP}"'
    _, refused = await as_("PUT", f"{roles}/new", {"metadata": {"name": "new"}, "rules": []}, user=eve)
    assert refused["message"] == f'{cannot} in the namespace "{as_.namespace}"'


async def test_members_of_masters_need_no_role(as_: As) -> None:
    assert (await as_("GET", "/api/v1/secrets?limit=1", user="anyone", group="system:masters"))[0] == 200
    assert (await as_("GET", "/api/v1/secrets?limit=1", user="system:masters"))[0] == 403


@pytest.mark.parametrize(
    ("query", "name"),
    [
        pytest.param("fieldSelector=metadata.name%3Da", "a", id="the name that is selected"),
        pytest.param("fieldSelector=metadata.name%3Da,spec.nodeName%3Dx", "a", id="a term besides"),
        pytest.param("fieldSelector=metadata.name%3Da%5C,b", "a,b", id="an escaped comma"),
        pytest.param("fieldSelector=metadata.name!%3Da", "", id="a name that is not wanted"),
        pytest.param("fieldSelector=metadata.name%3Da,xx", "", id="a term that cannot be read"),
        pytest.param("fieldSelector=metadata.name%3Da%3Db", "", id="a value that cannot be read"),
        pytest.param("fieldSelector=metadata.name%3Da&limit=x", "", id="a limit that is no number"),
        pytest.param("fieldSelector=metadata.name%3Da&timeoutSeconds=x", "", id="a time that is no number"),
        pytest.param("fieldSelector=metadata.name%3Da&labelSelector=%3D%3D", "", id="a label selector that cannot be read"),
        pytest.param("fieldSelector=metadata.name%3D..", "", id="a value that is no name"),
        pytest.param("fieldSelector=metadata.name%3Da%2Fb", "", id="what would be several segments of a path"),
    ],
)
async def test_a_list_is_of_the_name_that_its_whole_query_allows_to_read(as_: As, query: str, name: str) -> None:
    _, refused = await as_("GET", f"/api/v1/namespaces/{as_.namespace}/pods?{query}", user="eve")
    assert refused["message"].startswith(f'pods "{name}" is forbidden' if name else "pods is forbidden"), refused
