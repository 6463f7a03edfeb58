"""Upgrade requests passed on to a backend: its answer goes back as it is, and after 101 every byte goes both ways unread.

Source: k8s.io/apimachinery pkg/util/proxy/upgradeaware.go; RFC 9110 section 7.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from kubeloop.apiserver import api_errors
from kubeloop.apiserver.answers import Reply, StreamingResponse
from kubeloop.apiserver.kubelet.backends import FAULTS, Place, dial_fault, request_head, whole
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.http1.headers import Headers
from kubeloop.serving.answer import Duplex, Hijack
from kubeloop.serving.request import Request
from kubeloop.tasks import end_tasks

_LOG = logging.getLogger(__name__)

#: Seconds in which a backend must have said why it does not change the protocol.
_REFUSAL_TIME = 10.0
_REFUSAL_SIZE = 1 << 20
#: Headers that this server has read for itself: they are nobody else's business.
_OWN = frozenset(
    {"authorization", "impersonate-user", "impersonate-uid", "impersonate-group", "x-remote-user", "x-remote-uid", "x-remote-group"}
)
_OWN_PREFIXES = "impersonate-extra-", "x-remote-extra-"


#: Makes headers for a backend of those that are passed on.
Rewrite = Callable[[list[tuple[str, str]]], list[tuple[str, str]]]


def unchanged(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return headers


def is_upgrade(request: Request) -> bool:
    return "upgrade" in request.header("Connection").lower()


def is_websocket(request: Request) -> bool:
    return is_upgrade(request) and request.header("Upgrade").lower() == "websocket"


def subprotocols(request: Request) -> list[str]:
    """What a WebSocket client offers, the most wanted first."""
    return [one.strip() for one in request.header("Sec-WebSocket-Protocol").split(",") if one.strip()]


def forwarded_headers(request: Request, *, without: Iterable[str] = ()) -> list[tuple[str, str]]:
    """The client's headers for a backend: all but those that were meant for this server, and with its own address added."""
    left_out = {*_OWN, "host", "x-forwarded-for", *without}
    passed = [
        (name, value)
        for name, value in request.headers.items()
        if name.lower() not in left_out and not name.lower().startswith(_OWN_PREFIXES)
    ]
    before = [value for name, value in request.headers.items() if name.lower() == "x-forwarded-for"]
    return [("Host", request.header("Host")), *passed, ("X-Forwarded-For", ", ".join([*before, request.remote]))]


class NoAnswer(Exception):
    """The backend could not be reached or did not answer. ``why`` in Go's words; ``connected``: it took the connection."""

    def __init__(self, why: str, *, connected: bool) -> None:
        super().__init__(why)
        self.why = why
        self.connected = connected


async def pass_on(request: Request, place: Place, rewrite: Rewrite = unchanged) -> Reply:
    """What the backend says: a change of protocol, or its refusal. ``rewrite`` has the last word on the headers that go to it.

    Raises:
        ApiError: 500 without a reason: no answer, or one that is neither.
    """
    # No body goes with it: what the client sends must never be read by the backend as anything but the protocol that it agreed to.
    headers = forwarded_headers(request, without=("content-length", "transfer-encoding"))
    if request.method in ("POST", "PUT", "PATCH"):
        headers.append(("Content-Length", "0"))
    answer = await upgrade(place, request.method, rewrite(headers))
    if isinstance(answer, StreamingResponse):
        return answer
    wire, received = answer
    return Hijack(lambda duplex: relay(duplex, wire), pairs(received), close=wire.abort)


async def upgrade(place: Place, method: str, headers: list[tuple[str, str]]) -> StreamingResponse | tuple[ClientConnection, Headers]:
    """The connection after 101, with the backend's headers; or its refusal (400 and above). Errors as ``pass_on``."""
    try:
        return await ask_for_upgrade(place, method, headers)
    except NoAnswer as fault:
        raise api_errors.internal(fault.why if fault.connected else f"error dialing backend: {fault.why}") from None


async def ask_for_upgrade(
    place: Place, method: str, headers: list[tuple[str, str]]
) -> StreamingResponse | tuple[ClientConnection, Headers]:
    """As ``upgrade``, but raises NoAnswer where there is none."""
    wire = None
    try:
        wire = await place.connect()
        status, received = await wire.exchange(method, request_head(method, place.target, headers), None, upgrade=True)
        if status == 101:
            return wire, received
        if status >= 400:
            return await _refusal(wire, status, received)
    except FAULTS as fault:
        _abort(wire)
        raise NoAnswer(dial_fault(fault, place), connected=wire is not None) from None
    except BaseException:
        _abort(wire)
        raise
    _abort(wire)
    raise api_errors.internal(f"invalid upgrade response: status code {status}")


def pairs(headers: Headers) -> list[tuple[str, str]]:
    """Each header line, its name written as usual."""
    return [("-".join(part.capitalize() for part in name.split("-")), value) for name in headers for value in headers.values_of(name)]


async def relay(client: Duplex, wire: ClientConnection) -> None:
    """Bytes both ways until one side ends."""
    ways = [asyncio.ensure_future(_to_backend(client, wire)), asyncio.ensure_future(_to_client(client, wire))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*ways, expected=FAULTS, logger=_LOG)


async def _to_backend(client: Duplex, wire: ClientConnection) -> None:
    try:
        while data := await client.read():
            await wire.write(data)
    except FAULTS:
        return


async def _to_client(client: Duplex, wire: ClientConnection) -> None:
    try:
        while data := await wire.chunk():
            await client.write(data)
    except FAULTS:
        return


async def _refusal(wire: ClientConnection, status: int, headers: Headers) -> StreamingResponse:
    body = b""
    try:
        async with asyncio.timeout(_REFUSAL_TIME):
            while len(body) < _REFUSAL_SIZE and (part := await wire.chunk()):
                body += part
    except FAULTS:
        pass  # what came of it is passed on
    finally:
        wire.abort()
    framing = ("content-length", "transfer-encoding", "connection", "keep-alive")
    passed = [(name, value) for name, value in pairs(headers) if name.lower() not in framing]
    return whole(status, body, headers.get("Content-Type", ""), passed)


def _abort(wire: ClientConnection | None) -> None:
    if wire is not None:
        wire.abort()
