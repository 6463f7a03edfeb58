"""Subresources of pods that their node's kubelet serves: log, exec, attach, portforward."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote

from msgspec import structs

from kubeloop.apiserver.handlers.kubelet.nodes import PODS, container_of, find, is_simulated, kubelet_of, pod_of
from kubeloop.apiserver.handlers.kubelet.options import Parameters, is_true_parameter, log_parameters, port_parameters, stream_parameters
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import access_of
from kubeloop.endpoints.negotiation import MEDIA_TYPES, negotiate
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.time import parse_time
from kubeloop.reverseproxy.backend import BACKEND_ERRORS, PATH_SAFE, Backend, encode_query, error_text, request_head
from kubeloop.reverseproxy.stream_translator import V5, translate
from kubeloop.reverseproxy.upgrade import is_tunnel, is_upgrade, is_websocket, proxy_tunnel, proxy_upgrade, subprotocols
from kubeloop.serving.answer import Answer, Reply, Socket, SocketTakeover, StreamingResponse
from kubeloop.serving.negotiation import parse_accept
from kubeloop.tasks import end_tasks
from kubeloop.types import JSONObject

# ``/log`` of pods: a container's log, streamed from its kubelet.
#
# Source: k8s.io/kubernetes pkg/registry/core/pod/rest/log.go; k8s.io/apiserver pkg/registry/generic/rest (LocationStreamer).


# Logs of pods on simulated nodes: the lines of an annotation of the pod, in a kubelet's responses.
#
# Source: Kubernetes pkg/kubelet/kubelet_pods.go (validateContainerLogStatus), pkg/kubelet/kuberuntime/logs (options of a log).


#: Annotation with the log of each container of a pod on a simulated node; one of those in kubeloop.controlplane.simulation.annotations.
LOG = "simulated.kubeloop.dev/log"
#: Seconds between two reads of a pod whose log a client follows.
_POLL = 0.5
_KINDS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


def read_log(scope: RequestScope, pod: JSONObject, container: str, parameters: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Return the log of a container on a simulated node.

    A followed log stays open, without further lines, until the container ends or the pod is deleted.

    Args:
        scope: The request.
        pod: The pod as it is stored.
        container: A container of the pod.
        parameters: Query parameters for a kubelet, such as ``{"follow": "true", "tailLines": "3"}``.

    Raises:
        BadRequest: The container has not started, or has no previous instance; the message is the kubelet's.
    """
    started = _started(pod, container, previous="previous" in parameters)
    lines = ((pod["metadata"].get("annotations") or {}).get(LOG) or "").splitlines(keepends=True)
    if not _is_included(started, parameters, scope):
        lines = []
    if "tailLines" in parameters:
        count = int(parameters["tailLines"])
        lines = lines[len(lines) - min(count, len(lines)) :]
    if "timestamps" in parameters:
        lines = [f"{started} {line}" for line in lines]
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines).encode()
    if "limitBytes" in parameters:
        text = text[: int(parameters["limitBytes"])]
    follow = "follow" in parameters and "previous" not in parameters and "limitBytes" not in parameters
    return _stream(scope, pod, container, text, follow=follow)


async def _stream(scope: RequestScope, pod: JSONObject, container: str, text: bytes, *, follow: bool) -> AsyncIterator[bytes]:
    if text:
        yield text
    metadata = pod["metadata"]
    while follow:
        stored = await find(scope, PODS, metadata.get("namespace", ""), metadata["name"])
        if (
            stored is None
            or stored["metadata"]["uid"] != metadata["uid"]
            or not (_status(stored, container).get("state") or {}).get("running")
        ):
            return
        await scope.services.clock.sleep(_POLL)


def _started(pod: JSONObject, container: str, *, previous: bool) -> str:
    """Return the start time of the container instance that logged.

    Raises:
        BadRequest: There is no such instance.
    """
    status, name = _status(pod, container), pod["metadata"]["name"]
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated")
    if not status:
        raise api_errors.bad_request(f'container "{container}" in pod "{name}" is not available')
    if previous:
        if last is None:
            raise api_errors.bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
        return str(last.get("startedAt") or "")
    chosen = state.get("running") or state.get("terminated") or last
    if chosen is None:
        reason = (state.get("waiting") or {}).get("reason")
        raise api_errors.bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    return str(chosen.get("startedAt") or "")


def _status(pod: JSONObject, container: str) -> JSONObject:
    statuses = pod.get("status") or {}
    return next((one for kind in _KINDS for one in statuses.get(kind) or () if one["name"] == container), {})


def _is_included(started: str, parameters: Mapping[str, str], scope: RequestScope) -> bool:
    """Return whether sinceTime or sinceSeconds includes the lines of a container.

    All lines have the time at which the container started.
    """
    if not started:
        return True
    if "sinceTime" in parameters:
        return parse_time(started) >= parse_time(parameters["sinceTime"])
    if "sinceSeconds" in parameters:
        return parse_time(started) >= scope.services.clock.wall() - timedelta(seconds=int(parameters["sinceSeconds"]))
    return True


_LOG = logging.getLogger("kubeloop.apiserver.kubelet")

_TEXT = "text/plain"
_BASE64 = "base64.binary.k8s.io"
_PROTOCOLS = ("binary.k8s.io", _BASE64)
_POD_LOG = GroupResource("", "pods/log")
#: Maximum bytes of a kubelet's error that the client gets.
_REFUSAL_SIZE = 50_000

#: HTTP status -> reason and message, as client-go makes them; None: the message is the body.
_REFUSALS: dict[int, tuple[str, str | None]] = {
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    403: ("Forbidden", None),
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    406: ("NotAcceptable", None),
    409: ("Conflict", "the server reported a conflict"),
    415: ("UnsupportedMediaType", None),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "the server was unable to return a response in the time allotted, but may still be processing the request"),
}


async def log(scope: RequestScope) -> Reply:
    """Serve a container's log, as text or as messages of a WebSocket. The response is 204 if the pod has no node yet."""
    _check_accept(scope.request.header("Accept"))
    by_socket = is_websocket(scope.request)
    offered = subprotocols(scope.request)
    name = scope.info.name
    parameters = log_parameters(scope.request, name)
    pod = await pod_of(scope, name)
    container = container_of(pod, scope.request.parameter("container"))
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        return Answer(204, body=b"")
    if await is_simulated(scope, node):
        chunks = read_log(scope, pod, container, dict(parameters))
        return _reply(chunks, by_socket=by_socket, offered=offered)
    kubelet = await kubelet_of(scope, node)
    credentials = scope.services.kubelets
    tls = credentials.unverified if is_true_parameter(scope.request, "insecureSkipTLSVerifyBackend") else credentials.context
    path = quote(f"/containerLogs/{scope.namespace}/{name}/{container}", safe=PATH_SAFE)
    backend = Backend(kubelet.host, kubelet.port, tls, path, encode_query(parameters))
    wire, status = await _ask(backend)
    if not 200 <= status <= 206:
        raise await _refused(wire, status, name)
    return _reply(_chunks(wire), by_socket=by_socket, offered=offered, close=wire.abort)


def _nothing() -> None:
    """Do nothing: there is no connection to close."""


def _reply(chunks: AsyncIterator[bytes], *, by_socket: bool, offered: Collection[str], close: Callable[[], None] = _nothing) -> Reply:
    """Return a log as text or as a WebSocket; ``close`` closes the connection to the kubelet."""
    if by_socket and offered and not set(offered) & set(_PROTOCOLS):
        close()
        return Answer(403, body=b"")
    if by_socket:
        return SocketTakeover(lambda socket: _messages(socket, chunks), _PROTOCOLS, close=close)
    return StreamingResponse(chunks, content_type=_TEXT)


def _check_accept(header: str) -> None:
    """Check the Accept header. Upstream's router accepts text/plain for this path, and its handler does not.

    Raises:
        NotAcceptable: The client accepts no media type of the server.
    """
    try:
        if negotiate(header).form:
            raise api_errors.not_acceptable(MEDIA_TYPES)
    except ApiError:
        if any(clause.media_type in (_TEXT, *MEDIA_TYPES) for clause in parse_accept(header)):
            raise api_errors.not_acceptable(MEDIA_TYPES) from None
        raise api_errors.not_acceptable_at_all((_TEXT, *MEDIA_TYPES)) from None


async def _ask(backend: Backend) -> tuple[ClientConnection, int]:
    """Send a GET request to a kubelet.

    Raises:
        ApiError: 500 without a reason, as upstream: the kubelet sent no response.
    """
    wire = None
    try:
        wire = await backend.connect()
        head = request_head("GET", backend.target, [("Host", backend.authority), ("User-Agent", "kubeloop")])
        status, headers = await wire.exchange("GET", head, None)
    except BACKEND_ERRORS as error:
        if wire is not None:
            wire.abort()
        raise api_errors.internal(f"Get {json.dumps(backend.url)}: {error_text(error, backend)}") from None
    except BaseException:
        if wire is not None:
            wire.abort()
        raise
    if status in (301, 302, 303, 307, 308) and headers.get("Location"):
        wire.abort()
        raise api_errors.internal(f"Get {json.dumps(headers.get('Location', ''))}: redirects forbidden")
    return wire, status


async def _refused(wire: ClientConnection, status: int, pod: str) -> ApiError:
    body = b""
    try:
        async with asyncio.timeout(10):
            while len(body) < _REFUSAL_SIZE and (part := await wire.chunk()):
                body += part
    except BACKEND_ERRORS as error:
        return api_errors.internal_error(str(error))
    finally:
        wire.abort()
    text = body[:_REFUSAL_SIZE].decode("utf-8", "replace")
    if status == 500:
        return api_errors.internal_error(text)
    if status == 400:
        return api_errors.bad_request(text)
    reason, message = _REFUSALS.get(status, ("", f"the server responded with the status code {status} but did not return more information"))
    if status not in _REFUSALS and status > 500:
        reason, message = "InternalError", f"an error on the server ({json.dumps(text)}) has prevented the request from succeeding"
    shown = text if message is None else message
    return api_errors.refusal(status, reason, f"{shown} ( {_POD_LOG.resource} {pod})", api_errors.about(_POD_LOG, pod))


async def _messages(socket: Socket, chunks: AsyncIterator[bytes]) -> None:
    """Send an empty message, which shows the client that it is connected; then the log, encoded for the protocol."""
    encoded = socket.protocol == _BASE64

    async def send() -> None:
        await socket.send("" if encoded else b"")
        async for part in chunks:
            await socket.send(b64encode(part).decode() if encoded else part)

    async def until_client_ends() -> None:
        while await socket.receive() is not None:
            pass

    tasks = [asyncio.ensure_future(send()), asyncio.ensure_future(until_client_ends())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*tasks, expected=BACKEND_ERRORS, logger=_LOG)


async def _chunks(wire: ClientConnection) -> AsyncIterator[bytes]:
    """Yield the body of a kubelet's response. An error ends the log, because the status of the response has already been sent."""
    try:
        while True:
            try:
                part = await wire.chunk()
            except BACKEND_ERRORS:
                return
            if not part:
                return
            yield part
    finally:
        wire.abort()


# ``/exec``, ``/attach`` and ``/portforward`` of pods: connections that become streams between the client and the pod's kubelet.
#
# The server translates WebSocket protocols that a node's kubelet does not know, and proxies all others unchanged.
#
# Source: k8s.io/kubernetes pkg/registry/core/pod/rest/subresources.go, KEP-4006.


@dataclass(frozen=True, slots=True)
class _Stream:
    backend: Backend
    websockets: bool
    parameters: Parameters


async def exec_(scope: RequestScope) -> Reply:
    """Connect a client to a command that runs in a container."""
    parameters = stream_parameters(scope.request, command=True)
    return await _run(scope, await _in_container(scope, "exec", parameters))


async def attach(scope: RequestScope) -> Reply:
    """Connect a client to the input and output of a container's process."""
    parameters = stream_parameters(scope.request, command=False)
    return await _run(scope, await _in_container(scope, "attach", parameters))


async def port_forward(scope: RequestScope) -> Reply:
    """Forward connections of a client to ports of a pod."""
    _check_create(scope)
    parameters = port_parameters(scope.request)
    stream = await _stream_of(scope, "portForward", "", parameters)
    if not stream.websockets and is_websocket(scope.request) and is_tunnel(scope.request):
        return await proxy_tunnel(scope.request, stream.backend)
    return await _proxy(scope, stream)


async def _in_container(scope: RequestScope, action: str, parameters: Parameters) -> _Stream:
    _check_create(scope)
    pod = await pod_of(scope, scope.info.name)
    return await _stream_of(scope, action, container_of(pod, scope.request.parameter("container")), parameters)


def _check_create(scope: RequestScope) -> None:
    """Check that the user may create the subresource. WebSockets need this right too, although they use GET (kubernetes issue 133515).

    Raises:
        BadRequest: The request is a dry run.
        Forbidden: The user may not create the subresource.
    """
    if "dryRun" in scope.request.query:
        raise api_errors.bad_request("dryRun is not supported")
    if scope.info.verb != "create":
        decision = scope.services.authorizer.authorize(access_of(scope.user, structs.replace(scope.info, verb="create")))
        if not decision.allowed:
            raise api_errors.forbidden(scope.info.group_resource, scope.info.name, decision.reason)


async def _stream_of(scope: RequestScope, action: str, container: str, parameters: Parameters) -> _Stream:
    name = scope.info.name
    pod = await pod_of(scope, name)
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        raise api_errors.bad_request(f"pod {name} does not have a host assigned")
    kubelet = await kubelet_of(scope, node)
    parts = ["", action, scope.namespace, name, *([container] if container else [])]
    path = quote("/".join(parts), safe=PATH_SAFE)
    backend = Backend(kubelet.host, kubelet.port, scope.services.kubelets.context, path, encode_query(parameters))
    return _Stream(backend, kubelet.websockets, parameters)


async def _run(scope: RequestScope, stream: _Stream) -> Reply:
    request = scope.request
    if not stream.websockets and is_websocket(request) and V5 in subprotocols(request):
        return translate(stream.backend, frozenset(name for name, _ in stream.parameters))
    return await _proxy(scope, stream)


async def _proxy(scope: RequestScope, stream: _Stream) -> Reply:
    if not is_upgrade(scope.request):
        raise api_errors.bad_request("Upgrade request required")
    return await proxy_upgrade(scope.request, stream.backend)
