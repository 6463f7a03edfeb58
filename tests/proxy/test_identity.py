"""Who the API server sees: certificates of the proxy's authority, bearer tokens, anonymous clients, and clients that impersonate others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.endpoints.access import MASTERS, User
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from tests.proxy.conftest import ADMIN, DORA, OTTO, HttpClient, StartProxy
from tests.proxy.rules.rule_texts import rule

REVIEW: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
HIDE_NONE = rule(match=[{"names": ["none"]}])


async def who(client: HttpClient, **headers: str) -> tuple[int, str, tuple[str, ...]]:
    """Return status, user and groups that the API server names for a client."""
    reply = await client("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", REVIEW, **headers)
    info = reply.tree.get("status", {}).get("userInfo", {}) if reply.status == 201 else {}
    return reply.status, info.get("username", ""), tuple(sorted(info.get("groups", ())))


@pytest.mark.parametrize("ruled", [pytest.param(False, id="without rules"), pytest.param(True, id="with rules for users")])
async def test_the_api_server_sees_the_client(start_proxy: StartProxy, ruled: bool) -> None:
    rules = (rule(match=[{"userGroups": ["devs"], "names": ["none"]}]),) if ruled else ()
    async with start_proxy(*rules) as proxied:
        groups = ("devs", "system:authenticated")
        assert await who(await proxied.client(DORA)) == (201, "dora", groups)
        assert await who(await proxied.client(token="dora-token")) == (201, "dora", groups)
        assert await who(await proxied.client(proxied.proxy.user)) == (201, "kubeloop-admin", ("system:authenticated", MASTERS))
        assert (await who(await proxied.client()))[0] == 403
        assert (await who(await proxied.client(token="wrong")))[0] == 401


async def test_a_certificate_wins_over_a_token(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_NONE) as proxied:
        client = await proxied.client(DORA, token="otto-token")
        assert (await who(client))[1] == "dora"


async def test_headers_of_a_front_proxy_have_no_effect(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_NONE) as proxied:
        forged = {"X-Remote-User": "root", "X-Remote-Group": MASTERS, "X-Remote-Uid": "0"}
        assert (await who(await proxied.client(DORA), **forged))[1] == "dora"
        assert (await who(await proxied.client(), **forged))[0] == 403


async def test_impersonation_is_checked_by_the_api_servers_rights(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_NONE) as proxied:
        admin, dora = await proxied.client(ADMIN), await proxied.client(DORA)
        as_otto = {"Impersonate-User": "otto", "Impersonate-Group": "ops"}
        assert await who(admin, **as_otto) == (201, "otto", ("ops", "system:authenticated"))
        reply = await dora("GET", "/api/v1/namespaces/default/pods", None, **as_otto)
        assert reply.status == 403
        assert reply.tree["message"].startswith('users "otto" is forbidden: User "dora" cannot impersonate resource "users"')
        assert (await who(await proxied.client(token="admin-token"), **as_otto))[1] == "otto"
        reply = await (await proxied.client(token="dora-token"))("GET", "/api/v1/namespaces/default/pods", None, **as_otto)
        assert reply.status == 403
        reply = await (await proxied.client())("GET", "/api/v1/namespaces/default/pods", None, **as_otto)
        assert reply.status == 403


async def test_an_impersonated_user_may_be_a_service_account_or_anonymous(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_NONE) as proxied:
        admin = await proxied.client(ADMIN)
        found = await who(admin, **{"Impersonate-User": "system:serviceaccount:default:robot"})
        assert found[1:] == (
            "system:serviceaccount:default:robot",
            ("system:authenticated", "system:serviceaccounts", "system:serviceaccounts:default"),
        )
        reply = await admin("GET", "/api/v1/namespaces/default/pods", None, **{"Impersonate-User": "system:anonymous"})
        assert 'User "system:anonymous" cannot list' in reply.tree["message"]


@pytest.mark.parametrize("name", ["Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-a"])
async def test_impersonation_without_a_user_is_refused(start_proxy: StartProxy, name: str) -> None:
    async with start_proxy(HIDE_NONE) as proxied:
        for client in (await proxied.client(ADMIN), await proxied.client(token="admin-token"), await proxied.client()):
            reply = await client("GET", "/api/v1/namespaces/default/pods", None, **{name: MASTERS})
            assert reply.status in (400, 500), name  # a kube-apiserver answers this with 500


async def test_a_token_of_a_service_account_is_passed_on(start_proxy: StartProxy) -> None:
    async with start_proxy(rule(match=[{"userGroups": ["system:serviceaccounts:default"], "resources": ["configmaps"]}])) as proxied:
        direct = await proxied.direct()
        await direct("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        reply = await direct("POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", body)
        robot = await proxied.client(token=reply.tree["status"]["token"])
        assert (await who(robot))[1] == "system:serviceaccount:default:robot"


async def test_an_expired_certificate_is_401(upstream: TlsTestServer, start_proxy: StartProxy) -> None:
    clock = FakeClock(datetime.now(UTC))
    async with start_proxy(HIDE_NONE, clock=clock) as proxied:
        client = await proxied.client(DORA)
        assert (await client("GET", "/api")).status == 200
        clock.step_wall(timedelta(days=4000).total_seconds())
        reply = await client("GET", "/api")
        assert (reply.status, reply.tree["reason"]) == (401, "Unauthorized")


@pytest.mark.usefixtures("shop")
async def test_two_users_see_different_worlds(start_proxy: StartProxy) -> None:
    for_devs = rule(match=[{"userGroups": ["devs"], "labelSelector": "tier=back"}], name="devs")
    for_ops = rule({"set": {"spec.containers[0].image": "shown"}}, match=[{"users": ["otto"], "resources": ["pods"]}], name="ops")
    pods = "/api/v1/namespaces/shop/pods"
    async with start_proxy(for_devs, for_ops) as proxied:
        clients = {
            "dora": [await proxied.client(DORA), await proxied.client(token="dora-token")],
            "otto": [await proxied.client(OTTO), await proxied.client(token="otto-token")],
        }
        for dora, otto in zip(clients["dora"], clients["otto"], strict=True):
            seen, other = await dora("GET", pods), await otto("GET", pods)
            assert seen.names == ["front-0", "front-1"]
            assert other.names == ["back-0", "front-0", "front-1"]
            assert b"nginx" in seen.body
            assert b"nginx" not in other.body
            assert (await dora("GET", f"{pods}/back-0")).status == 404
            assert (await otto("GET", f"{pods}/back-0")).tree["spec"]["containers"][0]["image"] == "shown"
            async with dora.watch(f"{pods}?watch=true") as events, otto.watch(f"{pods}?watch=true") as others:
                assert [(await anext(events))["object"]["metadata"]["name"] for _ in range(2)] == ["front-0", "front-1"]
                assert [(await anext(others))["object"]["metadata"]["name"] for _ in range(3)] == ["back-0", "front-0", "front-1"]
        admin = await proxied.client(ADMIN)
        as_dora = {"Impersonate-User": "dora", "Impersonate-Group": "devs"}
        assert (await admin("GET", pods, None, **as_dora)).names == ["front-0", "front-1"]
        assert (await admin("GET", pods)).names == ["back-0", "front-0", "front-1"]


async def test_a_user_with_a_control_character_is_refused(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_NONE) as proxied:
        client = await proxied.client(User("a\nb"))
        assert (await client("GET", "/api/v1/pods")).status == 401
