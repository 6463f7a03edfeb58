"""Translation of exec and attach between WebSocket clients (v5.channel.k8s.io) and kubelets that speak only SPDY.

Each channel of the WebSocket corresponds to one SPDY stream.

Source: KEP-4006; k8s.io/apiserver pkg/util/proxy (stream translator), k8s.io/client-go tools/remotecommand (protocols v1 to v5).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from kubeloop.endpoints import api_errors
from kubeloop.endpoints.encoding import encode
from kubeloop.endpoints.responses import status_object
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.meta.errors import ApiError, KubeloopError
from kubeloop.meta.status import Status, StatusCause, StatusDetails
from kubeloop.reverseproxy.backend import BACKEND_ERRORS, Backend, BackendStream
from kubeloop.reverseproxy.upgrade import BackendUnreachable, request_upgrade
from kubeloop.serving.answer import Socket, SocketTakeover, StreamingResponse
from kubeloop.serving.spdy import PROTOCOL, STREAM_PROTOCOL, SpdyConnection, SpdyError, SpdyStream, StreamReset
from kubeloop.tasks import end_tasks

_LOG = logging.getLogger("kubeloop.reverseproxy")

V5 = "v5.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255

#: Protocols of the streams, the preferred ones first. Since v4 the error stream carries a Status.
_PROTOCOLS = (V5, "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
_WITH_STATUS = _PROTOCOLS[:2]
_WITH_RESIZE = _PROTOCOLS[:3]
#: Seconds between pings. Pings prevent proxies on the way from closing the connection of a command without output.
_PING_PERIOD = 5.0
#: Maximum bytes of an error stream.
_ERROR_SIZE = 1 << 20
#: Timeout in seconds for opening all streams.
_OPEN_TIME = 30.0
_NON_ZERO = "NonZeroExitCode"
_EXIT_CODE = "ExitCode"


def translate(place: Backend, names: frozenset[str]) -> SocketTakeover:
    """Return a WebSocket response whose channels are forwarded as SPDY streams to a kubelet.

    The client's handshake succeeds before the kubelet is called. If the kubelet refuses, the error channel carries the refusal.

    Args:
        place: The kubelet, with the path and query of the command.
        names: The query parameters of the kubelet that are set: any of ``input``, ``output``, ``error`` and ``tty``.
    """
    return SocketTakeover(lambda socket: _Translation(socket, place, names).run(), protocols=(V5,))


class _Translation:
    """The translation of one command. All its tasks and connections have ended when ``run`` returns."""

    def __init__(self, socket: Socket, place: Backend, names: frozenset[str]) -> None:
        self._socket = socket
        self._place = place
        self._stdin = "input" in names
        self._outputs = [channel for channel, name in ((_STDOUT, "output"), (_STDERR, "error")) if name in names]
        self._tty = "tty" in names

    async def run(self) -> None:
        # An empty message on the first output channel shows the client that it is connected.
        await self._send(self._outputs[0] if self._outputs else _ERROR, b"")
        wire: ClientConnection | None = None
        try:
            wire, protocol = await self._upgraded()
            status = await self._until_client_ends(self._command(wire, protocol))
        except ApiError as refusal:
            status = refusal.status
        finally:
            if wire is not None:
                wire.abort()
        if status is not None:
            tree = status_object(status)
            await self._send(_ERROR, encode({name: tree[name] for name in tree if name not in ("kind", "apiVersion")}))

    async def _upgraded(self) -> tuple[ClientConnection, str]:
        headers = [
            ("Host", self._place.authority),
            ("User-Agent", "kubeloop"),
            ("Content-Length", "0"),
            ("Connection", "Upgrade"),
            ("Upgrade", PROTOCOL),
            *((STREAM_PROTOCOL, one) for one in _PROTOCOLS),
        ]
        try:
            answer = await request_upgrade(self._place, "POST", headers)
        except BackendUnreachable as fault:
            url = json.dumps(self._place.url)
            raise api_errors.internal_error(f"error sending request: Post {url}: {fault.why}") from None
        if isinstance(answer, StreamingResponse):
            body = b"".join([part async for part in answer.chunks])
            raise api_errors.internal_error(f"unable to upgrade connection: {_words(body)}")
        wire, received = answer
        return wire, received.get(STREAM_PROTOCOL, "")

    async def _until_client_ends(self, command: Coroutine[Any, Any, Status]) -> Status | None:
        """Return the Status of the command, or None if the client disconnects before the command ends."""
        self._streams: dict[int, SpdyStream] = {}
        self._opened = asyncio.Event()
        work = asyncio.ensure_future(command)
        client = asyncio.ensure_future(self._from_client())
        try:
            await asyncio.wait((work, client), return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            await end_tasks(client, work, expected=(*BACKEND_ERRORS, KubeloopError), logger=_LOG)

    async def _command(self, wire: ClientConnection, protocol: str) -> Status:
        connection = SpdyConnection(BackendStream(wire), client=True)
        side: list[asyncio.Future[Any]] = [asyncio.ensure_future(_quietly(connection.run)), asyncio.ensure_future(_pings(connection))]
        try:
            names = [(_STDIN, "stdin")] if self._stdin else []
            names += [(one, "stdout" if one == _STDOUT else "stderr") for one in self._outputs if one == _STDOUT or not self._tty]
            if self._tty and protocol in _WITH_RESIZE:
                names.append((_RESIZE, "resize"))
            async with asyncio.timeout(_OPEN_TIME):
                errors = await connection.open({"streamtype": "error"})
                for channel, name in names:
                    self._streams[channel] = await connection.open({"streamtype": name})
            self._opened.set()
            outputs = [self._copy(self._streams[one], one) for one in (_STDOUT, _STDERR) if one in self._streams]
            if self._stdin:
                side.append(asyncio.ensure_future(self._close_with_peer(self._streams[_STDIN])))
            outcome = asyncio.ensure_future(_read_all(errors))
            side.append(outcome)
            await asyncio.gather(*outputs)
            message = await outcome
            with contextlib.suppress(*BACKEND_ERRORS):  # the kubelet may have ended the connection already
                await connection.close()
        except BACKEND_ERRORS as fault:
            return api_errors.internal_error(str(fault) or "the kubelet does not take the streams").status
        finally:
            await end_tasks(*side, expected=(*BACKEND_ERRORS, KubeloopError), logger=_LOG)
        return _outcome(message, protocol)

    async def _copy(self, stream: SpdyStream, channel: int) -> None:
        try:
            while data := await stream.read():
                await self._send(channel, data)
        except BACKEND_ERRORS:
            return  # the error stream has the reason

    async def _close_with_peer(self, stdin: SpdyStream) -> None:
        """Close the stdin stream once the kubelet has closed its side of it."""
        try:
            while await stdin.read():
                pass
            await stdin.close()
        except BACKEND_ERRORS:
            return

    async def _from_client(self) -> None:
        """Forward the client's input, terminal sizes and closed channels to the kubelet, until the client disconnects."""
        while (message := await self._socket.receive()) is not None:
            data = message.encode() if isinstance(message, str) else message
            if not data:
                continue
            await self._opened.wait()
            try:
                if data[0] != _CLOSE:
                    await self._to_stream(data[0], data[1:])
                elif len(data) != 2 or data[1] > _RESIZE:
                    return  # an unknown signal ends the connection
                elif data[1] in (_STDIN, _RESIZE) and data[1] in self._streams:
                    await self._streams[data[1]].close()
            except BACKEND_ERRORS:
                continue  # the command has ended this stream; its output may follow

    async def _to_stream(self, channel: int, data: bytes) -> None:
        stream = self._streams.get(channel)
        if stream is not None and channel in (_STDIN, _RESIZE):
            await stream.write(data)

    async def _send(self, channel: int, data: bytes) -> None:
        await self._socket.send(bytes([channel]) + data)


async def _quietly(run: Callable[[], Awaitable[None]]) -> None:
    try:
        await run()
    except (*BACKEND_ERRORS, SpdyError):
        return  # its streams get the error


async def _pings(connection: SpdyConnection) -> None:
    number = 1
    try:
        while True:
            await asyncio.sleep(_PING_PERIOD)
            await connection.ping(number)
            number += 2
    except BACKEND_ERRORS:
        return


async def _read_all(errors: SpdyStream) -> bytes:
    """Return the content of the error stream.

    A reset counts as the end of the stream: a kubelet resets its streams when the command has ended (apimachinery httpstream/spdy, Close),
    and Go's reader of a reset stream gets EOF. A kubelet that dies sends nothing, which kube-apiserver treats as success.
    """
    content = bytearray()
    with contextlib.suppress(StreamReset):
        while part := await errors.read():
            if len(content) < _ERROR_SIZE:
                content += part
    return bytes(content)


def _outcome(message: bytes, protocol: str) -> Status:
    """Return the Status for the client that corresponds to the content of the error stream."""
    if not message:
        return Status(status="Success")
    text = message.decode("utf-8", "replace")
    if protocol not in _WITH_STATUS:
        return api_errors.internal_error(f"error executing remote command: {text}").status
    try:
        tree = json.loads(message)
        result, reason = tree.get("status"), tree.get("reason")
    except (ValueError, AttributeError, RecursionError) as fault:
        return api_errors.internal_error(f"error stream protocol error: {fault} in {json.dumps(text)}").status
    if result == "Success":
        return Status(status="Success")
    if result != "Failure":
        return api_errors.internal_error("error stream protocol error: unknown error").status
    if reason != _NON_ZERO:
        return api_errors.internal_error(str(tree.get("message", ""))).status
    return _exit_status(tree)


def _exit_status(tree: dict[str, Any]) -> Status:
    details = tree.get("details")
    if not isinstance(details, dict):
        return api_errors.internal_error("error stream protocol error: details must be set").status
    causes = details.get("causes")
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == _EXIT_CODE:
            code = str(cause.get("message", ""))
            if not (code.isascii() and code.isdigit() and int(code) < 256):
                return api_errors.internal_error(f"error stream protocol error: invalid exit code value {json.dumps(code)}").status
            words = f"command terminated with non-zero exit code: command terminated with exit code {int(code)}"
            only = [StatusCause(reason=_EXIT_CODE, message=str(int(code)))]
            return Status(status="Failure", reason=_NON_ZERO, message=words, details=StatusDetails(causes=only))
    return api_errors.internal_error(f"error stream protocol error: no {_EXIT_CODE} cause given").status


def _words(body: bytes) -> str:
    """Return the message of a refusal. The body is a Status or plain text."""
    try:
        tree = json.loads(body)
        if isinstance(tree, dict) and tree.get("kind") == "Status":
            return str(tree.get("message", ""))
    except (ValueError, RecursionError):
        pass
    return body.decode("utf-8", "replace").strip()
