"""Ingresses that compete, and parts of an Ingress that fail: what clients of real NGINX see, with Lua and without."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509

from examples.ingress_nginx.model.configuration import DEFAULT_BACKEND
from examples.ingress_nginx.model.policy import DEFAULT_POLICY
from examples.ingress_nginx.nginx.binary import find_nginx
from examples.ingress_nginx.nginx.lua_server import LuaNginx
from examples.ingress_nginx.nginx.static_server import StaticNginx
from examples.ingress_nginx.tests.nginx_stage import EchoBackend, echo_backends, prefix, server, stage
from examples.ingress_nginx.tests.objects import AUTHORITY, ingress, tls_secret
from examples.ingress_nginx.tests.stage import ControllerStage
from kubeloop.api.core.v1 import Secret
from kubeloop.api.networking.v1 import Ingress

CANARY: dict[str, Any] = {"canary": "true", "canary_weight": "50"}


async def test_the_older_of_two_ingresses_has_an_alias_and_the_other_gets_it_when_it_is_free(at: ControllerStage) -> None:
    await at.web("one")
    await at.web("two")
    await at.put(ingress("one", "one.test / one:80", server_alias="both.test"))
    await at.answers("one", "both.test")
    await at.put(ingress("two", "two.test / two:80", server_alias="both.test"))
    await at.warning("two", "host 'one.test' of Ingress shop/one, which is older, has the name 'both.test'")
    assert await at.backend_of("both.test") == "one"
    await at.put(ingress("two", "two.test / two:80", server_alias="both.test", proxy_body_size="2m"))
    await at.handled()
    assert await at.backend_of("both.test") == "one"
    await at.delete(Ingress, "one")
    await at.answers("two", "both.test")
    await at.delete(Ingress, "two")
    await at.answers("404", "both.test")


async def test_a_wildcard_that_authenticates_clients_leaves_exact_hosts_alone(at: ControllerStage) -> None:
    await at.web("shop")
    await at.web("wild")
    authority = Secret.from_dict({"metadata": {"name": "authority", "namespace": "shop"}})
    authority.data = {"ca.crt": AUTHORITY.certificate}
    await at.put(
        authority,
        tls_secret("cert", "shop.wide.test"),
        ingress("shop", "shop.wide.test / shop:80", tls=["cert shop.wide.test"]),
        ingress("wild", "*.wide.test / wild:80", auth_tls_secret="authority"),
    )
    await at.answers("shop", "shop.wide.test", https=True)
    await at.answers("403", "other.wide.test")
    assert await at.backend_of("shop.wide.test", https=True) == "shop"


async def test_rules_without_a_host_cannot_authenticate_clients_and_are_not_served(at: ControllerStage) -> None:
    await at.web()
    authority = Secret.from_dict({"metadata": {"name": "authority", "namespace": "shop"}})
    authority.data = {"ca.crt": AUTHORITY.certificate}
    await at.put(authority, ingress("web", "* / web:80", auth_tls_secret="authority"))
    await at.warning("web", "clients of rules without a host cannot be authenticated")
    await at.answers("503", "any.test")


async def test_clients_keep_their_endpoint_beside_a_canary(at: ControllerStage) -> None:
    await at.web("main")
    await at.web("new")
    await at.put(ingress("main", "shop.test / main:80", affinity="cookie"), ingress("canary", "shop.test / new:80", **CANARY))
    await at.until(lambda: _both(at))
    chosen = set()
    for _ in range(12):
        first = await at.get("shop.test")
        cookie = first.header("set-cookie").partition(";")[0]
        later = {await at.backend_of("shop.test", headers={"Cookie": cookie}) for _ in range(4)}
        chosen |= later
        assert later == {first.seen["backend"]}
    assert chosen <= {"main", "new"}


async def _both(at: ControllerStage) -> bool:
    return {await at.backend_of("shop.test") for _ in range(40)} == {"main", "new"}


async def test_a_canary_without_endpoints_gets_no_requests_until_it_has_some(at: ControllerStage) -> None:
    await at.web("main")
    new = await at.backend("new")
    await at.put(ingress("main", "shop.test / main:80"), ingress("canary", "shop.test / new:80", **CANARY))
    await at.answers("main", "shop.test")
    await at.handled()
    assert Counter([await at.backend_of("shop.test") for _ in range(30)]) == {"main": 30}
    await at.expose("new", new)
    await at.until(lambda: _both(at))
    await at.endpoints("new")
    await at.until(lambda: _only_main(at))


async def _only_main(at: ControllerStage) -> bool:
    return {await at.backend_of("shop.test") for _ in range(40)} == {"main"}


async def test_a_canary_need_not_repeat_that_a_path_is_an_expression(at: ControllerStage) -> None:
    await at.web("main")
    await at.web("new")
    main = ingress("main", "shop.test ~/api/(.*) main:80", use_regex="true")
    await at.put(main, ingress("canary", "shop.test ~/api/(.*) new:80", canary="true", canary_weight="100"))
    await at.answers("new", "shop.test", "/api/x")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        pytest.param("/a{99999999999999}", "has a brace that is no count", id="a count that no program can hold"),
        pytest.param("/(?a:x)", "has a group that begins with (?", id="a group that PCRE does not know"),
        pytest.param("/" + "(" * 300 + ")" * 300, "is not a regular expression", id="too long"),
        pytest.param("/(a+)+", "repeats a group that has a repetition", id="an expression that takes unlimited time"),
    ],
)
async def test_a_path_that_is_no_expression_is_a_problem_of_its_ingress_alone(at: ControllerStage, path: str, problem: str) -> None:
    await at.web()
    await at.put(
        ingress("web", "shop.test / web:80", "shop.test ~/v[0-9]{2}/x web:80", use_regex="true"),
        ingress("wrong", f"shop.test ~{path} web:80", f"wrong.test ~{path} web:80", use_regex="true"),
    )
    await at.warning("wrong", problem)
    await at.answers("web", "shop.test", "/v10/x")
    assert [await at.backend_of("shop.test"), await at.backend_of("wrong.test")] == ["web", "404"]
    await at.stop()
    await at.start()
    await at.answers("web", "shop.test")


async def test_a_path_whose_comparison_fails_answers_500_and_not_another_path(at: ControllerStage) -> None:
    await at.web()
    protected = ingress("protected", "shop.test ~/admin/(.*)/(.*)/(.*)/edit web:80", use_regex="true", allowlist_source_range="10.0.0.0/8")
    await at.put(ingress("open", "shop.test / web:80"), protected)
    await at.answers("403", "shop.test", "/admin/x/y/z/edit")
    seen = {await at.backend_of("shop.test", f"/admin/x/y/z/edit{'/a' * count}") for count in (10, 100, 400, 900)}
    assert seen <= {"403", "500"}


async def test_a_secret_with_garbage_keeps_its_last_good_certificate(at: ControllerStage) -> None:
    await at.web()
    good = tls_secret("cert", "shop.test")
    await at.put(good, ingress("web", "shop.test / web:80", tls=["cert shop.test"]))
    await at.answers("web", "shop.test", https=True)
    broken = tls_secret("cert", "shop.test")
    broken.data["tls.crt"] = b"garbage"
    await at.put(broken)
    await at.warning("web", "its last good certificate is served")
    expected = x509.load_pem_x509_certificate(good.data["tls.crt"]).serial_number
    assert (await at.certificate("shop.test")).serial_number == expected
    assert (await at.get("shop.test")).status == 308


async def test_app_root_redirects_the_root_of_a_host_without_a_path_for_it(at: ControllerStage) -> None:
    await at.web()
    await at.put(ingress("web", "shop.test /x web:80", app_root="/x/start"))
    await at.answers("302", "shop.test")
    answer = await at.get("shop.test")
    assert answer.header("location").endswith("/x/start")
    assert [await at.backend_of("shop.test", path) for path in ("/x", "/y")] == ["web", "404"]


@pytest.mark.parametrize(
    ("sent", "target"),
    [
        pytest.param("/a/x%26y=1", "/n/x&y=1?q=x%26y%3D1", id="characters of a query"),
        pytest.param("/a/%C3%BC", "/n/%C3%BC?q=%C3%BC", id="a letter that is not ASCII"),
        pytest.param("/a/a%25b", "/n/a%25b?q=a%25b", id="a percent sign"),
    ],
)
@pytest.mark.nginx_lua
async def test_groups_in_the_query_of_a_rewrite_are_escaped(at: ControllerStage, sent: str, target: str) -> None:
    await at.web()
    await at.put(ingress("web", "shop.test ~/a/(.*) web:80", rewrite_target="/n/$1?q=$1"))
    await at.answers("web", "shop.test", "/a/x")
    seen = urlsplit((await at.get("shop.test", sent)).seen["target"])
    wanted = urlsplit(target)
    assert (seen.path, parse_qs(seen.query)) == (wanted.path, parse_qs(wanted.query))


@pytest.mark.parametrize(
    ("expression", "replacement", "sent", "target"),
    [
        pytest.param("/foo/(.*)", "$1", "/foo/x", "/x", id="a group without a slash"),
        pytest.param("/foo/(.*)", "$1", "/foo/", "/", id="an empty group"),
        pytest.param("/foo(/.*)", "$1", "/foo/x", "/x", id="a group with a slash"),
        pytest.param("/foo(/|$)(.*)", "/$2", "/foo", "/", id="the usual form"),
    ],
)
async def test_a_rewritten_path_begins_with_a_slash(at: ControllerStage, expression: str, replacement: str, sent: str, target: str) -> None:
    await at.web()
    await at.put(ingress("web", f"shop.test ~{expression} web:80", rewrite_target=replacement))
    await at.answers("web", "shop.test", sent)
    assert (await at.get("shop.test", sent)).seen["target"] == target


async def test_a_sign_in_page_gets_the_whole_first_url_in_one_parameter(at: ControllerStage) -> None:
    await at.web()
    denying = await at.backend("denying", status=401)
    url = f"http://{at.address('denying')}:{denying.port}/"
    signin = "https://login.test/?rd=$scheme://$http_host$escaped_request_uri"
    await at.put(ingress("web", "shop.test / web:80", auth_url=url, auth_signin=signin))
    await at.answers("302", "shop.test")
    location = (await at.get("shop.test", "/a?x=1&rd=https://evil.test/&y=2")).header("location")
    found: dict[str, Any] = parse_qs(urlsplit(location).query)
    assert found == {"rd": ["http://shop.test/a?x=1&rd=https://evil.test/&y=2"]}


@pytest.mark.parametrize("lua", [pytest.param(True, id="Lua", marks=pytest.mark.nginx_lua), pytest.param(False, id="reloads")])
@pytest.mark.parametrize(
    ("trusted", "status"),
    [
        pytest.param(("127.0.0.0/8",), 403, id="a trusted proxy names the client"),
        pytest.param(("192.0.2.0/24",), 200, id="another proxy is the client itself"),
    ],
)
async def test_the_address_of_a_client_behind_a_proxy(lua: bool, trusted: tuple[str, ...], status: int, tmp_path: Path) -> None:
    binary = await find_nginx(lua=lua)
    nginx = LuaNginx(binary, tmp_path / "nginx") if lua else StaticNginx(binary, tmp_path / "nginx", resolvers=())
    settings = {"use_forwarded_headers": True, "trusted_proxies": trusted}
    async with echo_backends(EchoBackend("web")) as backends, stage(nginx, **settings) as running:
        policy = replace(DEFAULT_POLICY, deny=("203.0.113.0/24",))
        await running.start(server("shop.test", prefix("/", "web", policy)), backends=backends)
        answer = await running.get("shop.test", headers={"X-Forwarded-For": "203.0.113.7"})
        assert answer.status == status
        if status == 200:
            assert answer.seen["headers"]["x-forwarded-for"] == "203.0.113.7, 127.0.0.1"
            assert answer.seen["headers"]["x-real-ip"] == "127.0.0.1"


@pytest.mark.parametrize("lua", [pytest.param(True, id="Lua", marks=pytest.mark.nginx_lua), pytest.param(False, id="reloads")])
async def test_the_default_backend_gets_no_larger_bodies_than_others(lua: bool, tmp_path: Path) -> None:
    binary = await find_nginx(lua=lua)
    nginx = LuaNginx(binary, tmp_path / "nginx") if lua else StaticNginx(binary, tmp_path / "nginx", resolvers=())
    async with echo_backends(EchoBackend(DEFAULT_BACKEND)) as backends, stage(nginx) as running:
        await running.start(server("shop.test", prefix("/x", DEFAULT_BACKEND)), backends=backends)
        limit = DEFAULT_POLICY.body_size
        sizes = {size: (await running.get("shop.test", "/", method="POST", body=b"x" * size)).status for size in (100, limit + 1)}
        assert sizes == {100: 200, limit + 1: 413}
