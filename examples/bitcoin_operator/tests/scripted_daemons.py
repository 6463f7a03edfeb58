"""Scripted daemons: an HTTP server that plays the RPC interface of many bitcoin daemons, with faults and a record of all requests."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from examples.bitcoin_operator.rpc import Credentials, CredentialsRejected, RpcClient, Unreachable

#: Credentials of the image, which a new daemon accepts.
CREDENTIALS = Credentials("user", "password")


class Fault(Enum):
    """A way in which a daemon fails."""

    HANG = "the daemon accepts a request, and answers when the test releases it"
    RESET = "the daemon breaks the connection"
    ENDLESS = "the daemon sends a body without an end"
    NO_JSON = "the daemon answers with a page of HTML"


@dataclass(frozen=True)
class RecordedRequest:
    """A request that a daemon received.

    Attributes:
        ip: Address of the daemon.
        methods: Method and parameters of each call, such as ``addnode 10.0.0.2 add``.
        batch: Whether the body was a JSON array.
        connection: Number of the connection.
    """

    ip: str
    methods: tuple[str, ...]
    batch: bool
    connection: int = 0


@dataclass
class ScriptedDaemon:
    """One daemon, which answers as the real one does.

    Attributes:
        ip: Address of the daemon.
        credentials: Credentials that the daemon accepts.
        added: Addresses in its list of added nodes, in order.
        warming_up: Whether the daemon is starting: it answers each request with code -28.
        fault: The way in which each request fails; None: it succeeds.
        fail_after: Number of successful ``addnode`` calls after which the daemon is killed; None: it lives on.
        released: Ends a hang.
    """

    ip: str
    credentials: Credentials = CREDENTIALS
    added: list[str] = field(default_factory=list)
    warming_up: bool = False
    fault: Fault | None = None
    fail_after: int | None = None
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def recover(self) -> None:
        """End all faults. The list stays."""
        self.warming_up, self.fault, self.fail_after = False, None, None
        self.released.set()
        self.released = asyncio.Event()

    def restart(self) -> None:
        """Start the daemon again: its list is empty, and faults end."""
        self.added.clear()
        self.recover()

    def answer(self, request: Any, credentials: Credentials) -> tuple[int, Any]:
        """Return HTTP status and body for a request: the body of a rejected one is empty.

        Raises:
            ConnectionResetError: The daemon died before it answered.
        """
        if credentials != self.credentials:
            return 401, None
        if self.warming_up:
            return 500, {"result": None, "error": {"code": -28, "message": "Loading wallet..."}, "id": None}
        if isinstance(request, list):
            return 200, [self._call(each)[1] for each in request]
        return self._call(request)

    def _call(self, call: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        result: Any = None
        status, error = 200, None
        match call["method"], call["params"]:
            case "getaddednodeinfo", []:
                result = [{"addednode": ip, "connected": False, "addresses": []} for ip in self.added]
            case "addnode", [ip, "add"]:
                self._count_down()
                if ip in self.added:
                    status, error = 500, {"code": -23, "message": "Error: Node already added"}
                else:
                    self.added.append(ip)
            case "addnode", [ip, "remove"]:
                self._count_down()
                if ip in self.added:
                    self.added.remove(ip)
                else:
                    status, error = 500, {"code": -24, "message": "Error: Node has not been added."}
            case _:
                status, error = 404, {"code": -32601, "message": "Method not found"}
        return status, {"result": result, "error": error, "id": call["id"]}

    def _count_down(self) -> None:
        if self.fail_after is None:
            return
        if self.fail_after == 0:
            self.fault = Fault.RESET
            raise ConnectionResetError(f"daemon {self.ip} was killed")
        self.fail_after -= 1


class ScriptedDaemons:
    """Plays many daemons on one loopback port: the path of a URL has the address of the daemon. Use it with ``async with``.

    A daemon exists from its first request or its first use by the test.

    Example:
        >>> async with ScriptedDaemons() as daemons, daemons.client() as rpc:
        ...     daemons["10.0.0.1"].added.append("10.0.0.2")
        ...     await rpc.added_nodes("10.0.0.1", CREDENTIALS)
        ['10.0.0.2']
    """

    def __init__(self) -> None:
        self.requests: list[RecordedRequest] = []
        self._daemons: dict[str, ScriptedDaemon] = {}
        self._connections: dict[int, int] = {}
        self._port = 0
        self._runner: web.ServerRunner | None = None

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True), shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def __getitem__(self, ip: str) -> ScriptedDaemon:
        return self._daemons.setdefault(ip, ScriptedDaemon(ip))

    def url_of(self, ip: str) -> str:
        """Return the URL of a daemon."""
        return f"http://127.0.0.1:{self._port}/{ip}/"

    def client(self, *, timeout: float = 5.0) -> RpcClient:
        """Return a new client of these daemons."""
        return RpcClient(timeout=timeout, url_of=self.url_of)

    def direct_client(self) -> DirectRpc:
        """Return a new client that calls these daemons without a socket."""
        return DirectRpc(self)

    def lists(self, ips: list[str] | None = None) -> dict[str, set[str]]:
        """Return the list of added nodes of each daemon, or of those with ``ips``."""
        return {ip: set(self[ip].added) for ip in (self._daemons if ips is None else ips)}

    def asked(self, ip: str = "") -> list[str]:
        """Return the recorded calls of a daemon, or of all."""
        return [method for request in self.requests if ip in ("", request.ip) for method in request.methods]

    def record(self, ip: str, request: Any, connection: int = 0) -> None:
        calls = request if isinstance(request, list) else [request]
        methods = tuple(" ".join([call["method"], *call["params"]]) for call in calls)
        self.requests.append(RecordedRequest(ip, methods, isinstance(request, list), connection))

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        daemon = self[request.path.strip("/")]
        body = json.loads(await request.read())
        self.record(daemon.ip, body, self._connections.setdefault(id(request.protocol), len(self._connections)))
        user, _, password = base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode().partition(":")
        match daemon.fault:
            case Fault.HANG:
                await daemon.released.wait()
            case Fault.RESET:
                return _reset(request)
            case Fault.ENDLESS:
                return await _endless(request)
            case Fault.NO_JSON:
                return web.Response(text="<html>502 Bad Gateway</html>", content_type="text/html", status=502)
        try:
            status, answer = daemon.answer(body, Credentials(user, password))
        except ConnectionResetError:
            return _reset(request)
        return web.Response(status=status, body=b"" if answer is None else json.dumps(answer).encode(), content_type="application/json")


class DirectRpc(RpcClient):
    """An RPC client that calls scripted daemons without a socket, so that a test on fake time sees when all work has ended."""

    def __init__(self, daemons: ScriptedDaemons) -> None:
        super().__init__()
        self._daemons = daemons

    async def _post(self, ip: str, credentials: Credentials, request: Any) -> Any:
        daemon = self._daemons[ip]
        self._daemons.record(ip, request)
        await asyncio.sleep(0)
        if daemon.fault is Fault.HANG:
            await daemon.released.wait()
        elif daemon.fault is not None:
            raise Unreachable(f"daemon {ip} cannot be reached")
        try:
            status, answer = daemon.answer(request, credentials)
        except ConnectionResetError:
            raise Unreachable(f"daemon {ip} cannot be reached") from None
        if status == 401:
            raise CredentialsRejected(f"daemon {ip} rejected the RPC credentials of user {credentials.user!r}")
        return answer


def _reset(request: web.BaseRequest) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _endless(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"[" * 65536)
