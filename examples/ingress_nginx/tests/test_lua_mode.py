"""What an NGINX with Lua answers, and that changes reach it without a reload. Needs Debian's nginx with its Lua modules."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import stat
from collections import Counter
from dataclasses import replace

import pytest

from examples.ingress_nginx.model.configuration import (
    CATCH_ALL,
    DEFAULT_BACKEND,
    Affinity,
    Backend,
    Balance,
    Certificate,
    Condition,
    Configuration,
    Endpoint,
    Listener,
    Location,
    PathMatch,
    Rewrite,
    Route,
    Source,
    Target,
)
from examples.ingress_nginx.model.policy import BasicAuth, Buffering, HeaderChanges, Policy, Redirect, Retries
from examples.ingress_nginx.nginx import dynamic
from examples.ingress_nginx.nginx.default_certificate import self_signed_certificate
from examples.ingress_nginx.tests.lua_stage import LuaStage
from examples.ingress_nginx.tests.nginx_stage import EchoBackend, Stage, echo_backends, exact, free_port, prefix, regex, server

pytestmark = pytest.mark.nginx_lua


def certificate(name: str) -> Certificate:
    return replace(self_signed_certificate(), name=name)


def der(pem: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.chain)


async def backends_of(running: LuaStage, host: str, path: str = "/", *, count: int = 40, **options: object) -> Counter[str]:
    return Counter([(await running.get(host, path, **options)).seen["backend"] for _ in range(count)])


async def test_hosts_and_paths_find_their_backends(running: LuaStage) -> None:
    names = ("web", "exact", "deep", "wild", "many", "expression", "plain")
    async with echo_backends(*map(EchoBackend, names)) as backends:
        await running.start(
            server("shop.test", exact("/foo", "exact"), exact("/end/", "exact"), prefix("/foo/deep/", "deep"), prefix("/foo", "web")),
            server("*.wild.test", prefix("/", "wild")),
            server("*.many.test", prefix("/", "many"), one_label=False),
            server("*.more.many.test", prefix("/", "deep"), one_label=False),
            server("mixed.test", regex("/v[0-9]+/(.*)", "expression"), prefix("/v1/x", "plain"), regex("(?-i)/Only", "exact")),
            server("empty.test", prefix("/", "none")),
            server("alias.test", prefix("/", "web"), aliases=("other.alias.test",), redirect_from=("www.alias.test",)),
            backends=backends | {"none": Backend("none")},
        )
        requests = {
            ("shop.test", "/foo"): "exact",
            ("shop.test", "/foo/"): "web",
            ("shop.test", "/foo/x?a=/"): "web",
            ("shop.test", "/foo/deep"): "deep",
            ("shop.test", "/foo/deep/x/y"): "deep",
            ("shop.test", "/foo/deeper"): "web",
            ("shop.test", "/fooX"): 404,
            ("shop.test", "/"): 404,
            ("shop.test", "/end/"): "exact",
            ("shop.test", "/end"): 404,
            ("shop.test", "/x/../foo/b"): "web",
            ("SHOP.test:80", "/foo"): "exact",
            ("a.wild.test", "/"): "wild",
            ("a.b.wild.test", "/"): 404,
            ("wild.test", "/"): 404,
            ("a.b.many.test", "/"): "many",
            ("a.more.many.test", "/"): "deep",
            ("mixed.test", "/V1/x"): "expression",
            ("mixed.test", "/v1/x/y"): "expression",
            ("mixed.test", "/va/x"): 404,
            ("mixed.test", "/only"): 404,
            ("mixed.test", "/Only"): "exact",
            ("empty.test", "/"): 503,
            ("other.alias.test", "/"): "web",
            ("www.alias.test", "/a?b=1"): 308,
            ("unknown.test", "/"): 404,
        }
        found = {}
        for host, path in requests:
            answer = await running.get(host, path)
            found[host, path] = answer.seen["backend"] if answer.status == 200 else answer.status
        moved = await running.get("www.alias.test", "/a?b=1")
    assert found == requests
    assert moved.header("location") == "http://alias.test/a?b=1"


async def test_the_default_backend_and_a_catch_all_server_answer_for_the_rest(running: LuaStage) -> None:
    async with echo_backends(EchoBackend(DEFAULT_BACKEND), EchoBackend("all")) as backends:
        await running.start(server("shop.test", prefix("/a", "none")), backends=backends)
        assert (await running.get("other.test")).seen["backend"] == DEFAULT_BACKEND
        assert (await running.get("shop.test", "/b")).seen["backend"] == DEFAULT_BACKEND
        assert (await running.get("shop.test", "/a")).status == 503
        assert not (await running.change(server(CATCH_ALL, prefix("/", "all")))).reloaded
        assert (await running.get("other.test")).seen["backend"] == "all"
        assert (await running.get("shop.test", "/b")).seen["backend"] == DEFAULT_BACKEND


async def test_conditions_choose_a_route_and_fall_back_to_a_less_specific_path(running: LuaStage) -> None:
    def route(backend: str, *conditions: Condition) -> Route:
        return Route((Target(backend),), conditions=conditions)

    names = ("header", "pattern", "cookie", "query", "method", "negated", "plain")
    async with echo_backends(*map(EchoBackend, names)) as backends:
        conditional = (
            route("header", Condition(Source.HEADER, "X-Canary", "always")),
            route("pattern", Condition(Source.HEADER, "X-Canary", "v[0-9]", regex=True)),
            route("cookie", Condition(Source.COOKIE, "my-cookie", "always")),
            route("query", Condition(Source.QUERY, "a b", "ä c")),
            route("method", Condition(Source.METHOD, "", "PUT")),
            route("negated", Condition(Source.HEADER, "X-Other", "x", negate=True), Condition(Source.HEADER, "X-Other", ".+", regex=True)),
        )
        locations = (Location("/a/b", PathMatch.PREFIX, conditional), prefix("/a", "plain"))
        await running.start(server("shop.test", *locations), backends=backends)
        cases: list[tuple[str, dict[str, object], str | int]] = [
            ("/a/b", {"headers": {"x-canary": "always"}}, "header"),
            ("/a/b", {"headers": {"X-Canary": "v1"}}, "pattern"),
            ("/a/b", {"headers": {"X-Canary": "v11"}}, "plain"),
            ("/a/b", {"headers": {"Cookie": "x=y; my-cookie=always; z=1"}}, "cookie"),
            ("/a/b", {"headers": {"Cookie": "xmy-cookie=always"}}, "plain"),
            ("/a/b?x&a%20b=%C3%A4+c", {}, "query"),
            ("/a/b?x&a%20b=%C3%A4", {}, "plain"),
            ("/a/b", {"method": "PUT"}, "method"),
            ("/a/b", {"headers": {"X-Other": "y"}}, "negated"),
            ("/a/b", {"headers": {"X-Other": "x"}}, "plain"),
            ("/a/b/c", {}, "plain"),
        ]
        found = [(await running.get("shop.test", path, **options)).seen["backend"] for path, options, _ in cases]
        assert found == [expected for _, _, expected in cases]
        await running.change(server("shop.test", locations[0]))
        assert (await running.get("shop.test", "/a/b")).status == 404


async def test_weights_share_the_requests(running: LuaStage) -> None:
    async with echo_backends(EchoBackend("many"), EchoBackend("few"), EchoBackend("none")) as backends:
        targets = (Target("many", 80), Target("few", 20), Target("none", 0))
        location = Location("/", PathMatch.PREFIX, (Route(targets),))
        await running.start(server("shop.test", location), backends=backends)
        counts = await backends_of(running, "shop.test", count=300)
        await running.change(server("shop.test", replace(location, routes=(Route((Target("none", 0),)),))))
        assert (await running.get("shop.test")).status == 503
    assert counts.keys() == {"many", "few"}
    assert counts["many"] > counts["few"] > 0


@pytest.mark.parametrize(
    ("location", "target", "expected"),
    [
        pytest.param(prefix("/a", "web"), "/a/%62%20c?d=1", "/a/%62%20c?d=1", id="a path without a rewrite stays as it is"),
        pytest.param(exact("/a", "web", rewrite=Rewrite("/b c")), "/a?d=1", "/b%20c?d=1", id="a whole path is replaced"),
        pytest.param(prefix("/a", "web", rewrite=Rewrite("/b", prefix=True)), "/a/c%20d?e", "/b/c%20d?e", id="a prefix is replaced"),
        pytest.param(prefix("/a", "web", rewrite=Rewrite("/b/", prefix=True)), "/a", "/b", id="a prefix without a rest gets no slash"),
        pytest.param(prefix("/a", "web", rewrite=Rewrite("/", prefix=True)), "/a", "/", id="a prefix may become the root"),
        pytest.param(prefix("/", "web", rewrite=Rewrite("/b", prefix=True)), "/c", "/b/c", id="the root may get a prefix"),
        pytest.param(regex("/a(/|$)(.*)", "web", rewrite=Rewrite("/n/$2")), "/A/x%3Fy/z?q=1", "/n/x%3Fy/z?q=1", id="groups are replaced"),
        pytest.param(regex("/a(.*)?", "web", rewrite=Rewrite("$1")), "/a", "/", id="an empty path becomes the root"),
        pytest.param(regex("/a/(.*)", "web", rewrite=Rewrite("/b?x=$1")), "/a/1?q=2", "/b?x=1&q=2", id="a replacement may have a query"),
        pytest.param(exact("/a", "web", rewrite=Rewrite("/$1")), "/a", "/$1", id="a dollar sign is literal without groups"),
    ],
)
async def test_rewrites(running: LuaStage, location: Location, target: str, expected: str) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", location), backends=backends)
        assert (await running.get("shop.test", target)).seen["target"] == expected


async def test_each_location_has_its_policy(running: LuaStage) -> None:
    async with echo_backends(EchoBackend("web"), EchoBackend("other")) as backends:
        special = Policy(response_headers=HeaderChanges(set=(("X-Special", "1"),)))
        moved = Policy(redirect=Redirect(302, path="/n", replace_prefix=True))
        per_target = Location("/target", PathMatch.PREFIX, (Route((Target("web", 1, special),), Policy(status=503)),))
        await running.start(
            server("shop.test", prefix("/special", "web", special), prefix("/moved", "web", moved), prefix("/", "web"), per_target),
            server("large.test", prefix("/", "web", Policy(body_size=0)), prefix("/small", "web", Policy(body_size=10))),
            server("auth.test", prefix("/", "web", Policy(basic_auth=BasicAuth("r", "me:{PLAIN}secret\n")))),
            backends=backends,
        )
        headers = [(await running.get("shop.test", path)).header("x-special") for path in ("/", "/special", "/target")]
        location = (await running.get("shop.test", "/moved/%41?b=1")).header("location")
        large = b"x" * (1 << 20) + b"y"
        statuses = [
            (await running.get(host, path, method="POST", body=body)).status
            for host, path, body in (
                *(("large.test", "/", large), ("shop.test", "/", large), ("shop.test", "/special", large)),
                *(("large.test", "/small", b"x" * 10), ("large.test", "/small", b"x" * 11)),
            )
        ]
        refused = [(await running.get("auth.test", headers=sent)).status for sent in ({}, {"Authorization": "Basic bWU6c2VjcmV0"})]
    assert headers == ["", "1", "1"]
    assert location == "http://shop.test/n/%41?b=1"
    assert statuses == [200, 413, 413, 200, 413]
    assert refused == [401, 200]


async def test_a_body_without_a_length_is_limited_by_the_policy(running: LuaStage) -> None:
    policies = {"/": Policy(body_size=10), "/large": Policy(body_size=100, buffering=Buffering(response=True))}
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", *(prefix(path, "web", policy) for path, policy in policies.items())), backends=backends)
        found = []
        for path, size in (("/", 10), ("/", 11), ("/large", 100), ("/large", 101)):
            body = f"{size:x}\r\n{'x' * size}\r\n0\r\n\r\n".encode()
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(f"POST {path} HTTP/1.1\r\nHost: shop.test\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + body)
            found.append(int((await reader.readline()).split()[1]))
            writer.close()
    assert found == [200, 413, 200, 413]


async def test_each_request_gets_an_identifier_unless_the_client_has_sent_one(running: LuaStage) -> None:
    found: list[str] = []
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", prefix("/", "web")), backends=backends)
        for number in range(2):
            # A new policy is a reload, and new workers begin with other numbers.
            assert (await running.change(server(f"{number}.test", prefix("/", "web", Policy(body_size=number + 1))))).reloaded
            found += [(await running.get("shop.test")).seen["headers"]["x-request-id"] for _ in range(200)]
        sent = [(await running.get("shop.test", headers={"X-Request-ID": text})).seen["headers"]["x-request-id"] for text in ("a", "a b")]
    assert len(set(found)) == 400
    assert all(re.fullmatch("[0-9a-f]{32}", identifier) for identifier in (*found, sent[1]))
    assert sent[0] == "a"


async def test_endpoints_hosts_and_paths_change_without_a_reload(running: LuaStage) -> None:
    async with echo_backends(EchoBackend("one"), EchoBackend("two")) as backends:
        web = replace(backends["one"], name="web")
        await running.start(server("shop.test", prefix("/", "web")), backends={"web": web})
        workers = running.workers()
        for number in range(20):
            # Both workers have decoded the documents before, and use the new ones for the next request.
            name = ("two", "one")[number % 2]
            applied = await running.change(backends={"web": replace(web, endpoints=backends[name].endpoints)})
            assert not applied.reloaded
            assert [(await running.get("shop.test")).seen["backend"] for _ in range(4)] == [name] * 4
        assert not (await running.change(backends={"web": replace(web, endpoints=())})).reloaded
        assert (await running.get("shop.test")).status == 503
        assert not (await running.change(server("new.test", prefix("/new", "web")), backends={"web": web})).reloaded
        assert (await running.get("new.test", "/new")).status == 200
        assert not (await running.change(removed=[((), "new.test")])).reloaded
        assert (await running.get("new.test", "/new")).status == 404
        assert running.workers() == workers


async def test_certificates_rotate_without_a_reload(running: LuaStage) -> None:
    first, second, default = certificate("shop/tls"), certificate("shop/tls"), certificate("ops/default")
    fallback = self_signed_certificate()
    running.nginx.renderer._fallback = fallback
    running.configuration.certificates = {first.name: first}
    running.configuration.settings = replace(running.configuration.settings, default_certificate=default.name)
    await running.start(server("shop.test", certificate="shop/tls"), server("*.wild.test", certificate="shop/tls"))
    workers = running.workers()

    async def served() -> list[bytes]:
        return [await running.certificate_for(name) for name in ("shop.test", "SHOP.test", "a.wild.test", "other.test")]

    assert await served() == [der(first)] * 3 + [der(fallback)]
    await running.change_certificates(second, default)
    assert await served() == [der(second)] * 3 + [der(default)]
    await running.change_certificates()
    assert await served() == [der(fallback)] * 4
    assert running.workers() == workers


async def test_a_reload_has_a_reason_and_keeps_the_documents(running: LuaStage) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", prefix("/", "web")), backends=backends)
        workers = running.workers()
        new = Policy(response_headers=HeaderChanges(set=(("X-New", "1"),)))
        applied = await running.change(server("new.test", prefix("/", "web", new)))
        assert (applied.reloaded, applied.reason) == (True, "1 new policy")
        assert not set(running.workers()) & set(workers)
        assert (await running.get("shop.test")).status == 200
        assert (await running.get("new.test")).header("x-new") == "1"
        # Another host with a known policy, and the end of a policy's use.
        assert not (await running.change(server("more.test", prefix("/", "web", new)))).reloaded
        assert not (await running.change(removed=[((), "new.test"), ((), "more.test")])).reloaded


async def test_listeners_have_their_own_hosts(running: LuaStage) -> None:
    extra = Listener("127.0.0.1", free_port())
    async with echo_backends(EchoBackend("web"), EchoBackend("extra")) as backends:
        await running.start(server("shop.test", prefix("/", "web")), backends=backends)
        http = running.configuration.settings.http
        applied = await running.change(server("shop.test", prefix("/x", "extra"), listeners=(extra,)))
        assert applied.reason == "listeners or the authentication of clients changed"
        more = server("both.test", prefix("/", "extra"), listeners=(http, extra))
        await running.change(more)
        first = Stage(running.nginx, running.configuration)
        second_settings = replace(running.configuration.settings, http=extra)
        second = Stage(running.nginx, Configuration(settings=second_settings))
        found = [
            (await at.get(host, path)).status
            for at in (first, second)
            for host, path in (("shop.test", "/"), ("shop.test", "/x"), ("both.test", "/"))
        ]
    assert found == [200, 200, 200, 404, 200, 200]


async def test_hashes_and_cookies_lead_to_one_endpoint(running: LuaStage) -> None:
    names = [f"e{number}" for number in range(6)]
    async with echo_backends(*map(EchoBackend, names)) as backends:
        endpoints = tuple(backends[name].endpoints[0] for name in names)
        affinity = Affinity(cookie="Way-To", max_age=60, same_site="Lax")
        await running.start(
            *(server(f"{name}.test", prefix("/", name)) for name in ("hash", "sticky", "turn", "least")),
            backends={
                "hash": Backend("hash", endpoints, hash_by=("arg_key", "=x")),
                "sticky": Backend("sticky", endpoints, affinity=affinity),
                "turn": Backend("turn", endpoints),
                "least": Backend("least", endpoints, balance=Balance.LEAST_CONNECTIONS),
            },
        )
        by_key = {key: await backends_of(running, "hash.test", f"/?key={key}", count=4) for key in range(40)}
        assert all(len(found) == 1 for found in by_key.values())
        chosen = {key: next(iter(found)) for key, found in by_key.items()}
        assert len(set(chosen.values())) >= 4
        await running.change(backends={"hash": Backend("hash", endpoints[1:], hash_by=("arg_key", "=x"))})
        again = {key: next(iter(await backends_of(running, "hash.test", f"/?key={key}", count=1))) for key in chosen}
        assert all(again[key] == name for key, name in chosen.items() if name != "e0")

        first = await running.get("sticky.test")
        cookie, *attributes = first.header("set-cookie").split("; ")
        assert attributes == ["Path=/", "Max-Age=60", "SameSite=Lax", "HttpOnly"]
        for _ in range(8):
            answer = await running.get("sticky.test", headers={"Cookie": f"a=b; {cookie}"})
            assert (answer.seen["backend"], answer.header("set-cookie")) == (first.seen["backend"], "")
        rest = tuple(found for found, name in zip(endpoints, names, strict=True) if name != first.seen["backend"])
        await running.change(backends={"sticky": Backend("sticky", rest, affinity=affinity)})
        moved = await running.get("sticky.test", headers={"Cookie": cookie})
        assert moved.seen["backend"] != first.seen["backend"]
        assert moved.header("set-cookie")
        assert len(await backends_of(running, "turn.test")) == len(names)
        assert len(await backends_of(running, "least.test")) == len(names)


async def test_a_failed_endpoint_leads_to_the_next_one_as_often_as_the_policy_says(running: LuaStage) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        dead = tuple(Endpoint("127.0.0.1", free_port()) for _ in range(2))
        mixed = Backend("mixed", (*dead, *backends["web"].endpoints))
        await running.start(
            server("shop.test", prefix("/", "mixed"), prefix("/once", "mixed", Policy(retries=Retries(tries=1)))),
            server("dead.test", prefix("/", "dead")),
            backends={"mixed": mixed, "dead": Backend("dead", dead)},
        )
        assert [(await running.get("shop.test")).status for _ in range(9)] == [200] * 9
        assert {(await running.get("shop.test", "/once")).status for _ in range(9)} == {200, 502}
        assert (await running.get("dead.test")).status == 502


async def test_a_new_worker_and_a_new_master_know_everything(running: LuaStage) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", prefix("/", "web")), backends=backends)
        before = running.workers()
        os.kill(before[0], signal.SIGKILL)
        os.kill(before[1], signal.SIGKILL)
        while len(running.workers()) < 2 or set(running.workers()) & set(before):  # noqa: ASYNC110  (processes have no event)
            await asyncio.sleep(0.01)
        assert (await running.get("shop.test")).status == 200

        sent = asyncio.Event()
        resend = running.nginx.process.after_restart
        assert resend is not None

        async def note() -> None:
            await resend()
            sent.set()

        running.nginx.process.after_restart = note
        assert running.nginx.process.pid is not None
        os.kill(running.nginx.process.pid, signal.SIGKILL)
        await sent.wait()
        assert (await running.get("shop.test")).status == 200
        assert not (await running.change(backends={"web": replace(backends["web"], endpoints=())})).reloaded
        assert (await running.get("shop.test")).status == 503


async def test_the_status_server_is_private_and_refuses_bad_batches(running: LuaStage) -> None:
    await running.start(server("shop.test"))
    status = running.nginx.process.status
    assert stat.S_IMODE((running.nginx.process.folder / "status.sock").stat().st_mode) == 0o600
    answers = [
        (await status.request("POST", "/documents", body))[0]
        for body in (
            *(b"", b"{", b"[]", b'{"put": {}}', b'{"put": {"x": "{}"}, "delete": []}', b'{"put": {"b:x": "{"}, "delete": []}'),
            b'{"put": {"b:x": "{}"}, "delete": [], "after": 99, "complete": true}',
            b'{"put": {"b:x": "{}"}, "delete": [], "after": 1, "complete": true}',
        )
    ]
    assert answers == [400] * 6 + [409, 201]
    assert (await running.get("shop.test", "/documents")).status == 404
    # The channel notices that its documents are not the last ones, and sends all.
    await running.change(backends={"web": Backend("web")})
    assert b"b:x" not in await status.get("/documents")


async def test_a_policy_that_nginx_refuses_answers_503_and_the_others_are_served(running: LuaStage) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", prefix("/", "web")), backends=backends)
        await running.change(server("bad.test", prefix("/", "web", Policy(body_size=10**30))), server("more.test", prefix("/", "web")))
        assert [(await running.get(host)).status for host in ("shop.test", "bad.test", "more.test")] == [200, 503, 200]


async def test_documents_move_to_a_larger_dictionary(running: LuaStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "LEAST_MEMORY", 1)
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", prefix("/", "web")), backends=backends)
        many = [server(f"h{number}.test", *(prefix(f"/{letter * 100}", "web") for letter in "abcdefgh")) for number in range(400)]
        applied = await running.change(*many)
        assert applied.reason == "documents need 2 MiB"
        assert [(await running.get(host, path)).status for host, path in (("shop.test", "/"), ("h399.test", f"/{'h' * 100}"))] == [200] * 2
        assert not (await running.change(removed=[found.key for found in many])).reloaded
        assert (await running.get("h399.test", f"/{'h' * 100}")).status == 404


async def test_a_path_that_cannot_be_compared_answers_500_and_lets_no_other_path_answer(running: LuaStage) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", regex("/a(", "web"), regex("/b", "web")), backends=backends)
        assert [(await running.get("shop.test", path)).status for path in ("/a(", "/a", "/b")] == [500] * 3
