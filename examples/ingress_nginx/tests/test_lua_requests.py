"""What Lua remembers of requests: counts, and endpoints with requests in progress. Needs Debian's nginx with its Lua modules."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from examples.ingress_nginx.model.configuration import DEFAULT_BACKEND, Backend, Balance
from examples.ingress_nginx.model.policy import Mirror, Policy, Timeouts
from examples.ingress_nginx.nginx import routing_blocks
from examples.ingress_nginx.tests.lua_stage import LuaStage
from examples.ingress_nginx.tests.nginx_stage import EchoBackend, Stage, echo_backends, exact, prefix, server

pytestmark = pytest.mark.nginx_lua


async def test_requests_are_counted_by_route_and_status(running: LuaStage) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", prefix("/a", "web", origin="Ingress shop/web")), backends=backends)
        for path in ("/a", "/a/b", "/b"):
            await running.get("shop.test", path)
        await running.get("unknown.test")
        counts = {
            (found.origin, found.host, found.path, found.backend, found.status): found.count
            for found in await running.nginx.request_counts()
        }
    assert counts == {
        ("Ingress shop/web", "shop.test", "/a", "web", 200): 2,
        ("", "shop.test", "", DEFAULT_BACKEND, 404): 1,
        ("", "", "", DEFAULT_BACKEND, 404): 1,
    }


async def test_counts_stay_right_when_the_dictionary_is_full(running: LuaStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing_blocks, "COUNTS_MEMORY", 1)
    paths = [f"/{'p' * 250}/{number}" for number in range(1500)]
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(
            server("hot.test", prefix("/", "web")), server("shop.test", *(exact(path, "web") for path in paths)), backends=backends
        )
        for some in (paths[:750], paths[750:]):
            await _send(running, [(host, path) for path in some for host in ("shop.test", "hot.test")])
        assert (await running.change(server("new.test", prefix("/", "web", Policy(body_size=7))))).reloaded
        await _send(running, [("hot.test", "/")] * 5)
        found = await running.nginx.request_counts()
    hot, others = ([one.count for one in found if (one.host == "hot.test") is chosen] for chosen in (True, False))
    assert hot == [1505]
    assert sum(others) == 1500
    assert 100 < len(others) < 1500


async def test_a_backend_that_gets_copies_has_no_requests_in_progress_after_them(running: LuaStage) -> None:
    names = ("one", "two", "three")
    web, copied = EchoBackend("web"), asyncio.Queue[dict[str, Any]]()
    copies = [EchoBackend(name, descriptions=copied) for name in names]
    async with echo_backends(web, *copies) as backends:
        endpoints = [backends[name].endpoints[0] for name in names]
        busy = Backend("busy", tuple(endpoints[:2]), Balance.LEAST_CONNECTIONS)
        await running.start(
            server("shop.test", prefix("/", "web", Policy(mirrors=(Mirror("busy"),)))),
            server("busy.test", prefix("/", "busy")),
            backends={**backends, "busy": busy},
        )
        for _ in range(10):
            await running.get("shop.test")
        for _ in range(10):
            await asyncio.wait_for(copied.get(), 30)
        await running.change(backends={"busy": replace(busy, endpoints=tuple(endpoints))})
        counts = Counter([(await running.get("busy.test")).seen["backend"] for _ in range(60)])
    assert min(counts[name] for name in names) >= 10


async def test_a_copy_that_is_not_answered_holds_the_connection_for_the_time_of_the_policy(running: LuaStage) -> None:
    silent = EchoBackend("silent", release=asyncio.Event())
    async with echo_backends(EchoBackend("web"), silent) as backends:
        policy = Policy(mirrors=(Mirror("silent"),), timeouts=Timeouts(read=0.1))
        await running.start(server("shop.test", prefix("/", "web", policy)), backends=backends)
        await asyncio.wait_for(_send(running, [("shop.test", "/")] * 3), 30)
        assert silent.release
        silent.release.set()


@pytest.mark.parametrize(
    ("known", "status"),
    [
        pytest.param(True, 200, id="it keeps what it knows of a host"),
        pytest.param(False, 503, id="it does not serve a host that it learns of too late"),
    ],
)
async def test_a_worker_of_the_former_configuration_ends_its_requests(running: LuaStage, *, known: bool, status: int) -> None:
    settings = replace(running.configuration.settings, worker_processes=1)
    running.configuration = replace(running.configuration, settings=settings)
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", prefix("/", "web")), server("other.test", prefix("/", "web")), backends=backends)
        await running.get("shop.test" if known else "other.test")
        streams = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(4)]
        for _, writer in streams:
            writer.write(b"GET / HTTP/1.1\r\nHost: sho")
        await running.get("other.test")
        assert (await running.change(server("shop.test", prefix("/", "web", Policy(status=402))))).reloaded
        for _, writer in streams:
            writer.write(b"p.test\r\nConnection: close\r\n\r\n")
        answers = [(await reader.read()).split(b" ", 2)[1] for reader, _ in streams]
        for _, writer in streams:
            writer.close()
        assert (await running.get("shop.test")).status == 402
    assert answers == [str(status).encode()] * 4


async def _send(running: Stage, requests: list[tuple[str, str]]) -> None:
    """Send requests on one connection, which NGINX closes after 1,000 of them."""
    for start in range(0, len(requests), 900):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        for host, path in requests[start : start + 900]:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(line.partition(": ")[2] for line in head.split("\r\n") if line.startswith("Content-Length"))
            await reader.readexactly(int(length))
        writer.close()
