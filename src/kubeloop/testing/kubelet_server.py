"""The server of a scripted kubelet: HTTP requests, SPDY streams and WebSockets as a node's kubelet serves them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

from kubeloop.kubelet.streaming import V4, CommandHandler, CommandProtocol, serve_command, serve_ports
from kubeloop.pki import CertificateAuthority
from kubeloop.serving.answer import Answer, Reply, StreamingResponse
from kubeloop.serving.listener import Listener, server_context
from kubeloop.serving.request import Request


@dataclass
class KubeletRequest:
    """One request, as the kubelet received it. ``certificate`` is the common name of the client's certificate.

    Example:
        >>> request = KubeletRequest("GET", "/pods", {}, {}, certificate="kube-apiserver")
        >>> request.method, request.path
        ('GET', '/pods')
    """

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    certificate: str
    body: bytes = b""
    protocols: list[str] = field(default_factory=list)

    @property
    def target(self) -> tuple[str, str, str]:
        """Namespace, pod and container; the container is empty for port-forwards."""
        _, _, namespace, pod, *rest = [*self.path.split("/"), "", ""]
        return namespace, pod, rest[0]


class KubeletServer:
    """Serves logs, exec, attach and port-forward as a kubelet does: TLS, SPDY/3.1 and WebSocket. Subclasses define the responses.

    ``async with`` starts it; then ``port`` is open. ``requests`` has every request, oldest first.
    """

    def __init__(self, *, host: str = "127.0.0.1", client_authority: bytes = b"") -> None:
        """Make a server. ``client_authority`` (PEM) may sign clients' certificates, which are requested and recorded, but not required."""
        authority = CertificateAuthority.create("kubelet-ca")
        own = authority.issue("kubelet", ip_addresses=("127.0.0.1",), server=True)
        #: PEM, for ``--kubelet-certificate-authority``.
        self.authority = authority.certificate
        self._listener = Listener(
            self._serve, server_context(own.certificate, own.key, client_authority or authority.certificate), host=host
        )
        self.requests: list[KubeletRequest] = []
        #: Headers of the SPDY streams that clients opened, oldest first.
        self.streams: list[dict[str, str]] = []
        #: The protocol that is agreed on for exec and attach over SPDY.
        self.spdy_protocol = V4
        #: Whether a command's streams are reset at its end, as real kubelets do, instead of closed.
        self.resets_streams = False

    def answer(self, request: KubeletRequest) -> Answer | None:  # noqa: ARG002 - for subclasses
        """Return a response that replaces the requested one, such as a refusal; None to serve the request."""
        return None

    def log_of(self, request: KubeletRequest) -> AsyncIterator[bytes]:
        """Return the log of ``request.target``, by the query's ``follow``, ``tailLines``, ``sinceTime``, ``timestamps`` ..."""
        raise NotImplementedError

    def exec_of(self, request: KubeletRequest) -> CommandHandler:
        """Return the handler of an exec's command."""
        raise NotImplementedError

    def attach_of(self, request: KubeletRequest) -> CommandHandler:
        """Return the handler of an attach, for the main process of a container."""
        raise NotImplementedError

    async def connect(self, request: KubeletRequest, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to a pod's port.

        Raises:
            OSError: Nothing listens there; the client gets the message.
        """
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self._listener.bind()
        await self._listener.serve()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # kube-apiserver leaves connections without an upgrade open, and would not respond to a graceful close.
        self._listener.abort()
        await self._listener.close()

    def die(self) -> None:
        """Break every connection off and accept no more, as a node that loses power."""
        self._listener.abort()

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def last(self) -> KubeletRequest:
        """The newest request."""
        return self.requests[-1]

    async def _serve(self, request: Request) -> Reply:
        names = dict(pair[0] for pair in (request.peer_certificate or {}).get("subject", ()))
        offered = request.headers.getall("X-Stream-Protocol-Version", []) if hasattr(request.headers, "getall") else []
        seen = KubeletRequest(
            request.method,
            request.path,
            request.query,
            {name.lower(): value for name, value in request.headers.items()},
            names.get("commonName", ""),
            await request.read_body(1 << 30),
            list(offered),
        )
        self.requests.append(seen)
        if (instead := self.answer(seen)) is not None:
            return instead
        action = request.path.split("/")[1]
        if action == "containerLogs":
            return StreamingResponse(self.log_of(seen), content_type="text/plain")
        if action in ("exec", "attach"):
            protocol = CommandProtocol(self.spdy_protocol, self.resets_streams, self.streams.append)
            return serve_command(request, self.exec_of(seen) if action == "exec" else self.attach_of(seen), protocol)
        if action == "portForward":
            return serve_ports(request, partial(self.connect, seen), self.streams.append)
        told = {"path": request.path, "query": request.query_string, "method": request.method, "body": seen.body.decode("latin-1")}
        return Answer(200, body=json.dumps(told).encode(), content_type="application/json", headers=[("X-From", "kubelet")])
