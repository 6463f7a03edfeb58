"""The running proxy: reloads of its rules, failures of the API server, clients that leave, and nothing left after its end."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from kubeloop.config import ClusterConfig
from kubeloop.meta.errors import ApiError, ConfigError
from kubeloop.proxy.rules import RuleError
from kubeloop.proxy.server import RELOAD_INTERVAL, ProxyOptions, ProxyServer
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.types import JSONObject
from tests.interruptions import Interruption, each_interruption, interrupt, nothing_left
from tests.proxy.conftest import DORA, MERGE, StartProxy
from tests.proxy.rules.rule_texts import rule, text_of
from tests.proxy.test_command import free_port

PODS = "/api/v1/namespaces/shop/pods"
HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}], name="hide-back")
HIDE_FRONT = rule(match=[{"labelSelector": "tier=front"}], name="hide-front")
NO_RULES = "{apiVersion: v1, kind: List, items: []}\n"


# Reloads


@pytest.mark.usefixtures("shop")
async def test_a_reload_ends_watches_with_410_and_clients_see_the_new_rules(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        client = await proxied.client(DORA)
        before = await client("GET", PODS)
        assert before.names == ["front-0", "front-1"]
        version = before.tree["metadata"]["resourceVersion"]
        async with client.watch(f"{PODS}?watch=true&resourceVersion={version}") as events:
            proxied.write_rules(HIDE_FRONT)
            assert await proxied.proxy.reload()
            event = await anext(events)
            assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
            assert [event async for event in events] == []
        assert (await client("GET", f"{PODS}?watch=true&resourceVersion={version}")).status == 410
        after = await client("GET", PODS)
        assert after.names == ["back-0"]
        version = after.tree["metadata"]["resourceVersion"]
        async with client.watch(f"{PODS}?watch=true&resourceVersion={version}") as events:
            await (await proxied.direct())("DELETE", f"{PODS}/back-0?gracePeriodSeconds=0")
            assert (await anext(events))["object"]["metadata"]["name"] == "back-0"


@pytest.mark.usefixtures("shop")
async def test_rules_that_come_to_an_empty_file_end_watches_too(start_proxy: StartProxy) -> None:
    async with start_proxy(rule(match=[{"names": ["none"], "resources": ["secrets"]}])) as proxied:
        client = await proxied.client(DORA)
        async with client.watch(f"{PODS}?watch=true") as events:
            assert [(await anext(events))["object"]["metadata"]["name"] for _ in range(3)] == ["back-0", "front-0", "front-1"]
            proxied.write_rules(HIDE_BACK)
            assert await proxied.proxy.reload()
            assert (await anext(events))["object"]["code"] == 410
        assert (await client("GET", PODS)).names == ["front-0", "front-1"]


@pytest.mark.usefixtures("shop")
async def test_a_file_with_mistakes_keeps_the_rules_and_the_proxy_ready(start_proxy: StartProxy, caplog: pytest.LogCaptureFixture) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        client, proxy = await proxied.client(DORA), proxied.proxy
        async with client.watch(f"{PODS}?watch=true") as events:
            assert proxy.notice() == ""
            for text in ("rubbish: [", text_of(HIDE_BACK).replace('"drop"', '"dorp"'), ""):
                proxied.rules.write_text(text)
                if text:
                    assert not await proxy.reload()
            proxied.rules.unlink()
            assert not await proxy.reload()
            assert "the rules in force stay" in caplog.text
            assert "dorp" in caplog.text
            assert (proxy.checks(), "mistakes" in proxy.notice()) == ({"proxy-rules": ""}, True)
            assert "kubeloop_proxy_failed_reloads 3" in proxy.metrics()
            assert (await client("GET", PODS)).names == ["front-0", "front-1"]
            assert proxy.open_watches == 1
            proxied.write_rules(HIDE_BACK)
            assert not await proxy.reload()  # the rules in force are the same
            assert proxy.notice() == ""
            assert (await anext(events))["type"] == "ADDED"


@pytest.mark.usefixtures("shop")
async def test_the_last_rule_can_be_removed_and_comes_back(start_proxy: StartProxy, caplog: pytest.LogCaptureFixture) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        client, proxy = await proxied.client(DORA), proxied.proxy
        version = (await client("GET", PODS)).tree["metadata"]["resourceVersion"]
        async with client.watch(f"{PODS}?watch=true&resourceVersion={version}") as events:
            proxied.rules.write_text(NO_RULES)
            assert await proxy.reload()
            assert (await anext(events))["object"]["code"] == 410
        assert f"{proxied.rules} has no rules now: everything passes unchanged; ended 1 watches" in caplog.text
        assert (proxy.notice(), (await client("GET", PODS)).names) == ("", ["back-0", "front-0", "front-1"])
        proxied.write_rules(HIDE_BACK)
        assert await proxy.reload()
        assert (await client("GET", PODS)).names == ["front-0", "front-1"]


@pytest.mark.usefixtures("shop")
async def test_a_proxy_starts_without_rules_and_follows_the_file(upstream: TlsTestServer, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(NO_RULES)
    async with ProxyServer(upstream.config, ProxyOptions(rules=file)) as proxy:
        assert proxy.rules.rules == ()
        file.write_text(text_of(HIDE_BACK))
        assert await proxy.reload()


async def test_a_changed_file_is_noticed(start_proxy: StartProxy) -> None:
    clock = FakeClock()
    async with start_proxy(HIDE_BACK, clock=clock) as proxied:
        proxied.write_rules(HIDE_FRONT)
        async with asyncio.timeout(10):
            while proxied.proxy.rules.rules[0].name == "hide-back":
                await clock.advance(RELOAD_INTERVAL)
                await asyncio.sleep(0.001)  # a thread reads the file
        proxied.rules.write_text("rubbish")
        async with asyncio.timeout(10):
            while not proxied.proxy.failed_reloads:
                await clock.advance(RELOAD_INTERVAL)
                await asyncio.sleep(0.001)
        assert proxied.proxy.rules.rules[0].name == "hide-front"


async def test_rules_with_mistakes_prevent_the_start(upstream: TlsTestServer, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text_of(HIDE_BACK).replace('"drop"', '"dorp"'))
    async with nothing_left():
        with pytest.raises(RuleError, match=r"rules\.yaml:1: rule hide-back"):
            await ProxyServer(upstream.config, ProxyOptions(rules=file)).start()


# What an operator sees


@pytest.mark.usefixtures("shop")
async def test_dry_run_logs_and_changes_nothing(start_proxy: StartProxy, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kubeloop.proxy")
    change = rule({"set": {"spec.nodeName": "hidden"}}, name="change", match=[{"resources": ["pods"], "labelSelector": "tier=front"}])
    async with start_proxy(HIDE_BACK, change, dry_run=True) as proxied:
        client, direct = await proxied.client(token="admin-token"), await proxied.direct()
        assert (await client("GET", PODS)).tree == (await direct("GET", PODS)).tree
        assert (await client("GET", f"{PODS}/back-0")).status == 200
        assert (await client("PATCH", f"{PODS}/back-0", {"metadata": {"labels": {"a": "b"}}}, Content_Type=MERGE)).status == 200
        assert (await client("DELETE", f"{PODS}/back-0?gracePeriodSeconds=0")).status == 200
        assert "dry run: hide-back would hide Pod shop/back-0" in caplog.text
        assert "dry run: change would change Pod shop/front-0" in caplog.text


@pytest.mark.usefixtures("shop")
async def test_the_header_and_the_metrics_name_the_rules(start_proxy: StartProxy) -> None:
    change = rule({"set": {"spec.nodeName": "hidden"}}, name="change", match=[{"resources": ["pods"]}])
    async with start_proxy(HIDE_BACK, change, explain=True) as proxied:
        client = await proxied.client(DORA)
        assert (await client("GET", f"{PODS}/front-0")).headers["Kubeloop-Rules"] == "change"
        assert (await client("GET", PODS)).headers["Kubeloop-Rules"] == "hide-back, change"
        assert "Kubeloop-Rules" not in (await client("GET", f"{PODS}/back-0")).headers
        assert (await client("GET", "/api")).headers.get("Kubeloop-Rules") is None
        metrics = proxied.proxy.metrics()
        assert 'kubeloop_proxy_objects_changed_total{rule="change"} 3' in metrics
        assert 'kubeloop_proxy_objects_hidden_total{rule="hide-back"} 2' in metrics
        assert 'kubeloop_proxy_responses_total{code="404"} 1' in metrics


# Clients that leave, and servers that fail


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("rules", [pytest.param((), id="without rules"), pytest.param((HIDE_BACK,), id="with rules")])
async def test_a_watch_ends_at_the_server_when_its_client_leaves(start_proxy: StartProxy, rules: tuple[JSONObject, ...]) -> None:
    async with start_proxy(*rules) as proxied:
        client = await proxied.client(DORA)
        streams = proxied.server.faults._streams
        for _ in range(3):
            async with client.watch(f"{PODS}?watch=true") as events:
                await anext(events)
                assert len(streams) == 1
            await until(lambda: not streams)
        assert proxied.proxy.open_watches == 0


@pytest.mark.usefixtures("shop")
async def test_a_watch_that_the_server_cuts_is_cut(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        client = await proxied.client(DORA)
        async with client.watch(f"{PODS}?watch=true") as events:
            await anext(events)
            proxied.server.faults.cut_streams()
            with pytest.raises(aiohttp.ClientPayloadError):
                async for _ in events:
                    pass


@pytest.mark.usefixtures("shop")
async def test_a_server_that_is_away_is_503_and_comes_back(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        client = await proxied.client(DORA)
        await proxied.server.crash()
        for path in (PODS, f"{PODS}/front-0", f"{PODS}?watch=true", "/version", f"{PODS}/front-0/log"):
            reply = await client("GET", path)
            assert (reply.status, reply.tree["reason"], reply.headers["Retry-After"]) == (503, "ServiceUnavailable", "1"), path
            assert "127.0.0.1" not in reply.tree["message"]
        await proxied.server.come_back()
        assert (await client("GET", PODS)).names == ["front-0", "front-1"]


@asynccontextmanager
async def scripted_server(upstream: TlsTestServer, body: bytes) -> AsyncIterator[ClusterConfig]:
    """An API server without TLS that sends these bytes as its response to everything, and ends the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"selfsubjectreviews" in head:
                review = json.dumps({"status": {"userInfo": {"username": "kubeloop-admin"}}}).encode()
                writer.write(
                    b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                    % len(review)
                    + review
                )
            else:
                writer.write(body)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield ClusterConfig(server=f"http://127.0.0.1:{port}", name=upstream.config.name)
    finally:
        server.close()
        await server.wait_closed()


ITEM = b'{"metadata":{"name":"a","labels":{"tier":"front"},"annotations":{"filler":"' + b"x" * 4000 + b'"}}}'
LONG = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[' + b",".join([ITEM] * 200) + b"]}"


def chunked(*chunks: bytes) -> bytes:
    """Return a response in chunks without its end."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)


EVENT = b'{"type":"ADDED","object":%b}\n' % ITEM


def response(body: bytes, *, cut: int = 0, content_type: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (content_type, len(body))
    return head + body[: len(body) - cut]


@pytest.mark.parametrize("rules", [pytest.param((), id="without rules"), pytest.param((HIDE_BACK,), id="with rules")])
@pytest.mark.parametrize(
    ("path", "sent", "status"),
    [
        pytest.param(PODS, b"rubbish\r\n\r\n", 502, id="no HTTP"),
        pytest.param(PODS, b"", 502, id="nothing"),
        pytest.param(PODS, b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", 502, id="a malformed head"),
        pytest.param(PODS, response(LONG[:5000], cut=3000), 502, id="a short list that is cut"),
        pytest.param(PODS, response(LONG, cut=50_000), 0, id="a long list that is cut late"),
        pytest.param(PODS, chunked(LONG[:-50_000]), 0, id="a long list in chunks that is cut late"),
        pytest.param(f"{PODS}/a", response(ITEM, cut=2000), 502, id="an object that is cut"),
        pytest.param(
            f"{PODS}?watch=true",
            chunked(EVENT, EVENT[:-2000]),
            0,
            id="a watch that is cut in the middle of an event",
        ),
    ],
)
async def test_what_the_client_sees_of_a_broken_response(
    upstream: TlsTestServer, tmp_path: Path, rules: tuple[JSONObject, ...], path: str, sent: bytes, status: int
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text_of(*rules) if rules else "")
    async with scripted_server(upstream, sent) as config, ProxyServer(config, ProxyOptions(rules=file if rules else None)) as proxy:
        context = ssl.create_default_context(cadata=proxy.authority.decode())
        async with aiohttp.ClientSession(proxy.url) as session, session.get(path, ssl=context) as reply:
            if status:
                assert reply.status == status
                tree = await reply.json()
                assert (tree["kind"], tree["reason"]) == ("Status", "BadGateway")
                return
            assert reply.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await reply.read()  # cut, so that nothing short looks whole


async def test_a_slow_server_slows_only_its_own_requests(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK) as proxied:
        client = await proxied.client(DORA)
        release = proxied.server.faults.hold(matching=lambda request: request.path == "/version")
        waiting = asyncio.create_task(client("GET", "/version"))
        await until(lambda: any("/version" in line for line in proxied.server.faults.requests))
        assert (await client("GET", "/api")).status == 200
        assert not waiting.done()
        release()
        assert (await waiting).status == 200


# Start and end


async def test_a_port_that_is_taken_is_an_error(start_proxy: StartProxy, upstream: TlsTestServer) -> None:
    async with start_proxy() as proxied:
        port = int(proxied.proxy.url.rpartition(":")[2])
        async with nothing_left():
            with pytest.raises(ConfigError, match=str(port)):
                await ProxyServer(upstream.config, ProxyOptions(port=port)).start()


@pytest.mark.parametrize("change", [{"server": "https://127.0.0.1:1"}, {"ca": None}])
async def test_a_server_that_cannot_be_reached_prevents_the_start(upstream: TlsTestServer, change: dict[str, object]) -> None:
    async with nothing_left():
        with pytest.raises((ApiError, ConfigError)):
            await ProxyServer(msgspec.structs.replace(upstream.config, **change), ProxyOptions()).start()


@pytest.mark.parametrize(
    ("advertised", "url"),
    [
        pytest.param(("proxy.example.com", 0), "https://proxy.example.com:{port}", id="a name, with the port that the proxy listens on"),
        pytest.param(("proxy.example.com", 6443), "https://proxy.example.com:6443", id="a name and another port"),
        pytest.param(("192.0.2.7", 6443), "https://192.0.2.7:6443", id="an IPv4 address"),
        pytest.param(("2001:db8::7", 6443), "https://[2001:db8::7]:6443", id="an IPv6 address"),
    ],
)
async def test_kubeconfigs_and_the_certificate_name_the_advertised_address(
    upstream: TlsTestServer, advertised: tuple[str, int], url: str
) -> None:
    port = free_port()
    async with ProxyServer(upstream.config, ProxyOptions(port=port, advertised=advertised)) as proxy:
        assert proxy.url == url.format(port=port)
        assert f"server: {proxy.url}\n" in proxy.kubeconfig().decode()
        context = ssl.create_default_context(cadata=proxy.authority.decode())
        for name in (advertised[0], "127.0.0.1", "localhost"):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
            writer.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="another.example.com")


async def test_a_client_ca_that_is_no_certificate_is_an_error(upstream: TlsTestServer) -> None:
    with pytest.raises(ConfigError, match="--client-ca-file"):
        await ProxyServer(upstream.config, ProxyOptions(client_ca=b"rubbish")).start()


INTERRUPTIONS = pytest.mark.parametrize("interruption", [pytest.param(how, id=how.value) for how in Interruption])


@INTERRUPTIONS
async def test_a_proxy_whose_start_is_interrupted_has_closed_everything(
    upstream: TlsTestServer, tmp_path: Path, interruption: Interruption
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text_of(HIDE_BACK))

    async def attempt(at: int) -> str:
        async with nothing_left():
            proxy = ProxyServer(upstream.config, ProxyOptions(rules=file))
            where = await interrupt(proxy.start(), at, interruption)
            if not where:
                await proxy.stop()
        await proxy.stop()
        return where

    assert await each_interruption(interruption, attempt) > 3


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("interruption", [pytest.param(how, id=how.value) for how in (Interruption.CANCEL, Interruption.CANCEL_LATE)])
async def test_a_proxy_whose_stop_is_interrupted_has_closed_everything(
    upstream: TlsTestServer, tmp_path: Path, interruption: Interruption
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text_of(HIDE_BACK))

    async def attempt(at: int) -> str:
        async with nothing_left():
            proxy = ProxyServer(upstream.config, ProxyOptions(rules=file))
            await proxy.start()
            context = ssl.create_default_context(cadata=proxy.authority.decode())
            issued = proxy.issue(DORA)
            key = tmp_path / "key.pem"
            key.write_bytes(issued.certificate + issued.key)
            context.load_cert_chain(key)
            _, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]), ssl=context)
            try:
                writer.write(f"GET {PODS}?watch=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                await until(lambda: proxy.open_watches == 1)
                where = await interrupt(proxy.stop(), at, interruption)
            finally:
                writer.transport.abort()
            await until(lambda: not upstream.faults._streams)
        await proxy.stop()
        return where

    assert await each_interruption(interruption, attempt) > 2


async def test_a_response_with_two_lengths_has_one_for_the_client(upstream: TlsTestServer) -> None:
    sent = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n0\r\n\r\n"
    async with scripted_server(upstream, sent) as config, ProxyServer(config) as proxy:
        context = ssl.create_default_context(cadata=proxy.authority.decode())
        async with aiohttp.ClientSession(proxy.url) as session, session.get(PODS, ssl=context) as reply:
            assert (await reply.read(), reply.headers.get("Content-Length", "6")) == (b"abcdef", "6")
