"""``/exec``, ``/attach`` and ``/portforward`` of pods: connections that become streams between the client and the pod's kubelet.

WebSockets of a kind that the node's kubelet does not know are translated (``translating``, ``tunnelling``); all else is passed on as it
comes. Source: k8s.io/kubernetes pkg/registry/core/pod/rest/subresources.go, KEP-4006.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from msgspec import structs

from kubeloop.apiserver import api_errors
from kubeloop.apiserver.answers import Reply, StreamingResponse, text
from kubeloop.apiserver.authorization import access_of
from kubeloop.apiserver.kubelet.backends import SAFE, Place
from kubeloop.apiserver.kubelet.nodes import kubelet_of
from kubeloop.apiserver.kubelet.objects import container_of, pod_of
from kubeloop.apiserver.kubelet.options import Parameters, encoded, port_parameters, stream_parameters
from kubeloop.apiserver.kubelet.translating import V5, translate
from kubeloop.apiserver.kubelet.upgrading import forwarded_headers, is_upgrade, is_websocket, pass_on, relay, subprotocols, upgrade
from kubeloop.apiserver.request_scope import RequestScope
from kubeloop.serving.answer import Socket, SocketTakeover
from kubeloop.serving.request import Request
from kubeloop.serving.spdy import PROTOCOL, STREAM_PROTOCOL

# port-forward by WebSocket for kubelets that speak only SPDY: the client's SPDY bytes, which come in messages, go on as they are.
#
# Source: KEP-4006; k8s.io/apiserver pkg/util/proxy (tunnelling handler).


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
    if isinstance(answer, StreamingResponse):
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


@dataclass(frozen=True, slots=True)
class _Wanted:
    place: Place
    websockets: bool
    parameters: Parameters


async def exec_(exchange: RequestScope) -> Reply:
    """Run a command in a container."""
    parameters = stream_parameters(exchange.request, command=True)
    return await _run(exchange, await _in_container(exchange, "exec", parameters))


async def attach(exchange: RequestScope) -> Reply:
    """Take part in what a container's process reads and writes."""
    parameters = stream_parameters(exchange.request, command=False)
    return await _run(exchange, await _in_container(exchange, "attach", parameters))


async def port_forward(exchange: RequestScope) -> Reply:
    """Connections to ports of a pod."""
    _may_create(exchange)
    parameters = port_parameters(exchange.request)
    wanted = await _wanted(exchange, "portForward", "", parameters)
    if not wanted.websockets and is_websocket(exchange.request) and is_tunnel(exchange.request):
        return await tunnel(exchange.request, wanted.place)
    return await _pass_on(exchange, wanted)


async def _in_container(exchange: RequestScope, action: str, parameters: Parameters) -> _Wanted:
    _may_create(exchange)
    pod = await pod_of(exchange, exchange.info.name)
    return await _wanted(exchange, action, container_of(pod, exchange.request.parameter("container")), parameters)


def _may_create(exchange: RequestScope) -> None:
    """WebSockets come as GET; what they do needs the permission to create all the same (kubernetes issue 133515).

    Raises:
        BadRequest: a dry run, which there is none of.
        Forbidden
    """
    if "dryRun" in exchange.request.query:
        raise api_errors.bad_request("dryRun is not supported")
    if exchange.info.verb != "create":
        decision = exchange.parts.authorizer.authorize(access_of(exchange.user, structs.replace(exchange.info, verb="create")))
        if not decision.allowed:
            raise api_errors.forbidden(exchange.info.group_resource, exchange.info.name, decision.reason)


async def _wanted(exchange: RequestScope, action: str, container: str, parameters: Parameters) -> _Wanted:
    name = exchange.info.name
    pod = await pod_of(exchange, name)
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        raise api_errors.bad_request(f"pod {name} does not have a host assigned")
    kubelet = await kubelet_of(exchange, node)
    parts = ["", action, exchange.namespace, name, *([container] if container else [])]
    path = quote("/".join(parts), safe=SAFE)
    place = Place(kubelet.host, kubelet.port, exchange.parts.kubelets.context, path, encoded(parameters))
    return _Wanted(place, kubelet.websockets, parameters)


async def _run(exchange: RequestScope, wanted: _Wanted) -> Reply:
    request = exchange.request
    if not wanted.websockets and is_websocket(request) and V5 in subprotocols(request):
        return translate(wanted.place, frozenset(name for name, _ in wanted.parameters))
    return await _pass_on(exchange, wanted)


async def _pass_on(exchange: RequestScope, wanted: _Wanted) -> Reply:
    if not is_upgrade(exchange.request):
        raise api_errors.bad_request("Upgrade request required")
    return await pass_on(exchange.request, wanted.place)
