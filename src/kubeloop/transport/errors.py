"""Errors of requests, and the decision whether a request is retried."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Mapping

import msgspec

from kubeloop.config import ClusterConfig
from kubeloop.http1.dial import CONNECT_TIMEOUT, HANDSHAKE_TIMEOUT
from kubeloop.http1.errors import ConnectionEnded, PeerSilentError, ProtocolError, ProxyRefusedError
from kubeloop.meta.errors import ConnectionRefused, TransportError, UntrustedCertificate
from kubeloop.transport.answer import retry_after

# Decides after which outcomes of a request another try follows, and when. No I/O, no clock.
#
# Source: client-go rest/with_retry.go and rest/request.go (request, Stream); behaviours K140 to K144.


MAX_RETRIES = 10
#: Seconds before a read whose connection broke is repeated (client-go's retryAfterResponse).
AFTER_RESET = 1.0


class IncompleteAnswerError(TransportError):
    """The connection ended before the response was complete. It is unknown whether the server executed the request."""


class RetryDecision(msgspec.Struct, frozen=True):
    """The decision to retry a request, after a delay of at least ``after`` seconds."""

    after: float
    why: str


def after_answer(status: int, headers: Mapping[str, str]) -> RetryDecision | None:
    """Return the decision to retry after an error response, or None.

    A request of any method is retried after 429 or 5xx with ``Retry-After``: the server states that it did nothing, and when to retry.
    """
    if status != 429 and status < 500:
        return None
    seconds = retry_after(headers)
    return None if seconds is None else RetryDecision(seconds, f"HTTP status {status}")


def after_failure(error: TransportError, method: str, *, buffered: bool, tries: int) -> RetryDecision | None:
    """Return the decision to retry after a failed connection, or None.

    Only reads are retried, because a write may have been executed. Streams (``buffered`` is false) are not retried either, because they may
    have returned data to the caller. The first retry is immediate: most likely the server closed an idle connection, and in that case Go's
    HTTP library retries too.

    Args:
        error: The failure.
        method: The HTTP method.
        buffered: Whether the caller awaits the complete response; false for streams.
        tries: The number of attempts that have been made, from 1.

    Returns:
        The decision, or None if the request is not retried.
    """
    if not buffered or method != "GET" or not isinstance(error, IncompleteAnswerError):
        return None
    return RetryDecision(0.0 if tries == 1 else AFTER_RESET, "connection reset")


# OpenSSL's X509_V_ERR_* codes (openssl/x509_vfy.h).
_HOSTNAME_MISMATCH, _IP_MISMATCH, _NOT_YET_VALID, _EXPIRED = 62, 64, 9, 10


def failure_of(error: BaseException, config: ClusterConfig, request: str) -> TransportError:
    """Return the error to raise for an exception of a connection."""
    where = f'{config.server} (cluster "{config.name}")'
    if isinstance(error, ssl.SSLError):
        return _tls_failure(error, config, where)
    if isinstance(error, socket.gaierror):
        return TransportError(f"{where}: the host name cannot be resolved; check server in {config.source}")
    if isinstance(error, ProxyRefusedError):
        return TransportError(f"{where}: {error}")
    if isinstance(error, PeerSilentError):
        return TransportError(f"{where}: {error}; is the server, or a proxy in between, overloaded? ({request})")
    if isinstance(error, ProtocolError):
        return TransportError(f"{where}: the answer is not HTTP ({error}); check server in {config.source}")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return TransportError(f"{where}: too many files and sockets are open in this program; raise its limit (ulimit -n)")
    if isinstance(error, ConnectionAbortedError) and error.errno is None:
        # asyncio's own error, not the end of a connection: the peer accepted the connection and then sent nothing.
        return TransportError(
            f"{where}: no TLS handshake within {HANDSHAKE_TIMEOUT:g} s; check server in {config.source}, and any proxy in between"
        )
    # One name with several addresses: asyncio joins their errors into one text.
    if isinstance(error, ConnectionRefusedError) or (isinstance(error, OSError) and f"[Errno {errno.ECONNREFUSED}]" in str(error)):
        return ConnectionRefused(f"{where}: connection refused: nothing listens there; is the server running, and is this its port?")
    if isinstance(error, TimeoutError) and error.errno is None:
        return TransportError(f"{where}: no connection within {CONNECT_TIMEOUT:g} s; check server in {config.source}, and the network")
    if isinstance(error, ConnectionEnded | ConnectionError) or (isinstance(error, OSError) and error.errno == errno.ETIMEDOUT):
        text = f"{where}: the connection ended before the answer was complete ({request})"
        if config.server.startswith("http://"):
            text += f"; {secure_address(config)}"
        return IncompleteAnswerError(text)
    fault = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return TransportError(f"{where}: cannot be reached: {fault}; check server in {config.source}")


def secure_address(config: ClusterConfig) -> str:
    """Return the hint to write https:// for a server that was addressed without TLS."""
    return f"if the server speaks TLS, as API servers do, server in {config.source} should begin with https://"


def _tls_failure(error: ssl.SSLError, config: ClusterConfig, server: str) -> TransportError:
    if isinstance(error, ssl.SSLCertVerificationError):
        if config.ca is None:
            trusted = "the authorities of this system"
        else:
            trusted = f"{config.ca.field} {config.ca.path}" if config.ca.path else config.ca.field
        hint = f"give the authority that signed it as certificate-authority in {config.source}"
        fault = f"x509: certificate signed by unknown authority ({error.verify_message})"
        if error.verify_code in (_HOSTNAME_MISMATCH, _IP_MISMATCH):
            fault = f"x509: {error.verify_message.rstrip('.')}"
            hint = f"use a name that is in the certificate, or set tls-server-name in {config.source}"
        elif error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            fault = f"x509: certificate has expired or is not yet valid ({error.verify_message})"
            hint = "renew the server's certificate, and check the clocks of both machines"
        return UntrustedCertificate(f"{server}: the server's certificate is not trusted: {fault}; trusted: {trusted}; {hint}")
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "wrong version number" in reason or "http request" in reason or "record layer failure" in reason:
        return TransportError(f"{server}: the server does not speak TLS; should server in {config.source} begin with http:// ?")
    user = config.credentials
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason or "handshake failure" in reason):
        if user.client_certificate is None and user.exec is None:
            return TransportError(f"{server}: the server wants a client certificate ({reason}); give one to {user.owner}")
        return TransportError(f"{server}: the server refuses the client certificate of {user.owner} ({reason}); renew it")
    if "protocol" in reason and ("version" in reason or "unsupported" in reason):
        return TransportError(f"{server}: the server speaks only TLS older than 1.2 ({reason}); update it, or the proxy in between")
    return TransportError(f"{server}: TLS failed: {reason}; check server in {config.source}, and any proxy in between")
