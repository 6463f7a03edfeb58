"""What an NGINX without Lua answers, with both builds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.ingress_nginx.model.configuration import (
    CATCH_ALL,
    DEFAULT_BACKEND,
    Affinity,
    Backend,
    Condition,
    Endpoint,
    Location,
    PathMatch,
    Rewrite,
    Route,
    Source,
    Target,
)
from examples.ingress_nginx.model.policy import BasicAuth, Cors, ExternalAuth, HeaderChanges, Limits, Policy, Redirect
from examples.ingress_nginx.nginx.binary import find_nginx
from examples.ingress_nginx.nginx.static_server import StaticNginx
from examples.ingress_nginx.tests.nginx_stage import (
    BUILDS,
    EchoBackend,
    Stage,
    echo_backends,
    exact,
    prefix,
    regex,
    server,
    stage,
)


@pytest.fixture(params=BUILDS)
async def running(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    nginx = StaticNginx(await find_nginx(request.param, lua=False), tmp_path / "nginx", resolvers=())
    async with stage(nginx) as found:
        yield found


async def test_paths_hosts_and_missing_endpoints(running: Stage) -> None:
    async with echo_backends(EchoBackend("web"), EchoBackend("exact"), EchoBackend("deep")) as backends:
        await running.start(
            server("shop.test", exact("/foo", "exact"), exact("/slash/", "exact"), prefix("/foo/deep", "deep"), prefix("/foo", "web")),
            server("*.wild.test", prefix("/", "web")),
            server("*.many.test", prefix("/", "web"), one_label=False),
            server("empty.test", prefix("/", "none")),
            backends=backends | {"none": Backend("none")},
        )
        seen = {
            (host, path): (answer.status, answer.seen["backend"] if answer.status == 200 else None)
            for host, path in (
                *(("shop.test", path) for path in ("/foo", "/foo/", "/foo/x", "/foo/deep", "/foo/deep/x", "/foo/deeper", "/fooX", "/")),
                *(("shop.test", path) for path in ("/slash/", "/slash", "/slash/x")),
                *((host, "/") for host in ("a.wild.test", "a.b.wild.test", "wild.test", "a.b.many.test", "empty.test", "other.test")),
            )
            for answer in [await running.get(host, path)]
        }
    assert seen == {
        ("shop.test", "/foo"): (200, "exact"),
        ("shop.test", "/foo/"): (200, "web"),
        ("shop.test", "/foo/x"): (200, "web"),
        ("shop.test", "/foo/deep"): (200, "deep"),
        ("shop.test", "/foo/deep/x"): (200, "deep"),
        ("shop.test", "/foo/deeper"): (200, "web"),
        ("shop.test", "/fooX"): (404, None),
        ("shop.test", "/"): (404, None),
        ("shop.test", "/slash/"): (200, "exact"),
        ("shop.test", "/slash"): (404, None),
        ("shop.test", "/slash/x"): (404, None),
        ("a.wild.test", "/"): (200, "web"),
        ("a.b.wild.test", "/"): (404, None),
        ("wild.test", "/"): (404, None),
        ("a.b.many.test", "/"): (200, "web"),
        ("empty.test", "/"): (503, None),
        ("other.test", "/"): (404, None),
    }


async def test_the_default_backend_answers_for_unknown_hosts_and_paths(running: Stage) -> None:
    async with echo_backends(EchoBackend(DEFAULT_BACKEND), EchoBackend("web")) as backends:
        await running.start(server("shop.test", prefix("/a", "web")), server(CATCH_ALL, prefix("/caught", "web")), backends=backends)
        found = [
            (await running.get(host, path)).seen["backend"]
            for host, path in (("shop.test", "/b"), ("other.test", "/b"), ("other.test", "/caught"))
        ]
    assert found == [DEFAULT_BACKEND, DEFAULT_BACKEND, "web"]


async def test_headers_for_the_backend(running: Stage) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", prefix("/", "web")), backends=backends)
        sent = {"Proxy": "evil", "X-Forwarded-For": "9.9.9.9", "X-Request-ID": "known"}
        headers = (await running.get("shop.test", "/a?b=1", headers=sent)).seen["headers"]
        upgrade = (await running.get("shop.test", headers={"Upgrade": "websocket", "Connection": "upgrade"})).seen["headers"]
    assert "proxy" not in headers
    assert {name: headers[name] for name in headers if name.startswith("x-")} == {
        "x-request-id": "known",
        "x-real-ip": "127.0.0.1",
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-host": "shop.test",
        "x-forwarded-port": str(running.port),
        "x-forwarded-proto": "http",
        "x-forwarded-scheme": "http",
        "x-scheme": "http",
    }
    assert headers["host"] == "shop.test"
    assert (upgrade["upgrade"], upgrade["connection"]) == ("websocket", "upgrade")


@pytest.mark.parametrize(
    ("location", "path", "target"),
    [
        pytest.param(prefix("/a", "web"), "/a/%7Eb?c=%20d", "/a/%7Eb?c=%20d", id="a path without a rewrite stays as it is"),
        pytest.param(prefix("/a", "web", rewrite=Rewrite("/new")), "/a/b?c=d", "/new?c=d", id="a whole path is replaced"),
        pytest.param(prefix("/a", "web", rewrite=Rewrite("/new", prefix=True)), "/a/b?c=d", "/new/b?c=d", id="a prefix is replaced"),
        pytest.param(prefix("/a", "web", rewrite=Rewrite("/new/", prefix=True)), "/a", "/new", id="a prefix without a rest gets no slash"),
        pytest.param(prefix("/a", "web", rewrite=Rewrite("/", prefix=True)), "/a", "/", id="a prefix may become the root"),
        pytest.param(prefix("/a", "web", rewrite=Rewrite("/", prefix=True)), "/a/b", "/b", id="a prefix may vanish"),
        pytest.param(prefix("/a", "web", rewrite=Rewrite("/$host")), "/a", "/$host", id="a dollar sign is literal"),
        pytest.param(regex("/a(/|$)(.*)", "web", rewrite=Rewrite("/$2")), "/A/b/c", "/b/c", id="groups of an expression are replaced"),
        pytest.param(regex("/a(.*)", "web", rewrite=Rewrite("/${host}$1$host")), "/ab", "/$%7Bhost%7Db$host", id="groups only"),
    ],
)
async def test_rewrites(running: Stage, location: Location, path: str, target: str) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", location), backends=backends)
        assert (await running.get("shop.test", path)).seen["target"] == target


@pytest.mark.parametrize(
    ("redirect", "location"),
    [
        pytest.param(Redirect(301, url="https://other.test/x?y=$z"), "https://other.test/x?y=$z", id="a whole URL"),
        pytest.param(Redirect(scheme="https", port=0), "https://shop.test/a/b?c=1", id="another scheme"),
        pytest.param(Redirect(host="o.test", port=8080), "http://o.test:8080/a/b?c=1", id="another host and port"),
        pytest.param(Redirect(path="/n", port=0), "http://shop.test/n?c=1", id="another path"),
        pytest.param(Redirect(path="/n", port=0, replace_prefix=True), "http://shop.test/n/b?c=1", id="another prefix"),
        pytest.param(Redirect(path="/", port=0, replace_prefix=True), "http://shop.test/b?c=1", id="no prefix"),
    ],
)
async def test_redirects(running: Stage, redirect: Redirect, location: str) -> None:
    policy = Policy(redirect=redirect)
    await running.start(server("shop.test", Location("/a", PathMatch.PREFIX, (Route(policy=policy),))))
    answer = await running.get("shop.test", "/a/b?c=1")
    assert (answer.status, answer.header("location")) == (redirect.status, location)


async def test_http_is_redirected_to_https_except_for_acme(running: Stage) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", prefix("/", "web", Policy(https_redirect=308, app_root="/app"))), backends=backends)
        answer = await running.get("shop.test", "/a?b=1")
        acme = await running.get("shop.test", "/.well-known/acme-challenge/token")
    assert (answer.status, answer.header("location"), acme.status) == (308, "https://shop.test/a?b=1", 200)


def condition(source: Source, name: str, value: str, **options: bool) -> Condition:
    return Condition(source, name, value, **options)


async def test_conditions_choose_a_route_and_fall_back_to_a_less_specific_path(running: Stage) -> None:
    names = ("header", "cookie", "query", "regex", "other", "root", "post")
    canary = Location(
        "/a",
        PathMatch.PREFIX,
        (
            Route((Target("header"),), conditions=(condition(Source.HEADER, "X-Canary", "Always"),)),
            Route((Target("cookie"),), conditions=(condition(Source.COOKIE, "can-ary", "on"),)),
            Route((Target("query"),), conditions=(condition(Source.QUERY, "q", "a b"), condition(Source.METHOD, "", "GET"))),
            Route((Target("regex"),), conditions=(condition(Source.HEADER, "X-Canary", "v[0-9]+", regex=True),)),
            Route((Target("post"),), conditions=(condition(Source.METHOD, "", "POST"),)),
        ),
    )
    async with echo_backends(*(EchoBackend(name) for name in names)) as backends:
        await running.start(server("shop.test", canary, prefix("/", "root")), backends=backends)

        async def chosen(target: str = "/a/x", **options: object) -> str:
            answer = await running.get("shop.test", target, **options)
            assert answer.seen["target"] == target
            return str(answer.seen["backend"])

        found = [
            await chosen(headers={"X-Canary": "Always"}),
            await chosen(headers={"X-Canary": "always"}),
            await chosen(headers={"Cookie": "x=1; can-ary=on"}),
            await chosen(headers={"Cookie": "xcan-ary=on"}),
            await chosen("/a?q=a%20b"),
            await chosen("/a?q=a+b"),
            await chosen(headers={"X-Canary": "v12"}),
            await chosen(headers={"X-Canary": "v12x"}),
            await chosen(method="POST", body=b"hello"),
        ]
        assert (await running.get("shop.test", "/a", method="POST", body=b"hello")).seen["body"] == "hello"
    assert found == ["header", "root", "cookie", "root", "query", "query", "regex", "root", "post"]


async def test_weights_share_the_requests(running: Stage) -> None:
    location = Location("/", PathMatch.PREFIX, (Route((Target("a", 3), Target("b", 1), Target("c", 0))),))
    async with echo_backends(*(EchoBackend(name) for name in "abc")) as backends:
        await running.start(server("shop.test", location), backends=backends)
        found = Counter([(await running.get("shop.test")).seen["backend"] for _ in range(200)])
    assert set(found) == {"a", "b"}
    assert 120 < found["a"] < 180


async def test_cors(running: Stage) -> None:
    policy = Policy(cors=Cors(origins=("https://*.shop.test", "http://one.test:8080"), max_age=5))
    async with echo_backends(EchoBackend("web", headers=(("Access-Control-Allow-Origin", "*"),))) as backends:
        await running.start(server("shop.test", prefix("/", "web", policy)), backends=backends)
        good = await running.get("shop.test", headers={"Origin": "https://a.shop.test"})
        evil = await running.get("shop.test", headers={"Origin": "https://a.shop.test.evil.test"})
        preflight = await running.get("shop.test", method="OPTIONS", headers={"Origin": "http://one.test:8080"})
    assert (good.status, good.header("access-control-allow-origin")) == (200, "https://a.shop.test")
    assert good.header("access-control-allow-credentials") == "true"
    assert (evil.status, evil.header("access-control-allow-origin")) == (200, "")
    assert (preflight.status, preflight.header("access-control-max-age")) == (204, "5")


async def test_access_limits_and_basic_auth(running: Stage) -> None:
    users = "me:{PLAIN}secret\n"
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(
            server("deny.test", prefix("/", "web", Policy(deny=("127.0.0.0/8",)))),
            server("allow.test", prefix("/", "web", Policy(allow=("10.0.0.0/8",)))),
            server("auth.test", prefix("/", "web", Policy(basic_auth=BasicAuth("off", users)))),
            server("locked.test", prefix("/", "web", Policy(basic_auth=BasicAuth("x", "")))),
            server("limit.test", prefix("/", "web", Policy(limits=Limits(per_minute=1, burst_multiplier=1)))),
            server("free.test", prefix("/", "web", Policy(limits=Limits(per_minute=1, burst_multiplier=1, allow=("127.0.0.1",))))),
            server("body.test", prefix("/", "web", Policy(body_size=3))),
            backends=backends,
        )
        login = {"Authorization": "Basic bWU6c2VjcmV0"}
        found = {
            "deny": (await running.get("deny.test")).status,
            "allow": (await running.get("allow.test")).status,
            "without": (await running.get("auth.test")).status,
            "login": (await running.get("auth.test", headers=login)).status,
            "locked": (await running.get("locked.test", headers=login)).status,
            "limit": [(await running.get("limit.test")).status for _ in range(3)],
            "free": [(await running.get("free.test")).status for _ in range(3)],
            "body": [(await running.get("body.test", method="POST", body=body)).status for body in (b"123", b"1234")],
        }
    assert found == {
        "deny": 403,
        "allow": 403,
        "without": 401,
        "login": 200,
        "locked": 401,
        "limit": [200, 200, 503],
        "free": [200, 200, 200],
        "body": [200, 413],
    }


async def test_external_authentication(running: Stage) -> None:
    good, bad = EchoBackend("good", headers=(("X-User", "me"), ("Set-Cookie", "s=1"))), EchoBackend("bad", status=401)
    async with echo_backends(EchoBackend("web"), good, bad) as backends:
        let_in = ExternalAuth(f"http://127.0.0.1:{good.port}/check?a=$1", response_headers=("X-User",))
        refused = ExternalAuth(f"http://127.0.0.1:{bad.port}/", signin="https://login.test/start")
        await running.start(
            server("good.test", prefix("/", "web", Policy(external_auth=let_in))),
            server("bad.test", prefix("/", "web", Policy(external_auth=refused))),
            server("plain.test", prefix("/", "web", Policy(external_auth=ExternalAuth(refused.url)))),
            backends=backends,
        )
        first = await running.get("good.test", "/x")
        second = await running.get("bad.test", "/x?y=1")
        third = await running.get("plain.test")
    assert (first.seen["headers"]["x-user"], first.header("set-cookie")) == ("me", "s=1")
    assert (second.status, second.header("location")) == (302, "https://login.test/start?rd=http://bad.test/x?y=1")
    assert third.status == 401


async def test_error_pages_come_from_the_error_backend(running: Stage) -> None:
    async with echo_backends(EchoBackend("web", status=404), EchoBackend("pages", status=410)) as backends:
        policy = Policy(intercept=(404, 503), error_backend="pages")
        await running.start(server("shop.test", prefix("/a", "web", policy)), backends=backends)
        answer = await running.get("shop.test", "/a/b")
    assert (answer.status, answer.seen["target"], answer.seen["headers"]["x-code"]) == (410, "/", "404")
    assert answer.seen["headers"]["x-original-uri"] == "/a/b"


async def test_header_changes(running: Stage) -> None:
    changes = HeaderChanges(set=(("X-Set", "a$b"),), add=(("X-Add", "new"),), remove=("X-Gone",))
    policy = Policy(request_headers=changes, response_headers=changes, upstream_vhost="inner.test", forwarded_prefix="/p", hsts="max-age=1")
    backend = EchoBackend("web", headers=(("X-Set", "old"), ("X-Add", "old"), ("X-Gone", "old")))
    async with echo_backends(backend) as backends:
        await running.start(server("shop.test", prefix("/", "web", policy)), backends=backends)
        answer = await running.get("shop.test", headers={"X-Set": "1", "X-Add": "2", "X-Gone": "3"})
    sent = answer.seen["headers"]
    assert (sent["x-set"], sent["x-add"], sent["host"], sent["x-forwarded-prefix"]) == ("a$b", "2,new", "inner.test", "/p")
    assert "x-gone" not in sent
    assert (answer.header("x-set"), answer.headers["x-add"], answer.header("x-gone")) == ("a$b", ("old", "new"), "")
    assert answer.header("strict-transport-security") == ""


async def test_a_cookie_leads_to_one_endpoint(running: Stage) -> None:
    async with echo_backends(*(EchoBackend(name) for name in "abcd")) as backends:
        endpoints = tuple(Endpoint("127.0.0.1", backend.endpoints[0].port) for backend in backends.values())
        sticky = Backend("sticky", endpoints, affinity=Affinity("my-cookie", max_age=60, same_site="Lax"))
        hashed = Backend("hashed", endpoints, hash_by=("arg_user", "=$x"))
        await running.start(
            server("shop.test", prefix("/", "sticky")),
            server("hash.test", prefix("/", "hashed")),
            backends={"sticky": sticky, "hashed": hashed},
        )
        first = await running.get("shop.test")
        cookie = first.header("set-cookie").split(";")[0]
        later = [await running.get("shop.test", headers={"Cookie": cookie}) for _ in range(5)]
        same = {(await running.get("hash.test", "/?user=me")).seen["backend"] for _ in range(5)}
    assert first.header("set-cookie").endswith("; Path=/; Max-Age=60; SameSite=Lax; HttpOnly")
    assert {answer.seen["backend"] for answer in later} == {first.seen["backend"]}
    assert {answer.header("set-cookie") for answer in later} == {""}
    assert len(same) == 1


async def test_a_host_that_nginx_refuses_answers_503_and_the_others_are_served(running: Stage) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("good.test", prefix("/", "web")), backends=backends)
        await running.change(server("bad.test", regex("/a(", "web")), server("new.test", prefix("/", "web")))
        found = [(await running.get(host)).status for host in ("good.test", "bad.test", "new.test")]
        await running.change(server("bad.test", regex("/a", "web")))
        assert (await running.get("bad.test", "/a")).status == 200
    assert found == [200, 503, 200]


async def test_changes_of_endpoints_reach_nginx_without_lost_requests(running: Stage) -> None:
    async with echo_backends(EchoBackend("a"), EchoBackend("b")) as backends:
        await running.start(server("shop.test", prefix("/", "web")), backends={"web": Backend("web", backends["a"].endpoints)})
        done = asyncio.Event()

        async def load() -> set[int]:
            found: set[int] = set()
            while not done.is_set():
                found.add((await running.get("shop.test")).status)
            return found

        async with asyncio.TaskGroup() as group:
            loads = [group.create_task(load()) for _ in range(4)]
            for name in "bab":
                await running.change(backends={"web": Backend("web", backends[name].endpoints)})
                assert {(await running.get("shop.test")).seen["backend"] for _ in range(10)} == {name}
            done.set()
    assert [task.result() for task in loads] == [{200}] * 4


async def test_regular_expressions_and_prefixes_keep_their_order(running: Stage) -> None:
    async with echo_backends(*(EchoBackend(name) for name in ("long", "expression", "root"))) as backends:
        await running.start(
            server("shop.test", prefix("/api/long/path", "long"), regex("/api/[a-z]+", "expression"), prefix("/", "root")),
            backends=backends,
        )
        found = [
            (await running.get("shop.test", path)).seen["backend"]
            for path in ("/api/long/path/x", "/api/long/pathx", "/API/x", "/api/1", "/x/api/x")
        ]
    assert found == ["long", "expression", "expression", "root", "root"]


async def test_names_that_lead_to_a_host(running: Stage) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(
            server("shop.test", prefix("/", "web"), aliases=("alias.test",), redirect_from=("www.shop.test",)), backends=backends
        )
        alias, redirected = await running.get("alias.test"), await running.get("www.shop.test", "/a?b=1")
    assert alias.seen["headers"]["host"] == "alias.test"
    assert (redirected.status, redirected.header("location")) == (308, "http://shop.test/a?b=1")
