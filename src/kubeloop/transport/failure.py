"""Turns what the HTTP library and the operating system raise into ``TransportError``s that name the server, the cause and the way out."""

from __future__ import annotations

import errno
import ssl
from typing import TypeVar

import aiohttp

from kubeloop.config import ClusterConfig
from kubeloop.meta.errors import ConnectionRefused, TransportError, UntrustedCertificate

_E = TypeVar("_E", bound=BaseException)

# OpenSSL's X509_V_ERR_* codes (openssl/x509_vfy.h).
_HOSTNAME_MISMATCH, _IP_MISMATCH, _NOT_YET_VALID, _EXPIRED = 62, 64, 9, 10


class IncompleteAnswerError(TransportError):
    """The connection ended before the answer was complete. Whether the server acted on the request is not known."""


def failure_of(error: BaseException, config: ClusterConfig, request: str) -> TransportError:
    """The error to raise for ``error``."""
    where = f'{config.server} (cluster "{config.name}")'
    tls = _find(error, ssl.SSLError)
    if tls is not None:
        return _tls_failure(tls, config, where)
    cause = _find(error, OSError)
    number = cause.errno if cause is not None else None
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return TransportError(f"{where}: the host name cannot be resolved; check server in {config.source}")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return TransportError(f"{where}: the proxy {config.proxy_url or 'of the environment'} refused: HTTP status {error.status}")
    if number == errno.ECONNREFUSED or "Connect call failed" in str(error) or isinstance(cause, ConnectionRefusedError):
        return ConnectionRefused(f"{where}: connection refused: nothing listens there; is the server running, and is this its port?")
    if isinstance(error, aiohttp.ClientConnectorError):
        fault = (cause.strerror if cause is not None else None) or "the connection ended while it was being made; is it a TLS server?"
        return TransportError(f"{where}: cannot be reached: {fault}; check server in {config.source}")
    if isinstance(error, TimeoutError):
        return TransportError(f"{where}: no connection in time; check server in {config.source}, and the network")
    if isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, ConnectionError)) or number in (
        errno.ECONNRESET,
        errno.EPIPE,
    ):
        return IncompleteAnswerError(f"{where}: the connection ended before the answer was complete ({request})")
    return TransportError(f"{where}: {request} failed: {str(error) or type(error).__name__}")


def _tls_failure(error: ssl.SSLError, config: ClusterConfig, where: str) -> TransportError:
    if isinstance(error, ssl.SSLCertVerificationError):
        if config.ca is None:
            trusted = "the authorities of this system"
        else:
            trusted = f"{config.ca.field} {config.ca.path}" if config.ca.path else config.ca.field
        way_out = f"give the authority that signed it as certificate-authority in {config.source}"
        fault = f"x509: certificate signed by unknown authority ({error.verify_message})"
        if error.verify_code in (_HOSTNAME_MISMATCH, _IP_MISMATCH):
            fault = f"x509: {error.verify_message.rstrip('.')}"
            way_out = f"use a name that stands in the certificate, or set tls-server-name in {config.source}"
        elif error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            fault = f"x509: certificate has expired or is not yet valid ({error.verify_message})"
            way_out = "renew the server's certificate, and check the clocks of both machines"
        return UntrustedCertificate(f"{where}: the server's certificate is not trusted: {fault}; trusted: {trusted}; {way_out}")
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "wrong version number" in reason or "http request" in reason or "record layer failure" in reason:
        return TransportError(f"{where}: the server does not speak TLS; should server in {config.source} begin with http:// ?")
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        return TransportError(f"{where}: the server refuses the client certificate of {config.credentials.owner} ({reason}); renew it")
    return TransportError(f"{where}: TLS failed: {reason}")


def _find(error: BaseException, kind: type[_E]) -> _E | None:
    """``error`` itself or what stands behind it; the HTTP library keeps causes in several places."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        # The library's connector errors are OSErrors (and SSLErrors) themselves: what they wrap says more.
        if isinstance(one, kind) and not isinstance(one, aiohttp.ClientConnectorError):
            return one
        todo += [getattr(one, "os_error", None), getattr(one, "certificate_error", None), one.__cause__, one.__context__]
    return error if isinstance(error, kind) else None
