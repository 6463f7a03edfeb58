"""Errors of webhook calls, with the messages of Go's HTTP client and of client-go, which clients of Kubernetes see."""

from __future__ import annotations

import errno
import json
import os
import socket
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kubeloop.meta.errors import KubeloopError

if TYPE_CHECKING:
    from kubeloop.http1.headers import Headers

# OpenSSL's X509_V_ERR_* codes (openssl/x509_vfy.h).
_HOSTNAME_MISMATCH, _IP_MISMATCH, _NOT_YET_VALID, _EXPIRED = 62, 64, 9, 10
_PLAIN_HTTP = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


class CallFailed(KubeloopError):
    """A webhook sent no usable response; the message gives the reason."""


class NotCallable(CallFailed):
    """The webhook cannot be called at all, because its client configuration is invalid."""


def why_no_answer(error: BaseException, host: str, port: int) -> str:
    """Return the message for a socket, TLS or HTTP error.

    For a certificate of another host, upstream's message lists the names in the certificate. This message does not, because OpenSSL does
    not report them.
    """
    from kubeloop.http1.errors import (
        ConnectionEnded,
        ProtocolError,  # the caller has loaded it; a server without webhooks starts without it
    )
    from kubeloop.reverseproxy.egress_policy import DestinationNotAllowed

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {_untrusted(error, host)}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).upper()
        if any(one in reason for one in _PLAIN_HTTP):
            return "http: server gave HTTP response to HTTPS client"
        return f"tls: {reason.replace('_', ' ').lower()}"
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {host}: no such host"
    if isinstance(error, TimeoutError) and error.errno is None:
        return "context deadline exceeded"
    if isinstance(error, ConnectionEnded):
        return "EOF"
    if isinstance(error, ProtocolError):
        return f"net/http: HTTP/1.x transport connection broken: {error}"
    if isinstance(error, ConnectionResetError):
        return "read: connection reset by peer"
    if isinstance(error, DestinationNotAllowed):
        return f"dial tcp {host}: {error}"
    shown = f"[{host}]" if ":" in host else host
    return f"dial tcp {shown}:{port}: connect: {_system_error(error)}"


def _untrusted(error: ssl.SSLCertVerificationError, host: str) -> str:
    if error.verify_code in (_HOSTNAME_MISMATCH, _IP_MISMATCH):
        return f"certificate is not valid for {host}"
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"certificate has expired or is not yet valid: current time {now} is outside of its validity"
    return "certificate signed by unknown authority"


def _system_error(error: BaseException) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return "connection refused"
    return os.strerror(number).lower() if number else str(error) or type(error).__name__


_FIXED: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
_UNACCEPTABLE: Final = "the server was unable to respond with a content type that the client supports"


def why_refused(status: int, headers: Headers, body: bytes) -> str:
    """Return the message for an unsuccessful response: that of the Status in its body, else a text for its status code.

    Source: k8s.io/apimachinery pkg/api/errors NewGenericServerResponse, k8s.io/client-go rest/request.go transformResponse.
    """
    message = _status_message(body)
    if message is not None:
        return message
    media_type = headers.get("Content-Type", "")
    text = body.decode("utf-8", "replace").strip() if not media_type or media_type.startswith("text/") else "unknown"
    if status in (403, 415):
        return text
    if status == 406:
        return _UNACCEPTABLE if text in ("", "unknown") else text
    if status in _FIXED:
        return _FIXED[status]
    if status >= 500:
        return f"an error on the server ({json.dumps(text, ensure_ascii=False)}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"


def _status_message(body: bytes) -> str | None:
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(tree, dict) and tree.get("kind") == "Status" and tree.get("apiVersion") == "v1" and tree.get("status") != "Success":
        return str(tree.get("message") or "unknown")
    return None
