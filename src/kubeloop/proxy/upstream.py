"""The API server behind the proxy: pooled connections to it, and a Status for each way in which it can fail.

There are two pools: TLS connections with the proxy's client certificate, for requests that the proxy sends as itself or for an
impersonated user; and connections without it, for clients that authenticate to the API server themselves. With a certificate on the
connection, a kube-apiserver would take such a client for the proxy. A front proxy has a third pool, with the certificate for which the
API server believes the headers X-Remote-*.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from kubeloop.config import ClusterConfig, RequestAuthenticator
from kubeloop.config.authenticator import impersonation_headers
from kubeloop.config.credentials import Credentials, Pem
from kubeloop.endpoints import api_errors
from kubeloop.http1.errors import PeerSilentError
from kubeloop.http1.headers import Headers
from kubeloop.meta.errors import ApiError, ConfigError, TransportError
from kubeloop.meta.status import StatusDetails
from kubeloop.tasks import close_all
from kubeloop.timing import Clock
from kubeloop.transport.answer import error_of
from kubeloop.transport.connection import Connections, PooledAnswer
from kubeloop.transport.errors import IncompleteAnswerError
from kubeloop.transport.instrumentation.counters import RequestCounters
from kubeloop.transport.round_tripper import OutgoingRequest
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.proxy")

HeaderLines = list[tuple[str, str]]

#: The header in which a front proxy names the user. ``forwarding`` removes it from the requests of clients.
REMOTE_USER: Final = "X-Remote-User"

#: Seconds after which clients retry when the upstream server cannot be reached; kube-apiserver's own answer to overload names 1 s.
RETRY_AFTER: Final = 1
#: Maximum bytes of a single object or of an error: etcd stores at most 1.5 MiB, and a kube-apiserver accepts at most 3 MiB.
MAX_OBJECT: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class FrontProxyCertificate:
    """The files of the certificate by which the API server recognizes a front proxy. They are read again when they change.

    The API server's ``--requestheader-client-ca-file`` has to contain the authority that signed it.
    """

    certificate: Path
    key: Path

    def credentials(self) -> Credentials:
        """Return the credentials of the front proxy.

        Raises:
            ConfigError: A file cannot be read, or has no PEM block.
        """
        certificate = Pem(path=self.certificate, field="proxy-client-cert-file")
        key = Pem(path=self.key, field="proxy-client-key-file")
        for pem in (certificate, key):
            pem.read()
        return Credentials(client_certificate=certificate, client_key=key, owner="front proxy")


class Upstream:
    """The API server that requests are forwarded to.

    Attributes:
        config: The API server, and the proxy's own credentials for it.
        is_front_proxy: Users of client certificates are named to the API server by the headers X-Remote-*, not by impersonation.

    Example:
        >>> async def version(config: ClusterConfig, clock: Clock) -> bytes:
        ...     upstream = Upstream(config, clock)
        ...     try:
        ...         return await upstream.read("/version", [])
        ...     finally:
        ...         await upstream.close()
    """

    def __init__(self, config: ClusterConfig, clock: Clock, front_proxy: FrontProxyCertificate | None = None) -> None:
        """Create the pools. Nothing is connected yet.

        Raises:
            ConfigError: The files of the front proxy's certificate cannot be read.
        """
        self.config = config
        self.is_front_proxy = front_proxy is not None
        self._authenticator = RequestAuthenticator(config, clock)
        figures = RequestCounters()
        target = config.credentials.impersonate
        #: The kubeconfig's own impersonation (``as``), for requests that impersonate no other user.
        self._acts_as = impersonation_headers(target) if target is not None else []
        self._own = Connections(config, self._authenticator, clock, figures)
        bare = msgspec.structs.replace(config, credentials=Credentials())
        self._bare = Connections(bare, RequestAuthenticator(bare, clock), clock, figures)
        self._front = self._bare
        self._pools = [self._own, self._bare]
        if front_proxy is not None:
            front = msgspec.structs.replace(config, credentials=front_proxy.credentials())
            self._front = Connections(front, RequestAuthenticator(front, clock), clock, figures)
            self._pools.append(self._front)

    async def close(self) -> None:
        """Close all connections. Running requests end with TransportError."""
        await close_all(*(pool.close for pool in self._pools))

    async def send(self, request: OutgoingRequest, *, as_proxy: bool) -> PooledAnswer:
        """Send a request, and return its response with an unread body.

        Args:
            request: The request. A GET whose pooled connection turns out to be closed is sent once more.
            as_proxy: Send the proxy's credentials along: those of the front proxy, if a header names the user to it. Otherwise the request
                has only the credentials in its headers.

        Raises:
            ApiError: 502, 503 or 504: the API server sent no response. The message does not contain addresses or credentials.
        """
        pool = self._own if as_proxy else self._bare
        try:
            if as_proxy and any(name == REMOTE_USER for name, _ in request.headers):
                # Without credentials of the proxy's own: the API server must refuse a request whose headers it does not believe.
                pool = self._front
            elif as_proxy:
                acts_as = [] if any(name == "Impersonate-User" for name, _ in request.headers) else self._acts_as
                request.headers = [*request.headers, *acts_as, *(await self._authenticator.headers()).items()]
            try:
                return await pool.send(request)
            except IncompleteAnswerError:
                if request.method not in ("GET", "HEAD") or request.more is not None:
                    raise
                return await pool.send(request)
        except TransportError as error:
            raise unreachable(error) from error
        except ConfigError as error:
            _LOG.error("the proxy's credentials for the API server cannot be used: %s", error)
            raise _failed(503, "ServiceUnavailable", "the proxy has no usable credentials for the API server; see its log") from None
        except ValueError as error:
            raise api_errors.bad_request(str(error)) from None

    async def read(self, target: str, headers: HeaderLines, *, as_proxy: bool = True, limit: int = MAX_OBJECT) -> bytes:
        """Return the body of a GET request.

        Args:
            target: Path and query, percent-encoded.
            headers: Further headers.
            as_proxy: See ``send``.
            limit: Maximum bytes of the body.

        Raises:
            ApiError: The server refused, with its Status; or it sent no response.
        """
        answer = await self.send(OutgoingRequest("GET", target, [*headers], None), as_proxy=as_proxy)
        return await body_of(answer, target, limit)

    async def post(self, target: str, headers: HeaderLines, body: JSONObject, *, as_proxy: bool = True) -> JSONObject:
        """Create an object that the server only answers, such as a SubjectAccessReview, and return the answer.

        Args:
            target: Path, percent-encoded.
            headers: Further headers.
            body: The object.
            as_proxy: See ``send``.

        Raises:
            ApiError: The server refused, with its Status; or it sent no response.
        """
        sent = [*headers, ("Content-Type", "application/json"), ("Accept", "application/json")]
        answer = await self.send(OutgoingRequest("POST", target, sent, msgspec.json.encode(body)), as_proxy=as_proxy)
        return parsed(await body_of(answer, target, MAX_OBJECT))


async def body_of(answer: PooledAnswer, target: str, limit: int) -> bytes:
    """Return the whole body of a successful response, and close the response.

    Args:
        answer: The response, with an unread body.
        target: Path and query of the request, for errors.
        limit: Maximum bytes of the body.

    Raises:
        ApiError: The response is an error, or its body broke off.
    """
    try:
        body = await answer.read(limit)
    except TransportError as error:
        raise unreachable(error) from error
    finally:
        answer.close()
    if answer.status >= 400:
        raise error_of(answer.status, answer.headers, body, "GET", target.partition("?")[0])
    return body


async def chunks_of(answer: PooledAnswer) -> AsyncIterator[bytes]:
    """Yield the body of a response as it arrives, and close the response at the end.

    Raises:
        TransportError: The body broke off.
    """
    try:
        while data := await answer.chunk():
            yield data
    finally:
        answer.close()


def object_path(group: str, version: str, resource: str, namespace: str, name: str) -> str:
    """Return the path of an object, percent-encoded.

    Args:
        group: API group; empty for the core group.
        version: API version.
        resource: Name of the resource in paths.
        namespace: Namespace; empty for a cluster-scoped object. That of a Namespace is not part of its path.
        name: Name of the object.

    Returns:
        The path, without a subresource.
    """
    parts = ["apis", group, version] if group else ["api", version]
    if namespace and resource != "namespaces":
        parts += ["namespaces", namespace]
    return "/" + "/".join(quote(part, safe="") for part in [*parts, resource, name])


def parsed(body: bytes) -> JSONObject:
    """Return the JSON object in a response.

    Raises:
        ApiError: 502: the body is not a JSON object.
    """
    try:
        tree = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_gateway(f"the API server's response is not JSON: {error}") from None
    if not isinstance(tree, dict):
        raise bad_gateway("the API server's response is not a JSON object")
    return tree


def bad_gateway(message: str) -> ApiError:
    """Return the error for a response of the API server that the proxy cannot use."""
    return _failed(502, "BadGateway", message)


def is_json(headers: Headers) -> bool:
    """Return whether a response has a JSON body."""
    return headers.get("Content-Type", "").partition(";")[0].strip().lower() == "application/json"


def unreachable(error: TransportError) -> ApiError:
    """Return the error for an API server that sent no response. The log has its address and the cause."""
    _LOG.warning("%s", error)
    cause = error.__cause__
    if isinstance(cause, PeerSilentError) or (isinstance(cause, TimeoutError) and cause.errno is None):
        return _failed(504, "Timeout", "the API server did not answer the proxy in time")
    if isinstance(error, IncompleteAnswerError):
        return _failed(502, "BadGateway", "the API server closed the connection before its answer was complete")
    if isinstance(cause, OSError):
        return _failed(503, "ServiceUnavailable", "the proxy cannot connect to the API server; see the proxy's log")
    return _failed(502, "BadGateway", "the API server's answer is not HTTP")


def _failed(code: int, reason: str, message: str) -> ApiError:
    return api_errors.refusal(code, reason, message, StatusDetails(retry_after_seconds=RETRY_AFTER))
