"""Probes and lifecycle hooks of containers: how they are executed, and when the results of a probe take effect.

Source: Kubernetes pkg/kubelet/prober, pkg/probe (http, tcp, exec, grpc), pkg/kubelet/lifecycle/handlers.go.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from kubeloop.http1.client_connection import ClientConnection
from kubeloop.meta.errors import KubeloopError
from kubeloop.meta.tls import client_tls
from kubeloop.timing import Clock, within
from kubeloop.types import JSONObject

#: Runs a command in the container and returns its exit code and output; the code is 126 or 127 if the command cannot be started.
CommandRunner = Callable[[list[str]], Awaitable[tuple[int, str]]]
_USER_AGENT = "kube-probe/1.36"
_REDIRECTS = 10
#: Maximum size of a command's output or a response's body in an Event.
_OUTPUT = 10 * 1024


class ProbeFailure(Exception):
    """A probe or hook failed; the text is the output that the Event shows."""


@dataclass(frozen=True)
class ProbeTarget:
    """The container that probes and hooks address: its pod's IP address, its named ports, and a function that runs commands in it."""

    host: str
    ports: dict[str, int]
    run: CommandRunner
    clock: Clock

    @classmethod
    def from_container(cls, container: JSONObject, host: str, run: CommandRunner, clock: Clock) -> ProbeTarget:
        """Return the target for the probes and hooks of a container.

        Args:
            container: The container's specification.
            host: The pod's address.
            run: Runs a command in the container.
            clock: The clock of time limits.
        """
        ports = {one["name"]: one["containerPort"] for one in container.get("ports") or () if one.get("name")}
        return cls(host, ports, run, clock)

    def port(self, value: Any) -> int:
        """Return the number of a port from its number or name.

        Raises:
            ProbeFailure: The container has no port of that name.
        """
        if isinstance(value, int):
            return value
        if value in self.ports:
            return self.ports[value]
        if str(value).isdigit():
            return int(value)
        raise ProbeFailure(f'couldn\'t find port: "{value}"')


async def execute(action: JSONObject, target: ProbeTarget, timeout: float, user_agent: str = _USER_AGENT) -> None:
    """Execute the action of a probe or hook once.

    Args:
        action: ``exec``, ``httpGet``, ``tcpSocket``, ``grpc`` or ``sleep``.
        target: The container that the action addresses.
        timeout: Maximum seconds; zero or less: no limit.
        user_agent: The header User-Agent of HTTP requests.

    Raises:
        ProbeFailure: The action failed or took too long.
    """
    limit = timeout if timeout > 0 else None
    try:
        await within(target.clock, limit, _execute(action, target, timeout, user_agent))
    except TimeoutError:
        raise ProbeFailure(_timeout_text(action, target, timeout)) from None


async def _execute(action: JSONObject, target: ProbeTarget, timeout: float, user_agent: str) -> None:
    if action.get("exec"):
        code, output = await target.run(list(action["exec"]["command"]))
        if code:
            raise ProbeFailure(output[:_OUTPUT])
    elif action.get("httpGet"):
        await _get(action["httpGet"], target, user_agent)
    elif action.get("tcpSocket"):
        host, port = action["tcpSocket"].get("host") or target.host, target.port(action["tcpSocket"]["port"])
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            raise ProbeFailure(f"dial tcp {host}:{port}: connect: {_reason(error)}") from None
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    elif action.get("grpc"):
        try:
            await check_health(target.host, target.port(action["grpc"]["port"]), action["grpc"].get("service") or "")
        except (OSError, EOFError) as error:
            text = f'timeout: failed to connect service "{target.host}:{action["grpc"]["port"]}" within {timeout:g}s: {error}'
            raise ProbeFailure(text) from None
        except ValueError as error:
            raise ProbeFailure(str(error)) from None
    elif action.get("sleep"):
        await target.clock.sleep(action["sleep"]["seconds"])


async def _get(action: JSONObject, target: ProbeTarget, user_agent: str) -> None:
    host, port = action.get("host") or target.host, target.port(action["port"])
    scheme, path = (action.get("scheme") or "HTTP").lower(), action.get("path") or "/"
    url = f"{scheme}://{host}:{port}{path if path.startswith('/') else '/' + path}"
    headers = {one["name"]: one["value"] for one in action.get("httpHeaders") or ()}
    names = {name.lower() for name in headers}
    if "user-agent" not in names:
        headers["User-Agent"] = user_agent
    if "accept" not in names:
        headers["Accept"] = "*/*"
    for _ in range(_REDIRECTS):
        status, location, body = await _request(url, {name: value for name, value in headers.items() if value})
        if not (300 <= status < 400 and location):
            break
        following = urljoin(url, location)
        if urlsplit(following).hostname != urlsplit(url).hostname:
            return  # upstream does not follow to other hosts, and counts it as a success with a warning
        url = following
    if not 200 <= status < 400:
        raise ProbeFailure(f"HTTP probe failed with statuscode: {status}" if user_agent == _USER_AGENT else body)


async def _request(url: str, headers: dict[str, str]) -> tuple[int, str, str]:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    given_host = next((value for name, value in headers.items() if name.lower() == "host"), parts.netloc)
    lines = [f"GET {path} HTTP/1.1", f"Host: {given_host}"]
    lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() != "host"]
    head = "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1", "replace")
    context: ssl.SSLContext | None = None
    if parts.scheme == "https":
        context = client_tls()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection: ClientConnection | None = None
    try:
        _, connection = await asyncio.get_running_loop().create_connection(ClientConnection, host, port, ssl=context)
        status, found = await connection.exchange("GET", head, None)
        body = b""
        while len(body) < _OUTPUT and (part := await connection.chunk()):
            body += part
    except OSError as error:
        raise ProbeFailure(f'Get "{url}": dial tcp {host}:{port}: connect: {_reason(error)}') from None
    except (KubeloopError, EOFError, ValueError) as error:
        raise ProbeFailure(f'Get "{url}": {error}') from None
    finally:
        if connection is not None:
            connection.abort()
    return status, found.get("Location", ""), body.decode("utf-8", "replace")


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return (error.strerror or str(error)).lower()


def _timeout_text(action: JSONObject, target: ProbeTarget, timeout: float) -> str:
    if action.get("exec"):
        command = " ".join(action["exec"]["command"])
        return f'command timed out: "{command}" timed out after {timeout:g}s'
    if action.get("httpGet"):
        source = action["httpGet"]
        path = source.get("path") or "/"
        url = f"{(source.get('scheme') or 'HTTP').lower()}://{source.get('host') or target.host}:{target.port(source['port'])}{path}"
        return f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
    if action.get("tcpSocket"):
        source = action["tcpSocket"]
        return f"dial tcp {source.get('host') or target.host}:{target.port(source['port'])}: i/o timeout"
    return "context deadline exceeded"


@dataclass
class ProbeCounter:
    """Counts equal results of a probe in a row, which take effect from ``success_threshold`` or ``failure_threshold`` on."""

    success_threshold: int = 1
    failure_threshold: int = 3
    last: bool | None = None
    run: int = 0

    def add(self, success: bool) -> bool:
        """Count a result; return whether enough equal results in a row exist for it to take effect."""
        self.run = self.run + 1 if self.last == success else 1
        self.last = success
        return self.run >= (self.success_threshold if success else self.failure_threshold)


async def probe_repeatedly(
    probe: JSONObject, target: ProbeTarget, on_result: Callable[[bool], bool], on_failure: Callable[[str], object]
) -> None:
    """Run a probe with its period until ``on_result`` returns False.

    Args:
        probe: The probe: its action, delays and thresholds.
        target: The container that is probed.
        on_result: Called with each result that takes effect; returns whether to continue.
        on_failure: Called with the output of each failure.
    """
    clock = target.clock
    counter = ProbeCounter(probe.get("successThreshold") or 1, probe.get("failureThreshold") or 3)
    if delay := probe.get("initialDelaySeconds") or 0:
        await clock.sleep(delay)
    while True:
        try:
            await execute(probe, target, probe.get("timeoutSeconds") or 1)
            success = True
        except ProbeFailure as failure:
            on_failure(str(failure))
            success = False
        if counter.add(success) and not on_result(success):
            return
        await clock.sleep(probe.get("periodSeconds") or 10)


# The health check of gRPC (grpc.health.v1.Health/Check), as one HTTP/2 request without a dependency.
#
# The request fits into single frames, and the response is read frame by frame. Header blocks are not decoded, as HPACK would need tables: a
# response with a message is judged by it, a response without a message is a failure.
#
# Source: RFC 9113; gRPC over HTTP2 (doc/PROTOCOL-HTTP2.md); health/v1/health.proto; Kubernetes pkg/probe/grpc.

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_STATUSES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


async def check_health(host: str, port: int, service: str) -> None:
    """Check the health of a service of a gRPC server; an empty name stands for the whole server.

    Raises:
        ValueError: The service is not healthy, or the server does not implement health checks.
        OSError, EOFError: The connection failed or ended.
    """
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
        writer.write(_frame(_HEADERS, _END_HEADERS, 1, _header_block(f"{host}:{port}")))
        name = service.encode()
        message = b"\x0a" + _varint(len(name)) + name if name else b""
        writer.write(_frame(_DATA, _END_STREAM, 1, b"\0" + struct.pack(">I", len(message)) + message))
        await writer.drain()
        status = _status(await _read_response(reader, writer))
    finally:
        writer.close()
    if status != "SERVING":
        raise ValueError(f'service unhealthy (responded with "{status}")')


async def _read_response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Read HTTP/2 frames and acknowledge settings and pings until the response on stream 1 ends; return its body."""
    body = b""
    while True:
        head = await reader.readexactly(9)
        size, kind, flags, stream = int.from_bytes(head[:3]), head[3], head[4], int.from_bytes(head[5:]) & 0x7FFFFFFF
        payload = await reader.readexactly(size)
        if kind == _SETTINGS and not flags & _ACK:
            writer.write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            writer.write(_frame(_PING, _ACK, 0, payload))
        elif kind in (_RESET, _GOAWAY):
            raise ValueError("this server does not implement the grpc health protocol (grpc.health.v1.Health)")
        elif stream == 1:
            if kind == _DATA:
                body += payload
            if flags & _END_STREAM and kind in (_DATA, _HEADERS):
                return body


def _status(body: bytes) -> str:
    if len(body) < 5:
        raise ValueError("this server does not implement the grpc health protocol (grpc.health.v1.Health)")
    message = body[5 : 5 + int.from_bytes(body[1:5])]
    return _STATUSES.get(message[1], "UNKNOWN") if message[:1] == b"\x08" and len(message) > 1 else "UNKNOWN"


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _header_block(authority: str) -> bytes:
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("user-agent", "kube-probe/1.36"),
    ]
    # Literal fields without indexing, names and values as plain octets (RFC 7541, section 6.2.2).
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in headers)


def _text(text: str) -> bytes:
    data = text.encode()
    return (bytes((len(data),)) if len(data) < 127 else b"\x7f" + _varint(len(data) - 127)) + data


def _varint(number: int) -> bytes:
    result = b""
    while number > 127:
        result += bytes((number & 127 | 128,))
        number >>= 7
    return result + bytes((number,))
