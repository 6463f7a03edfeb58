"""port-forward by WebSocket for kubelets that speak only SPDY: the client's SPDY bytes, which come in messages, go on as they are.

Source: KEP-4006; k8s.io/apiserver pkg/util/proxy (tunnelling handler).
"""

from __future__ import annotations

from kubeloop.apiserver.answers import Frames, Reply, text
from kubeloop.apiserver.kubelet.backends import Place
from kubeloop.apiserver.kubelet.upgrading import forwarded_headers, relay, subprotocols, upgrade
from kubeloop.serving.answer import Socket, SocketTakeover
from kubeloop.serving.request import Request
from kubeloop.serving.spdy import PROTOCOL, STREAM_PROTOCOL

_PREFIX = f"{PROTOCOL}+"
_SUFFIX = ".k8s.io"
_OF_WEBSOCKETS = ("sec-websocket-protocol", "sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions")


def is_tunnel(request: Request) -> bool:
    """Whether a WebSocket is to carry SPDY."""
    return bool(_tunnelled(request))


async def tunnel(request: Request, place: Place) -> Reply:
    """The client's WebSocket once the kubelet has agreed, or the kubelet's refusal. Errors as ``upgrading.pass_on``."""
    headers = forwarded_headers(request, without=(*_OF_WEBSOCKETS, "upgrade", STREAM_PROTOCOL.lower(), "content-length"))
    headers += [("Upgrade", PROTOCOL), ("Content-Length", "0"), *((STREAM_PROTOCOL, one) for one in _tunnelled(request))]
    answer = await upgrade(place, "POST", headers)
    if isinstance(answer, Frames):
        return answer
    wire, received = answer
    if PROTOCOL.lower() not in received.get("Upgrade", "").lower():
        wire.abort()
        return text("unable to upgrade: missing upgrade headers in response\n", 500)
    chosen = received.get(STREAM_PROTOCOL, "").strip()
    protocols = (f"{_PREFIX}{chosen}",) if chosen else ()
    return SocketTakeover(lambda socket: relay(_SocketBytes(socket), wire), protocols, close=wire.abort)


def _tunnelled(request: Request) -> list[str]:
    return [one.removeprefix(_PREFIX) for one in subprotocols(request) if one.startswith(_PREFIX) and one.endswith(_SUFFIX)]


class _SocketBytes:
    """The bytes within a WebSocket's binary messages."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while True:
            message = await self._socket.receive()
            if not isinstance(message, bytes):
                return b""  # the end, or text, which is no part of a tunnel
            if message:
                return message

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)
