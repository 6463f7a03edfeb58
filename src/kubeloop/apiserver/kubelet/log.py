"""``/log`` of pods: a container's log, streamed from its kubelet.

Source: k8s.io/kubernetes pkg/registry/core/pod/rest/log.go; k8s.io/apiserver pkg/registry/generic/rest (LocationStreamer).
"""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from datetime import timedelta
from urllib.parse import quote

from kubeloop.apiserver import api_errors
from kubeloop.apiserver.answers import Answer, Reply, StreamingResponse
from kubeloop.apiserver.kubelet.backends import FAULTS, SAFE, Place, dial_fault, request_head
from kubeloop.apiserver.kubelet.nodes import is_simulated, kubelet_of
from kubeloop.apiserver.kubelet.objects import PODS, container_of, find, pod_of
from kubeloop.apiserver.kubelet.options import encoded, log_parameters, truth
from kubeloop.apiserver.kubelet.upgrading import is_websocket, subprotocols
from kubeloop.apiserver.negotiation import MEDIA_TYPES, negotiate
from kubeloop.apiserver.request_scope import RequestScope
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.time import parse_time
from kubeloop.serving.answer import Socket, SocketTakeover
from kubeloop.serving.negotiation import parse_accept
from kubeloop.tasks import end_tasks
from kubeloop.types import JSONObject

# Logs of pods on simulated nodes: the lines of an annotation of the pod, none without it, as a kubelet would answer them.
#
# Source: Kubernetes pkg/kubelet/kubelet_pods.go (validateContainerLogStatus), pkg/kubelet/kuberuntime/logs (options of a log).


#: The text that each container of a pod on a simulated node has logged. kubeloop.controlplane.simulation lists all such annotations.
LOG = "simulated.kubeloop.dev/log"
#: Seconds between two looks at a pod whose log is followed.
_POLL = 0.5
_KINDS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


def read_log(exchange: RequestScope, pod: JSONObject, container: str, parameters: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Return the log of a container on a simulated node.

    A log that is followed goes on, without further lines, until the container ends or the pod is gone.

    Args:
        exchange: The request.
        pod: The pod as it is stored.
        container: A container of the pod.
        parameters: Those that a kubelet would be asked with, such as ``{"follow": "true", "tailLines": "3"}``.

    Raises:
        BadRequest: the container has not begun to run, or has no previous instance; in the kubelet's words.
    """
    started = _started(pod, container, previous="previous" in parameters)
    lines = ((pod["metadata"].get("annotations") or {}).get(LOG) or "").splitlines(keepends=True)
    if not _is_wanted(started, parameters, exchange):
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
    return _stream(exchange, pod, container, text, follow=follow)


async def _stream(exchange: RequestScope, pod: JSONObject, container: str, text: bytes, *, follow: bool) -> AsyncIterator[bytes]:
    if text:
        yield text
    metadata = pod["metadata"]
    while follow:
        found = await find(exchange, PODS, metadata.get("namespace", ""), metadata["name"])
        if (
            found is None
            or found["metadata"]["uid"] != metadata["uid"]
            or not (_status(found, container).get("state") or {}).get("running")
        ):
            return
        await exchange.parts.clock.sleep(_POLL)


def _started(pod: JSONObject, container: str, *, previous: bool) -> str:
    """Return when the instance of a container whose log is asked for began to run."""
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


def _is_wanted(started: str, parameters: Mapping[str, str], exchange: RequestScope) -> bool:
    """Return whether lines of that time are asked for: all lines count as logged when the container began."""
    if not started:
        return True
    if "sinceTime" in parameters:
        return parse_time(started) >= parse_time(parameters["sinceTime"])
    if "sinceSeconds" in parameters:
        return parse_time(started) >= exchange.parts.clock.wall() - timedelta(seconds=int(parameters["sinceSeconds"]))
    return True


_LOGGER = logging.getLogger(__name__)

_TEXT = "text/plain"
_BASE64 = "base64.binary.k8s.io"
_PROTOCOLS = ("binary.k8s.io", _BASE64)
_LOG = GroupResource("", "pods/log")
#: Bytes of a kubelet's refusal that are passed on.
_REFUSAL_SIZE = 50_000

#: What client programs of Kubernetes, the API server among them, make of an answer's status: reason and message; None: the body says it.
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


async def log(exchange: RequestScope) -> Reply:
    """The log as text, to WebSockets as messages; 204 for a pod that has no node yet."""
    _check_accept(exchange.request.header("Accept"))
    by_socket = is_websocket(exchange.request)
    offered = subprotocols(exchange.request)
    name = exchange.info.name
    parameters = log_parameters(exchange.request, name)
    pod = await pod_of(exchange, name)
    container = container_of(pod, exchange.request.parameter("container"))
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        return Answer(204, body=b"")
    if await is_simulated(exchange, node):
        chunks = read_log(exchange, pod, container, dict(parameters))
        return _reply(chunks, by_socket=by_socket, offered=offered)
    kubelet = await kubelet_of(exchange, node)
    credentials = exchange.parts.kubelets
    tls = credentials.unverified if truth(exchange.request, "insecureSkipTLSVerifyBackend") else credentials.context
    path = quote(f"/containerLogs/{exchange.namespace}/{name}/{container}", safe=SAFE)
    place = Place(kubelet.host, kubelet.port, tls, path, encoded(parameters))
    wire, status = await _ask(place)
    if not 200 <= status <= 206:
        raise await _refused(wire, status, name)
    return _reply(_chunks(wire), by_socket=by_socket, offered=offered, close=wire.abort)


def _nothing() -> None:
    """There is no connection to end."""


def _reply(chunks: AsyncIterator[bytes], *, by_socket: bool, offered: Collection[str], close: Callable[[], None] = _nothing) -> Reply:
    """Return a log as the client asked for it; ``close`` ends the connection that it comes from."""
    if by_socket and offered and not set(offered) & set(_PROTOCOLS):
        close()
        return Answer(403, body=b"")
    if by_socket:
        return SocketTakeover(lambda socket: _messages(socket, chunks), _PROTOCOLS, close=close)
    return StreamingResponse(chunks, content_type=_TEXT)


def _check_accept(header: str) -> None:
    """Upstream's router takes text/plain for this path, the handler behind it does not."""
    try:
        if negotiate(header).form:
            raise api_errors.not_acceptable(MEDIA_TYPES)
    except ApiError:
        if any(clause.media_type in (_TEXT, *MEDIA_TYPES) for clause in parse_accept(header)):
            raise api_errors.not_acceptable(MEDIA_TYPES) from None
        raise api_errors.not_acceptable_at_all((_TEXT, *MEDIA_TYPES)) from None


async def _ask(place: Place) -> tuple[ClientConnection, int]:
    """Raises ApiError, 500 without a reason, as upstream's: the kubelet gave no answer."""
    wire = None
    try:
        wire = await place.connect()
        head = request_head("GET", place.target, [("Host", place.authority), ("User-Agent", "kubeloop")])
        status, headers = await wire.exchange("GET", head, None)
    except FAULTS as fault:
        if wire is not None:
            wire.abort()
        raise api_errors.internal(f"Get {json.dumps(place.url)}: {dial_fault(fault, place)}") from None
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
    except FAULTS as fault:
        return api_errors.internal_error(str(fault))
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
    return api_errors.refusal(status, reason, f"{shown} ( {_LOG.resource} {pod})", api_errors.about(_LOG, pod))


async def _messages(socket: Socket, chunks: AsyncIterator[bytes]) -> None:
    """An empty message first, so that the client knows that it is connected; then the log, encoded as the protocol says."""
    encoded = socket.protocol == _BASE64

    async def send() -> None:
        await socket.send("" if encoded else b"")
        async for part in chunks:
            await socket.send(b64encode(part).decode() if encoded else part)

    async def until_client_goes() -> None:
        while await socket.receive() is not None:
            pass

    ways = [asyncio.ensure_future(send()), asyncio.ensure_future(until_client_goes())]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*ways, expected=FAULTS, logger=_LOGGER)


async def _chunks(wire: ClientConnection) -> AsyncIterator[bytes]:
    """The body. A log that breaks off ends there: its status has been sent."""
    try:
        while True:
            try:
                part = await wire.chunk()
            except FAULTS:
                return
            if not part:
                return
            yield part
    finally:
        wire.abort()
