"""Connections to extension servers, and the requests that are proxied to them.

Source: Kubernetes documentation, "Configure the Aggregation Layer".
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from kubeloop.apiserver.aggregation.api_services import RegisteredService
from kubeloop.apiserver.outbound.failure import CallFailed, NotCallable
from kubeloop.apiserver.outbound.target import ServiceName, trust
from kubeloop.endpoints.access import MASTERS, User
from kubeloop.endpoints.responses import text
from kubeloop.http1.headers import Headers
from kubeloop.meta.errors import ApiError
from kubeloop.reverseproxy.backend import BACKEND_ERRORS, PATH_SAFE, Backend, encode_query, error_text, request_head
from kubeloop.reverseproxy.egress_policy import EgressPolicy
from kubeloop.reverseproxy.http import proxy_request
from kubeloop.reverseproxy.identity import HeaderLines, ProxyIdentity, header_rewriter, identity_headers
from kubeloop.reverseproxy.upgrade import is_upgrade, proxy_upgrade
from kubeloop.serving.answer import Answer, Reply, StreamingResponse
from kubeloop.serving.request import Request

#: Users of the requests that this server itself sends to extension servers.
PROBER: Final = User("system:kube-aggregator", (MASTERS,))
READER: Final = User("system:kube-aggregator")
OPENAPI_READER: Final = User("system:aggregator")

#: Seconds after which a request of the server itself times out.
TIMEOUT: Final = 5.0
#: Maximum bytes of a response to such a request (discovery or OpenAPI of a whole server).
_MOST_ANSWERED: Final = 32 << 20
_MOST_CONTEXTS: Final = 100


class ExtensionServerUnreachable(Exception):
    """The extension server sent no response. The message is that of Go's HTTP client."""


class Backends:
    """Resolves services to addresses and sends requests to them. For one event loop."""

    def __init__(self, resolve: Callable[[ServiceName], Awaitable[tuple[str, int]]], identity: ProxyIdentity, reach: EgressPolicy) -> None:
        self._resolve = resolve
        self._identity = identity
        self._reach = reach
        self._contexts: OrderedDict[tuple[bytes, bool], ssl.SSLContext] = OrderedDict()

    async def place(self, service: RegisteredService) -> Backend:
        """Return the backend for requests to ``service``: its address and TLS context.

        Raises:
            CallFailed: The service cannot be resolved.
            NotCallable: The CA bundle contains no certificate.
        """
        assert service.service is not None
        context = self.context(service)
        host, port = await self._resolve(service.service)
        return Backend(host, port, context, server_name=service.server_name, egress_policy=self._reach)

    async def get(self, service: RegisteredService, path: str, user: User, headers: HeaderLines) -> tuple[int, Headers, bytes]:
        """Send a GET request on behalf of this server to the extension server of ``service``.

        Args:
            service: The APIService.
            path: Path of the request.
            user: User in the identity headers.
            headers: Additional headers.

        Returns:
            Status code, headers and body of the response.

        Raises:
            CallFailed: The service cannot be resolved.
            ExtensionServerUnreachable: There was no response within five seconds.
        """
        place = replace(await self.place(service), path=path)
        return await self.get_from(place, user, headers)

    async def get_from(self, place: Backend, user: User, headers: HeaderLines) -> tuple[int, Headers, bytes]:
        """Send a GET request on behalf of this server to a backend. Arguments and result are those of ``get``.

        Raises:
            ExtensionServerUnreachable: There was no response within five seconds.
        """
        lines = [("Host", place.authority), ("User-Agent", "kubeloop"), *headers, *identity_headers(user)]
        wire = None
        try:
            async with asyncio.timeout(TIMEOUT):
                wire = await place.connect()
                status, received = await wire.exchange("GET", request_head("GET", place.target, lines), None)
                body = bytearray()
                while part := await wire.chunk():
                    body += part
                    if len(body) > _MOST_ANSWERED:
                        raise ExtensionServerUnreachable(f"the answer has more than {_MOST_ANSWERED} bytes")
                return status, received, bytes(body)
        except TimeoutError:
            raise ExtensionServerUnreachable("context deadline exceeded (Client.Timeout exceeded while awaiting headers)") from None
        except BACKEND_ERRORS as error:
            raise ExtensionServerUnreachable(error_text(error, place)) from None
        finally:
            if wire is not None:
                wire.abort()

    def context(self, service: RegisteredService) -> ssl.SSLContext:
        """Return the TLS context for a service. Contexts are cached.

        Raises:
            NotCallable: The CA bundle contains no certificate.
        """
        key = (service.ca, service.insecure)
        context = self._contexts.get(key)
        if context is None:
            context = trust(service.ca)
            if service.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._identity.present(context)
            self._contexts[key] = context
            if len(self._contexts) > _MOST_CONTEXTS:
                self._contexts.popitem(last=False)
        return context


# Proxying of one request to an extension server.
# Source: kube-aggregator pkg/apiserver/handler_proxy.go; k8s.io/apiserver pkg/util/proxy (NewRequestForProxy).


_LOG = logging.getLogger("kubeloop.apiserver.aggregation")


async def proxy_to_service(
    request: Request, user: User, audit_id: str, service: RegisteredService, backends: Backends, failed: Callable[[], None]
) -> Reply:
    """Forward a request to the extension server of ``service`` and return its response, or an error page if there is none.

    It never raises ApiError: such errors are plain text, as in Kubernetes.

    Args:
        request: The request.
        user: The authenticated user.
        audit_id: The audit ID of the request.
        service: The APIService that has the path.
        backends: Connects to the extension server.
        failed: Called when the server cannot be reached.

    Returns:
        The reply for the client.
    """
    if not service.available:
        return _refused("service unavailable")
    try:
        place = await backends.place(service)
    except NotCallable as error:
        return text(f"{error}\n", 500)
    except CallFailed as error:
        _LOG.warning("service of %s: %s", service.name, error)
        return _refused("service unavailable")
    query = encode_query([(name, value) for name, values in request.query.items() for value in values])
    place = replace(place, path=quote(request.path, safe=PATH_SAFE, errors="surrogateescape"), query=query)
    rewrite = header_rewriter(user, place, audit_id)
    try:
        if is_upgrade(request):
            return await proxy_upgrade(request, place, rewrite)
        # Discovery documents are cheap, and every client waits for them.
        async with asyncio.timeout(TIMEOUT if len(request.path.strip("/").split("/")) == 3 else None):
            answer = await proxy_request(request, place, rewrite, redirects=False)
    except TimeoutError:
        failed()
        return _refused("error trying to reach service: context deadline exceeded")
    except ApiError as refusal:
        failed()
        return _refused(refusal.status.message)
    if isinstance(answer, Answer | StreamingResponse):
        answer.headers = [(name, value) for name, value in answer.headers if name.lower() != "audit-id"]  # this server sends its own
    return answer


def _refused(reason: str) -> Answer:
    return text(f"{reason}\n", 503)
