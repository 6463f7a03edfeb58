"""Errors of HTTP/1.1 connections, for clients and servers."""

from __future__ import annotations

from kubeloop.meta.errors import KubeloopError


class ConnectionEnded(ConnectionError):
    """The peer closed the connection before the message was complete."""


class ProtocolError(Exception):
    """The peer does not speak HTTP/1.1."""


class PeerSilentError(Exception):
    """The connection is open, but the peer sent nothing within the read timeout."""


class ProxyRefusedError(Exception):
    """A proxy could not be reached or did not open a tunnel. The message names the proxy, the setting that names it, and the remedy."""


#: Errors of a connection that cannot be opened or breaks off. TimeoutError and ssl.SSLError are subclasses of OSError.
CONNECTION_FAULTS = (OSError, ConnectionEnded, PeerSilentError, ProtocolError, ProxyRefusedError)


class BodyTooLarge(KubeloopError):
    """The body of a request is longer than the handler allows: ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"limit is {limit}")
        self.limit = limit


class BodyMalformed(KubeloopError):
    """The body of a request is not framed as its head says. The connection cannot be used again."""
