"""The Router on real sockets: whole requests reach a pod, whole responses come back, and each failure has its status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientPayloadError, ClientSession, web

from examples.traffic_router.endpoints import Address
from examples.traffic_router.router import ForwardLimits, TrafficRouter
from examples.traffic_router.routes import RoutesFile

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_ROUTES = "routes: [{host: web.example, weights: {web: 1}}]"
_HOST = {"Host": "web.example"}


class RouterSetup:
    """A Router whose pods are servers of the test."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self.pods: list[Address] = []
        self.seen: list[web.Request] = []

    async def add_pod(self, handler: Handler) -> None:
        """Start a server, and let the Service ``web`` have its address."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            assert isinstance(request, web.Request)
            self.seen.append(request)
            return await handler(request)

        application = web.Application()
        application.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.pods.append(runner.addresses[0])

    async def add_socket(self, talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
        """Start a server that speaks bytes."""
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        self._stack.callback(server.close)
        self.pods.append(server.sockets[0].getsockname())

    async def start(self, limits: ForwardLimits | None = None, source: str | None = None) -> ClientSession:
        """Start the Router, and return a client of it."""
        file = self._folder / "routes.yaml"
        file.write_text(_ROUTES)
        router = TrafficRouter(RoutesFile(file), self._addresses, limits=limits, source=source)
        await self._stack.enter_async_context(router)
        host, port = await router.listen("127.0.0.1", 0)
        return await self._stack.enter_async_context(ClientSession(f"http://{host}:{port}", headers=_HOST, auto_decompress=False))

    def _addresses(self, service: str) -> Sequence[Address]:
        return self.pods if service == "web" else []


@asynccontextmanager
async def _setup(folder: Path) -> AsyncIterator[RouterSetup]:
    async with AsyncExitStack() as stack:
        yield RouterSetup(stack, folder)


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[RouterSetup]:
    async with _setup(tmp_path) as found:
        yield found


async def _hello(request: web.Request) -> web.Response:
    return web.Response(text=f"{request.method} {request.raw_path} {len(await request.read())}")


async def test_a_request_reaches_the_pod_as_the_client_wrote_it(at: RouterSetup) -> None:
    await at.add_pod(_hello)
    client = await at.start()
    async with client.put("/a%2Fb//c?q=%20x", data=b"12345", headers={"X-Two": "2"}) as response:
        assert (response.status, await response.text()) == (200, "PUT /a%2Fb//c?q=%20x 5")
        assert response.headers["Via"] == "1.1 router"
    headers = at.seen[0].headers
    assert (headers["Host"], headers["X-Two"], headers["Via"], headers["Content-Length"]) == ("web.example", "2", "1.1 router", "5")


@pytest.mark.parametrize(
    ("target", "path"),
    [
        pytest.param("http://web.example/a?q=1", "/a?q=1", id="a whole URL"),
        pytest.param("/a#part", "/a", id="a fragment"),
    ],
)
async def test_other_forms_of_a_target_reach_the_pod_as_paths(at: RouterSetup, target: str, path: str) -> None:
    await at.add_pod(_hello)
    client = await at.start()
    base = client._base_url
    assert base is not None
    reader, writer = await asyncio.open_connection(base.host, base.port)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    assert f"GET {path} 0".encode() in answer


async def test_headers_of_the_connection_do_not_reach_the_pod(at: RouterSetup) -> None:
    await at.add_pod(_hello)
    client = await at.start()
    named = {"Connection": "keep-alive, X-Secret", "X-Secret": "1", "TE": "trailers", "Upgrade": "h2c", "Proxy-Connection": "keep-alive"}
    async with client.get("/", headers=named) as response:
        assert response.status == 200
    assert not set(named) & set(at.seen[0].headers)


async def test_headers_of_the_response_reach_the_client(at: RouterSetup) -> None:
    async def answer(request: web.Request) -> web.Response:
        del request
        response = web.Response(
            status=418, reason="Short", body=b"\x1f\x8b", headers={"Content-Encoding": "gzip", "Keep-Alive": "timeout=9"}
        )
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        return response

    await at.add_pod(answer)
    client = await at.start()
    async with client.get("/") as response:
        assert (response.status, response.reason, await response.read()) == (418, "Short", b"\x1f\x8b")
        assert len(response.headers.getall("Set-Cookie")) == 2
        assert "Keep-Alive" not in response.headers


async def test_a_redirect_is_the_clients_to_follow(at: RouterSetup) -> None:
    async def redirect(request: web.Request) -> web.Response:
        raise web.HTTPFound(request.path + "elsewhere")

    await at.add_pod(redirect)
    client = await at.start()
    async with client.get("/", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (302, "/elsewhere")


async def test_bodies_are_streamed_in_both_directions(at: RouterSetup) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async for chunk in request.content.iter_any():
            await response.write(chunk)
        return response

    sent: asyncio.Queue[bytes] = asyncio.Queue()

    async def body() -> AsyncIterator[bytes]:
        while chunk := await sent.get():
            yield chunk

    await at.add_pod(echo)
    client = await at.start()
    sent.put_nowait(b"one")
    async with client.post("/", data=body()) as response:
        # The first piece is back before the second is sent.
        assert await response.content.readany() == b"one"
        sent.put_nowait(b"two")
        assert await response.content.readany() == b"two"
        sent.put_nowait(b"")
        assert await response.content.readany() == b""


async def test_the_response_to_head_has_the_length_and_no_body(at: RouterSetup) -> None:
    await at.add_pod(_hello)
    client = await at.start()
    async with client.head("/abc") as response:
        assert (response.status, response.headers["Content-Length"], await response.read()) == (200, "11", b"")


async def test_a_pod_that_refuses_connections_is_passed_over(at: RouterSetup) -> None:
    at.pods.append(("127.0.0.1", 1))
    await at.add_pod(_hello)
    client = await at.start()
    async with client.post("/", data=b"once") as response:
        assert (response.status, await response.text()) == (200, "POST / 4")


async def test_pods_see_the_address_of_the_router(at: RouterSetup) -> None:
    await at.add_pod(_hello)
    client = await at.start(source="127.0.0.9")
    async with client.get("/") as response:
        assert response.status == 200
    assert at.seen[0].remote == "127.0.0.9"


async def _garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"hello\r\n\r\n")
    writer.close()


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@pytest.mark.parametrize(
    ("host", "talk", "status", "text"),
    [
        pytest.param("other.example", None, 404, "no route for this host", id="a host without a route gives 404"),
        pytest.param("web.example", None, 503, "no pod of this Service is ready", id="a Service without pods gives 503"),
        pytest.param("web.example", _garbage, 502, "no valid response", id="a pod that speaks no HTTP gives 502"),
        pytest.param("web.example", _hang_up, 502, "no valid response", id="a pod that hangs up gives 502"),
        pytest.param("web.example", _say_nothing, 504, "did not answer in time", id="a silent pod gives 504"),
    ],
)
async def test_a_failure_has_a_status(
    at: RouterSetup,
    host: str,
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] | None,
    status: int,
    text: str,
) -> None:
    if talk is not None:
        await at.add_socket(talk)
    client = await at.start(ForwardLimits(silence=0.02))
    async with client.post("/", headers={"Host": host}, data=b"x") as response:
        assert (response.status, text in await response.text()) == (status, True)
        assert response.headers.get("Retry-After") == ("1" if status == 503 else None)


async def test_pods_that_all_refuse_connections_give_502(at: RouterSetup) -> None:
    at.pods += [("127.0.0.1", 1), ("127.0.0.1", 2)]
    client = await at.start()
    async with client.get("/") as response:
        assert (response.status, await response.text()) == (502, "no pod of this Service accepts connections\n")


async def test_a_response_that_breaks_off_breaks_off_at_the_client(at: RouterSetup) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        writer.close()

    await at.add_socket(break_off)
    client = await at.start()
    async with client.get("/") as response:
        assert response.status == 200
        with pytest.raises((ClientPayloadError, ConnectionResetError)):
            await response.read()


async def test_each_request_is_one_line_of_the_log(at: RouterSetup, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "router")
    await at.add_pod(_hello)
    client = await at.start()
    for host in ("web.example", "other.example"):
        async with client.get("/a", headers={"Host": host}) as response:
            await response.read()
    host, port = at.pods[0]
    served, refused = caplog.messages
    assert served.startswith(f"GET web.example /a -> 200 web {host}:{port} ")
    assert refused.startswith("GET other.example /a -> 404 - - ")
    assert refused.endswith("the Router has no route for this host")


def test_a_changed_file_replaces_the_table_unless_it_has_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "routes.yaml"
    path.write_text(_ROUTES)
    routes = RoutesFile(path)
    assert not routes.refresh()

    def replace(text: str) -> None:
        # As editors write: a new file takes the place of the old one.
        part = path.with_suffix(".part")
        part.write_text(text)
        part.replace(path)

    replace(_ROUTES.replace("web:", "web-v2:"))
    assert (routes.refresh(), routes.table.service_for("web.example", {})) == (True, "web-v2")
    replace("routes: [{host: web.example}]")
    assert (routes.refresh(), routes.table.service_for("web.example", {})) == (False, "web-v2")
    path.unlink()
    assert (routes.refresh(), routes.table.service_for("web.example", {})) == (False, "web-v2")
