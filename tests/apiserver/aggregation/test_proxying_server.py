"""Requests for an API of another server: the user that it is sent, forwarded requests, and answers. Both servers are tested."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from tests.apiserver.aggregation.conftest import World
from tests.apiserver.aggregation.extension import streamed

pytestmark = pytest.mark.server


def widgets(world: World) -> str:
    return f"{world.extension.path}/namespaces/{world.namespace}/widgets"


async def echo(request: web.BaseRequest) -> web.Response:
    return web.json_response(
        {"method": request.method, "query": request.raw_path.partition("?")[2], "body": (await request.read()).decode()}
    )


async def test_the_backend_gets_the_users_name_and_no_credentials(world: World) -> None:
    await world.available()
    world.extension.scripts[widgets(world)] = echo
    who = {
        "Impersonate_User": "jane",
        "Impersonate_Uid": "u-1",
        "Impersonate_Group": "system:masters",
        "Impersonate_Extra_Dept%2Fa": "north",
    }
    reply = await world("GET", widgets(world), **who)
    assert reply.status == 200, reply.text
    (asked,) = world.extension.seen(widgets(world))
    assert asked.values("X-Remote-User") == ["jane"]
    assert asked.values("X-Remote-Uid") == ["u-1"]
    assert asked.values("X-Remote-Group") == ["system:masters", "system:authenticated"]
    assert asked.values("X-Remote-Extra-Dept%2Fa") == ["north"]
    assert asked.values("Host") == [f"127.0.0.1:{world.extension.port}"]
    assert asked.values("X-Forwarded-For") == ["127.0.0.1"]
    assert asked.values("X-Forwarded-Uri") == [widgets(world)]
    assert asked.values("Audit-Id") == [reply.headers["Audit-Id"]]
    assert not [name for name in asked.headers if name == "authorization" or name.startswith("impersonate")]


async def test_what_a_client_says_of_itself_goes_no_further(world: World) -> None:
    await world.available()
    world.extension.scripts[widgets(world)] = echo
    forged = {"X_Remote_User": "root", "X_Remote_Group": "wheel", "X_Remote_Uid": "0", "X_Remote_Extra_Scope": "all"}
    assert (await world("GET", widgets(world), **forged)).status == 200
    (asked,) = world.extension.seen(widgets(world))
    assert "root" not in asked.values("X-Remote-User")
    assert "wheel" not in asked.values("X-Remote-Group")
    assert not asked.values("X-Remote-Extra-Scope")
    assert asked.values("X-Remote-Uid") != ["0"]


async def test_a_user_without_the_right_is_refused_before_the_backend_gets_the_request(world: World) -> None:
    await world.available()
    reply = await world("GET", widgets(world), Impersonate_User="nobody-in-particular")
    assert reply.status == 403
    group = world.extension.group
    said = f'widgets.{group} is forbidden: User "nobody-in-particular" cannot list resource "widgets" in API group "{group}"'
    assert reply.body["message"] == f'{said} in the namespace "{world.namespace}"'
    assert not world.extension.seen(widgets(world))


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_bodies_and_queries_go_through(world: World, method: str) -> None:
    await world.available()
    world.extension.scripts[f"{widgets(world)}/w"] = echo
    reply = await world(method, f"{widgets(world)}/w?b=2&a=x%20y&a=1;2", {"spec": 1})
    assert reply.body == {"method": method, "query": "a=x+y&b=2", "body": '{"spec": 1}'}


async def test_a_long_body_goes_through_as_it_comes(world: World) -> None:
    await world.available()
    more = asyncio.Event()

    async def count(request: web.BaseRequest) -> web.Response:
        total = 0
        async for part in request.content.iter_any():
            more.set()
            total += len(part)
        return web.json_response({"total": total})

    async def parts() -> AsyncIterator[bytes]:
        yield b"x" * 70_000
        await more.wait()  # what has been sent is read before the rest is there
        for _ in range(50):
            yield b"x" * 100_000

    world.extension.scripts[widgets(world)] = count
    async with world.session.post(widgets(world), data=parts()) as answer:
        assert await answer.json() == {"total": 5_070_000}


async def test_a_watch_comes_as_it_happens_and_its_end_reaches_the_backend(world: World) -> None:
    await world.available()
    events: asyncio.Queue[bytes | None] = asyncio.Queue()
    gone = asyncio.Event()
    world.extension.scripts[widgets(world)] = lambda request: streamed(request, events, gone)
    async with world.session.get(f"{widgets(world)}?watch=true") as answer:
        for number in range(3):
            await events.put(json.dumps({"type": "ADDED", "number": number}).encode() + b"\n")
            assert json.loads(await answer.content.readline())["number"] == number
        answer.close()
    async with asyncio.timeout(30):
        while not gone.is_set():  # a write to a closed connection fails in the end
            await events.put(b"{}\n")
            await asyncio.sleep(0.05)


async def test_a_client_that_gives_up_takes_its_request_along(world: World) -> None:
    await world.available()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(request: web.BaseRequest) -> web.Response:
        begun.set()
        try:
            while request.transport is not None and not request.transport.is_closing():
                await asyncio.sleep(0.02)
        finally:
            ended.set()
        return web.Response()

    world.extension.scripts[widgets(world)] = slow
    asking = asyncio.create_task(world("GET", widgets(world)))
    async with asyncio.timeout(30):
        await begun.wait()
        asking.cancel()
        await ended.wait()
    await asyncio.gather(asking, return_exceptions=True)


async def test_a_websocket_goes_through(world: World) -> None:
    await world.available()

    async def talk(request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=["v1.talk"])
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data.upper())
        return socket

    path = f"{widgets(world)}/w/talk"
    world.extension.scripts[path] = talk
    async with world.session.ws_connect(path, protocols=["v1.talk"]) as socket:
        await socket.send_str("hello")
        assert (await socket.receive_str(), socket.protocol) == ("HELLO", "v1.talk")
    (asked,) = world.extension.seen(path)
    assert asked.values("X-Remote-User")
    assert not asked.values("Authorization")


async def test_a_refused_upgrade_is_passed_on_unchanged(world: World) -> None:
    await world.available()

    async def refuse(request: web.BaseRequest) -> web.Response:
        return web.Response(status=418, text="tea")

    world.extension.scripts[widgets(world)] = refuse
    with pytest.raises(aiohttp.WSServerHandshakeError) as met:
        await world.session.ws_connect(widgets(world))
    assert met.value.status == 418


async def test_redirects_of_a_backend_are_refused(world: World) -> None:
    await world.available()

    async def elsewhere(request: web.BaseRequest) -> web.Response:
        return web.Response(status=307, headers={"Location": "https://elsewhere.example.com/"})

    world.extension.scripts[widgets(world)] = elsewhere
    reply = await world("GET", widgets(world))
    assert (reply.status, reply.text) == (502, "the backend attempted to redirect this request, which is not permitted")
    assert "Location" not in reply.headers


async def test_answers_come_back_as_they_are(world: World) -> None:
    await world.available()

    async def odd(request: web.BaseRequest) -> web.Response:
        return web.Response(status=409, text="{ odd }", content_type="application/x-odd", headers={"X-Odd": "1", "Warning": '299 - "w"'})

    world.extension.scripts[widgets(world)] = odd
    reply = await world("GET", widgets(world))
    assert (reply.status, reply.text) == (409, "{ odd }")
    assert reply.headers["Content-Type"].startswith("application/x-odd")
    assert (reply.headers["X-Odd"], reply.headers["Warning"]) == ("1", '299 - "w"')


async def test_a_backend_that_hangs_up_is_reported_as_unreachable(world: World) -> None:
    await world.available()

    async def hang_up(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    world.extension.scripts[widgets(world)] = hang_up
    reply = await world("POST", widgets(world), {})
    assert reply.status == 503
    assert reply.text.startswith("error trying to reach service: ")
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
