"""A proxy whose clients have users: it verifies their certificates, and acts at the API server as the user of each request."""

from __future__ import annotations

from contextvars import ContextVar

from examples.api_proxy_tutorial.stage1_pass_through.proxy import Headers
from examples.api_proxy_tutorial.stage6_tables.proxy import TableProxy
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import ANONYMOUS, User
from kubeloop.endpoints.client_certificates import parse_certificate
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.serving.answer import Reply
from kubeloop.serving.request import Request

_USER: ContextVar[User] = ContextVar("user")


class UserProxy(TableProxy):
    """Impersonates the user of each client. The API server decides what the user may do."""

    async def reply(self, request: Request, info: RequestInfo) -> Reply:
        _USER.set(user_of(request))
        return await super().reply(request, info)

    def headers(self, headers: Headers) -> Headers:
        user = _USER.get()
        groups = [("Impersonate-Group", group) for group in user.groups if group != "system:authenticated"]
        return [*super().headers(headers), ("Impersonate-User", user.name), *groups]


def user_of(request: Request) -> User:
    """Return the user of a client. TLS has verified that the proxy's authority signed the certificate."""
    if not request.peer_chain:
        return ANONYMOUS
    certificate = parse_certificate(request.peer_chain[0])
    if certificate.user is None or certificate.fault:
        raise api_errors.unauthorized()
    return certificate.user
