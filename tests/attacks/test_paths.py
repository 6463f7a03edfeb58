"""Ways round authorization: paths that the authorizer and the handler would read differently, and headers that promise rights."""

from __future__ import annotations

import base64
import json

import pytest

from tests.attacks.conftest import Thief, config_map

pytestmark = pytest.mark.server

GOLD = "/api/v1/namespaces/{other}/secrets/gold"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param(GOLD, 403, id="the plain way"),
        pytest.param("/api/v1/namespaces/{other}/secrets", 403, id="the list"),
        pytest.param("/api/v1/secrets", 403, id="the list of all namespaces"),
        pytest.param("/api/v1/secrets?fieldSelector=metadata.namespace={other}", 403, id="with a selector of the namespace"),
        pytest.param("/api/v1/namespaces/{home}/secrets?namespace={other}", 403, id="with a parameter that names the namespace"),
        pytest.param("/api/v1/namespaces/{other}/secrets?watch=1", 403, id="a watch"),
        pytest.param("/api/v1/watch/namespaces/{other}/secrets", 403, id="a watch in the old way"),
        pytest.param("/api/v1/watch/namespaces/{other}/secrets/gold", 403, id="a watch of one in the old way"),
        pytest.param("/api/v1/proxy/namespaces/{other}/secrets/gold", 403, id="through a verb that is no more"),
        pytest.param("/api/v1/namespaces/{home}/configmaps/../../{other}/secrets/gold", 403, id="dots in the middle"),
        pytest.param("/api/v1/namespaces/{home}/configmaps/%2e%2e/%2e%2e/{other}/secrets/gold", 403, id="encoded dots"),
        pytest.param("/api/v1/namespaces/{home}/configmaps/..%2f..%2f{other}%2fsecrets%2fgold", 403, id="encoded slashes in a name"),
        pytest.param("/api/v1/namespaces/{home}%2f..%2f{other}/secrets/gold", 403, id="encoded slashes in a namespace"),
        pytest.param("/api/v1/namespaces/{other}%2fsecrets%2fgold", 403, id="encoded slashes for all of it"),
        pytest.param("/api/v1/namespaces/{other}/secrets%2fgold", 403, id="an encoded slash before the name"),
        pytest.param("/api/v1/namespaces/{home}/configmaps%252f..%252fsecrets", 403, id="twice encoded slashes"),
        pytest.param("//api/v1/namespaces/{other}/secrets/gold", 403, id="two slashes before it"),
        pytest.param("/api//v1/namespaces/{other}/secrets/gold", 403, id="two slashes within"),
        pytest.param("/api/v1//namespaces/{other}/secrets/gold", 403, id="two slashes before the namespace"),
        pytest.param("/api/v1/namespaces//{other}/secrets/gold", 403, id="an empty namespace"),
        pytest.param("/api/v1/namespaces/{other}//secrets/gold", 403, id="an empty resource"),
        pytest.param("/./api/v1/namespaces/{other}/secrets/gold", 403, id="a dot before it"),
        pytest.param("/version/../api/v1/namespaces/{other}/secrets/gold", 403, id="from a path that all may read"),
        pytest.param("/healthz/../api/v1/namespaces/{other}/secrets/gold", 403, id="from the health checks"),
        pytest.param("/openapi/v3/../../api/v1/namespaces/{other}/secrets/gold", 404, id="from the schemas"),
        pytest.param("/apis/../api/v1/namespaces/{other}/secrets/gold", 403, id="from the groups"),
        pytest.param("/apis//v1/namespaces/{other}/secrets/gold", 403, id="in a group without a name"),
        pytest.param("/API/V1/namespaces/{other}/secrets/gold", 403, id="in capitals"),
        pytest.param("/api/v1/namespaces/{other}/Secrets/gold", 403, id="a resource in capitals"),
        pytest.param("/api/v1/namespaces/{other}/secrets/gold/", 403, id="with a slash at the end"),
        pytest.param("/api/v1/namespaces/{other}/secrets/gold/status", 403, id="as a subresource"),
        pytest.param("/api/v1/namespaces/{other}/secrets;x=y/gold", 403, id="with parameters of the path"),
        pytest.param("/api/v1/namespaces/{home};/../{other}/secrets/gold", 403, id="with empty parameters of the path"),
        pytest.param("/api/v1/namespaces/{other}/secrets/gold%00", 403, id="with a zero byte"),
        pytest.param("/api/v1/namespaces/{other}/secrets/gold%20", 403, id="with a blank"),
        pytest.param(
            "/api/v1/namespaces/{home}/configmaps/gold?resource=secrets&namespace={other}", 404, id="with parameters for all of it"
        ),
        pytest.param("/api/v1/namespaces/{home}/configmaps?fieldSelector=metadata.namespace%3D{other}", 200, id="another namespace's maps"),
        pytest.param("/api/v1/namespaces/{other}/pods/x/proxy/../../secrets/gold", 403, id="through a proxied pod"),
        pytest.param("/api/v1/nodes/x/proxy/../../namespaces/{other}/secrets/gold", 403, id="through a proxied node"),
        pytest.param("https://x/api/v1/namespaces/{other}/secrets/gold", 403, id="with the whole address"),
        pytest.param("/debug/pprof/", 403, id="the profiler"),
        pytest.param("/metrics", 403, id="the figures"),
        pytest.param("/logs/", 403, id="the logs"),
        pytest.param("/debug/compact?revision=1", 403, id="the store's own"),
    ],
)
async def test_no_path_leads_round_authorization(thief: Thief, path: str, status: int) -> None:
    answered = await thief.ask("GET", path)
    assert not answered.has_gold
    assert answered.status == status, answered.body[:300]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"X-Original-URL": GOLD}, 200, id="an address for rewriters"),
        pytest.param({"X-Rewrite-URL": GOLD}, 200, id="another one"),
        pytest.param({"X-Forwarded-Prefix": "/api/v1/namespaces/{other}"}, 200, id="a prefix for proxies"),
        pytest.param({"X-HTTP-Method-Override": "DELETE"}, 200, id="another method"),
        pytest.param({"X-HTTP-Method": "DELETE"}, 200, id="another method by another name"),
        pytest.param({"X-Method-Override": "DELETE"}, 200, id="and by a third"),
        pytest.param({"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}, 200, id="a user that a front proxy names"),
        pytest.param({"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1"}, 200, id="from here"),
        pytest.param({"Impersonate-User": "system:admin", "Impersonate-Group": "system:masters"}, 403, id="impersonation of another user"),
        pytest.param({"impersonate-user": "system:admin"}, 403, id="in small letters"),
        pytest.param({"Impersonate-Group": "system:masters"}, 400, id="a group alone"),
        pytest.param({"Impersonate-Uid": "1"}, 400, id="a uid alone"),
        pytest.param({"Impersonate-Extra-scopes": "all"}, 400, id="an attribute alone"),
        pytest.param({"Impersonate-User": "system:serviceaccount:{home}:thief"}, 403, id="to be oneself"),
        pytest.param({"Impersonate-User": "system:serviceaccount:{home}:default"}, 403, id="another account of the namespace"),
        pytest.param({"Impersonate-User": ""}, 200, id="impersonation of an empty name"),
    ],
)
async def test_no_header_gives_a_right(thief: Thief, headers: dict[str, str], status: int) -> None:
    """Each request is allowed without the headers, and stays so, unless it asks to be another user."""
    answered = await thief.ask("GET", "/api/v1/namespaces/{home}/configmaps", headers)
    assert not answered.has_gold
    assert answered.status == status, answered.body[:300]
    refused = await thief.ask("GET", GOLD, headers)
    assert not refused.has_gold
    assert refused.status in (400, 403), refused.body[:300]


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        pytest.param("", 403, id="none"),
        pytest.param("Basic YWRtaW46YWRtaW4=", 403, id="a password, which no user has"),
        pytest.param("Bearer", 403, id="a bearer of nothing"),
        pytest.param("Bearer  {token}", 403, id="two blanks before the token"),
        pytest.param("Bearer {token}x", 401, id="a letter too many"),
        pytest.param("Bearer {token},{token}", 401, id="the token twice"),
        pytest.param("Bearer null", 401, id="a word"),
        pytest.param("Bearer e30.e30.", 401, id="an empty token"),
        pytest.param("Bearer " + "a" * 100_000, 401, id="a long one"),
        pytest.param("bearer {token}", 403, id="a scheme in small letters is still the token's: it reads what it may, and no gold"),
    ],
)
async def test_an_invalid_token_is_anonymous_or_refused(thief: Thief, authorization: str, status: int) -> None:
    answered = await thief.ask("GET", GOLD, {"Authorization": authorization.replace("{token}", thief.token)})
    assert (answered.status, answered.has_gold) == (status, False), answered.body[:300]


async def test_a_token_in_the_address_is_none(thief: Thief) -> None:
    for name in ("access_token", "token", "bearer"):
        answered = await thief.ask("GET", f"/api/v1/namespaces/{{home}}/configmaps?{name}={thief.token}", {"Authorization": ""})
        assert answered.status == 403, answered.body[:300]
        assert 'User \\"system:anonymous\\"' in answered.body


@pytest.mark.parametrize(
    "start",
    ["../../secrets/{other}/", "\x00", "/../../secrets/{other}/gold", "x/../../../secrets/{other}/"],
)
async def test_a_continue_token_leads_nowhere_else(thief: Thief, start: str) -> None:
    for version in (-1, 1, 9_999_999_999):
        text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": thief.written(start)})
        made = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        answered = await thief.ask("GET", f"/api/v1/namespaces/{{home}}/configmaps?limit=5&continue={made}")
        assert not answered.has_gold
        assert answered.status in (200, 400, 410, 504), answered.body[:300]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("DELETE", "/api/v1/namespaces/{other}", 403, id="a namespace"),
        pytest.param("DELETE", "/api/v1/namespaces/{home}", 403, id="its own namespace"),
        pytest.param("DELETE", "/api/v1/configmaps", 403, id="the maps of all namespaces"),
        pytest.param("DELETE", "/api/v1/namespaces/{other}/secrets", 403, id="all secrets"),
        pytest.param("PUT", "/api/v1/namespaces/{other}/finalize", 403, id="the finalizers of a namespace"),
        pytest.param("POST", "/api/v1/namespaces/{home}/serviceaccounts/default/token", 403, id="another account's token"),
        pytest.param("POST", "/api/v1/namespaces/{home}/configmaps/x", 405, id="by a method that names have not"),
        pytest.param("TRACE", GOLD, 403, id="by an odd method"),
        pytest.param("get", GOLD, 403, id="by a method in small letters"),
        pytest.param("PROPFIND", GOLD, 403, id="by another's method"),
        pytest.param("HEAD", GOLD, 403, id="by its head alone"),
        pytest.param("OPTIONS", GOLD, 403, id="by what could be done"),
    ],
)
async def test_no_method_gives_a_right(thief: Thief, method: str, path: str, status: int) -> None:
    answered = await thief.ask(method, path)
    assert not answered.has_gold
    assert answered.status == status, answered.body[:300]


async def test_a_body_cannot_move_a_write_elsewhere(thief: Thief) -> None:
    """Neither by its namespace, nor by a namespace that is said twice, nor by its kind."""
    maps = "/api/v1/namespaces/{home}/configmaps"
    elsewhere = config_map("x").replace(b'{"name": "x"}', b'{"name": "x", "namespace": "%s"}' % thief.other.encode())
    assert (await thief.ask("POST", maps, body=elsewhere)).status == 400
    twice = config_map("x").replace(
        b'{"name": "x"}', b'{"name": "x", "namespace": "%s", "namespace": "%s"}' % (thief.home.encode(), thief.other.encode())
    )
    assert (await thief.ask("POST", maps, body=twice)).status == 400
    role = json.dumps(
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "x"}, "roleRef": {}}
    ).encode()
    assert (await thief.ask("POST", maps, body=role)).status == 400
