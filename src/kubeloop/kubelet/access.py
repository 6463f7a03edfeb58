"""Authentication and authorization at a kubelet's endpoint: client certificates or tokens, and the API server's authorizers.

Source: Kubernetes pkg/kubelet/server/auth.go, cmd/kubelet/app/auth.go; documentation, "Kubelet authentication/authorization".
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kubeloop.api.authentication.v1 import TokenReview, TokenReviewSpec
from kubeloop.api.authorization.v1 import ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec
from kubeloop.client import Client
from kubeloop.meta import KubeloopError
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request

#: Seconds for which allowed and denied decisions and users of tokens are cached, and the maximum number of entries of each cache.
_ALLOWED, _DENIED, _USER = 300.0, 30.0, 120.0
_MOST = 1024
_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCES = (
    ("/stats", "stats"),
    ("/metrics", "metrics"),
    ("/logs", "log"),
    ("/pods", "pods"),
    ("/runningpods", "pods"),
    ("/healthz", "healthz"),
    ("/configz", "configz"),
)


@dataclass(frozen=True)
class EndpointUser:
    """The authenticated user of a request to the kubelet's endpoint."""

    name: str
    groups: tuple[str, ...] = ()


def required_permission(method: str, path: str) -> tuple[str, list[str]]:
    """Return the verb and the subresources of nodes that a request needs; permission for one of the subresources suffices."""
    found = next((name for start, name in _SUBRESOURCES if path == start or path.startswith(start + "/")), "proxy")
    # KubeletFineGrainedAuthz: the kubelet checks the finer permission first, then the old one.
    fine = found in ("pods", "healthz", "configz")
    return _VERBS.get(method, method.lower()), [found, "proxy"] if fine else [found]


class EndpointAccessReviewer:
    """Authenticates and authorizes requests to the kubelet's endpoint, by TokenReview and SubjectAccessReview.

    Args:
        client: A client with the node's credentials.
        node: The node's name.
    """

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._users: dict[str, tuple[float, EndpointUser | None]] = {}
        self._decisions: dict[tuple[EndpointUser, str, str], tuple[float, bool]] = {}

    async def admit(self, request: Request) -> Answer | None:
        """Return None if a request is allowed, else the response that refuses it: 401 without a known user, 403 without permission."""
        user = await self._user(request)
        if user is None:
            return _plain(401, "Unauthorized")
        verb, subresources = required_permission(request.method, request.path)
        for subresource in subresources:
            if await self._allowed(user, verb, subresource):
                return None
        text = f"Forbidden (user={user.name}, verb={verb}, resource=nodes, subresource(s)=[{' '.join(subresources)}])"
        return _plain(403, text)

    async def _user(self, request: Request) -> EndpointUser | None:
        if request.peer_certificate:
            pairs = [pair for part in request.peer_certificate.get("subject", ()) for pair in part]
            name = next((value for kind, value in reversed(pairs) if kind == "commonName"), "")
            return EndpointUser(name, tuple(value for kind, value in pairs if kind == "organizationName")) if name else None
        scheme, _, token = request.header("Authorization").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return None
        key, now = hashlib.sha256(token.encode()).hexdigest(), self._client.clock.now()
        known = self._users.get(key)
        if known is not None and known[0] > now:
            return known[1]
        user: EndpointUser | None = None
        try:
            review = await self._client.create(TokenReview(spec=TokenReviewSpec(token=token.strip())))
        except KubeloopError:
            return None
        if review.status.authenticated:
            user = EndpointUser(review.status.user.username or "", tuple(review.status.user.groups))
        if len(self._users) >= _MOST:
            self._users.clear()
        self._users[key] = (now + _USER, user)
        return user

    async def _allowed(self, user: EndpointUser, verb: str, subresource: str) -> bool:
        key, now = (user, verb, subresource), self._client.clock.now()
        known = self._decisions.get(key)
        if known is not None and known[0] > now:
            return known[1]
        attributes = ResourceAttributes(verb=verb, version="v1", resource="nodes", subresource=subresource, name=self._node)
        spec = SubjectAccessReviewSpec(user=user.name, groups=list(user.groups), resource_attributes=attributes)
        try:
            review = await self._client.create(SubjectAccessReview(spec=spec))
        except KubeloopError:
            return False
        allowed = bool(review.status.allowed)
        if len(self._decisions) >= _MOST:
            self._decisions.clear()
        self._decisions[key] = (now + (_ALLOWED if allowed else _DENIED), allowed)
        return allowed


def _plain(status: int, text: str) -> Answer:
    return Answer(status, body=text.encode(), content_type="text/plain; charset=utf-8")
