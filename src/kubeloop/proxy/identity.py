"""The clients of the proxy: their users, and the headers by which the API server gets to know them.

A client certificate cannot cross the end of a TLS connection. The proxy verifies it with its own authority and impersonates the user, as
Kubernetes documents for proxies, or names the user as a front proxy in the headers X-Remote-*. A bearer token is passed on: the API server
verifies it. A client without credentials stays anonymous.

Source: Kubernetes documentation, "Authenticating" (client certificates, authenticating proxy) and "User impersonation".
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from kubeloop.config import ImpersonatedUser
from kubeloop.config.authenticator import impersonation_headers
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, Access, User, authenticated, forbidden, service_account
from kubeloop.endpoints.client_certificates import parse_certificate
from kubeloop.endpoints.request_header import requested_impersonation
from kubeloop.meta.errors import ApiError, ConfigError
from kubeloop.proxy.upstream import HeaderLines, Upstream, bad_gateway
from kubeloop.reverseproxy.identity import identity_headers
from kubeloop.serving.request import Request
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.proxy")

#: Seconds for which the user of a token, and a decision about impersonation, are cached; kube-apiserver caches tokens for 10 s.
CACHE_SECONDS: Final = 10.0
_CACHED: Final = 4096
#: Begin of a token that a browser sends as a WebSocket protocol. Source: k8s.io/apiserver pkg/authentication/request/websocket.
_WEBSOCKET_BEARER: Final = "base64url.bearer.authorization.k8s.io."
#: User of a proxy whose API server does not tell it who it is.
UNKNOWN: Final = User("kubeloop:proxy", (AUTHENTICATED,))
#: User and group by which the proxy finds out whether the API server believes its headers.
_PROBE: Final = User("kubeloop:front-proxy-check", ("kubeloop:front-proxy-check", AUTHENTICATED))


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The client of a request.

    Attributes:
        user: The user; None until ``Identity.resolve``, for a client that authenticates to the API server itself.
        headers: Headers by which the API server gets to know the user.
        as_proxy: The request is sent with the proxy's credentials, because ``headers`` name the user or the user is the proxy's own.
    """

    user: User | None
    headers: tuple[tuple[str, str], ...] = ()
    as_proxy: bool = False


class Identity:
    """Finds the user of each request.

    Guarantees
        A header of the client that names a user reaches the API server only from a client that authenticates there itself, so that the
        API server checks it; for the others the proxy asks the API server whether they may impersonate.
    """

    def __init__(self, upstream: Upstream, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock
        self.own = UNKNOWN
        self._users: OrderedDict[bytes, tuple[float, User]] = OrderedDict()
        self._allowed: OrderedDict[tuple[object, ...], tuple[float, bool]] = OrderedDict()
        #: Callers by the fingerprint of their certificate; the headers also depend on the proxy's own user.
        self._certificates: OrderedDict[tuple[object, ...], ClientIdentity] = OrderedDict()

    async def find_own(self) -> User:
        """Ask the API server for the proxy's own user. A server that does not serve SelfSubjectReviews leaves it unknown.

        Raises:
            ApiError: The API server sent no response, or refused the proxy's credentials.
        """
        try:
            self.own = await self._self([], as_proxy=True)
        except ApiError as error:
            if error.status.code not in (403, 404, 405):
                raise
            _LOG.info("the API server does not tell the proxy its user (%s); clients act as %s", error, self.own.name)
        return self.own

    async def check_front_proxy(self) -> None:
        """Check that the API server takes users and groups from the headers of this front proxy.

        Otherwise it could take every client for the user that the front proxy's certificate names.

        Raises:
            ConfigError: It does not.
        """
        try:
            found = await self._self(identity_headers(_PROBE), as_proxy=True)
        except ApiError as error:
            why = str(error)
        else:
            if found.name == _PROBE.name and _PROBE.groups[0] in found.groups:
                return
            why = f"it takes the proxy for user {found.name!r} with the groups {', '.join(found.groups)}"
        raise ConfigError(
            f"--proxy-client-cert-file: the API server does not believe the headers X-Remote-User and X-Remote-Group of this proxy: {why}; "
            "its --requestheader-client-ca-file must contain the authority of the certificate, its --requestheader-allowed-names the "
            "common name, and its --requestheader-username-headers and --requestheader-group-headers these headers"
        )

    async def identify(self, request: Request) -> ClientIdentity:
        """Return the client of a request.

        Raises:
            ApiError: 401: the client's certificate is expired or names no user. 403: the client must not impersonate. 400: its headers
                for impersonation are malformed.
        """
        if request.peer_chain:
            return await self._certified(request)
        passed = [
            (name, value)
            for name, value in request.headers.items()
            if (lower := name.lower()) == "authorization" or lower.startswith("impersonate-")
        ]
        if not passed and "Sec-WebSocket-Protocol" not in request.headers:
            return ClientIdentity(ANONYMOUS)
        return ClientIdentity(None, tuple(passed))

    async def resolve(self, request: Request, caller: ClientIdentity) -> User:
        """Return the user of a client, which the API server names for clients that authenticate to it.

        Raises:
            ApiError: The API server did not accept the client's credentials, with its Status.
        """
        if caller.user is not None:
            return caller.user
        headers = list(caller.headers)
        offered = [value for name, value in request.headers.items() if name.lower() == "sec-websocket-protocol"]
        if any(_WEBSOCKET_BEARER in value for value in offered):
            # The API server takes a token of a WebSocket from WebSockets only: the user of the request cannot be known beforehand.
            # Other credentials beside it, such as a password, may be none for the API server.
            raise api_errors.refusal(
                403, "Forbidden", "the proxy has rules for users; send the token in the header Authorization, not as a WebSocket protocol"
            )
        if not headers:
            return ANONYMOUS
        digest = hashlib.sha256(repr(headers).encode()).digest()
        now = self._clock.now()
        known = self._users.get(digest)
        if known is not None and known[0] > now:
            return known[1]
        user = await self._self(headers, as_proxy=False)
        self._users[digest] = (now + CACHE_SECONDS, user)
        if len(self._users) > _CACHED:
            self._users.popitem(last=False)
        return user

    async def _certified(self, request: Request) -> ClientIdentity:
        certificate = parse_certificate(request.peer_chain[0])
        if certificate.fault or not certificate.name or not certificate.is_valid_at(self._clock.wall().timestamp()):
            raise api_errors.unauthorized()
        target = requested_impersonation(request)
        key = certificate.fingerprint, self.own.name, self.own.groups
        caller = self._certificates.get(key)
        if caller is None or target is not None:
            # The extras of a certificate are kube-apiserver's own: it does not accept them by impersonation.
            user = authenticated(User(certificate.name, certificate.groups, certificate.uid))
            if target is not None:
                await self._check_impersonation(user, target)
                user = _completed(target)
                return ClientIdentity(user, tuple(self._headers(user)), as_proxy=True)
            caller = self._certificates[key] = ClientIdentity(user, tuple(self._headers(user)), as_proxy=True)
            if len(self._certificates) > _CACHED:
                self._certificates.popitem(last=False)
        return caller

    def _headers(self, user: User) -> HeaderLines:
        """Return the headers that name a user to the API server; none for the proxy's own user, unless this is a front proxy.

        Raises:
            ApiError: 401: a name cannot stand in a header. A changed name could be that of another user.
        """
        values = (user.name, user.uid, *user.groups, *(value for each in user.extra.values() for value in each))
        if any(not value.isprintable() or value != value.strip() for value in values):
            raise api_errors.unauthorized()
        if self._upstream.is_front_proxy:
            return identity_headers(user)
        if user.name == self.own.name and set(user.groups) == set(self.own.groups) and not user.extra:
            return []
        if user.name == ANONYMOUS.name:
            return [("Impersonate-User", user.name), ("Impersonate-Group", UNAUTHENTICATED)]
        # The API server adds system:authenticated by itself.
        groups = tuple(group for group in user.groups if group != AUTHENTICATED)
        return impersonation_headers(ImpersonatedUser(user=user.name, uid=user.uid, groups=groups, extra=tuple(user.extra.items())))

    async def _check_impersonation(self, user: User, target: User) -> None:
        """Check that the API server allows ``user`` to impersonate ``target``.

        Raises:
            Forbidden: It does not, with the message of a kube-apiserver.
        """
        for access in _impersonations(user, target):
            if not await self._may(access):
                raise forbidden(access)

    async def _may(self, access: Access) -> bool:
        key = (access.user.name, access.user.groups, access.group, access.resource, access.subresource, access.namespace, access.name)
        now = self._clock.now()
        known = self._allowed.get(key)
        if known is not None and known[0] > now:
            return known[1]
        attributes = {
            "verb": access.verb,
            "group": access.group,
            "version": "*",
            "resource": access.resource,
            "subresource": access.subresource,
            "namespace": access.namespace,
            "name": access.name,
        }
        spec: JSONObject = {"user": access.user.name, "groups": list(access.user.groups), "resourceAttributes": attributes}
        if access.user.uid:
            spec["uid"] = access.user.uid
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._upstream.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", [], review)
        status = answer.get("status") or {}
        allowed = status.get("allowed") is True and not status.get("denied")
        self._allowed[key] = (now + CACHE_SECONDS, allowed)
        if len(self._allowed) > _CACHED:
            self._allowed.popitem(last=False)
        return allowed

    async def _self(self, headers: HeaderLines, *, as_proxy: bool) -> User:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self._upstream.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", headers, review, as_proxy=as_proxy)
        return _user_in(answer)


def _user_in(review: JSONObject) -> User:
    info: Any = (review.get("status") or {}).get("userInfo") or {}
    name, groups, uid, extra = info.get("username"), info.get("groups") or [], info.get("uid") or "", info.get("extra") or {}
    if not isinstance(name, str) or not name:
        raise bad_gateway("the API server's SelfSubjectReview names no user")
    return User(name, tuple(groups), uid, {key: tuple(values) for key, values in extra.items() if key != _CREDENTIAL})


#: Extra that a kube-apiserver adds for credentials; it is not part of the user.
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"


def _impersonations(user: User, target: User) -> list[Access]:
    """Return the accesses that the impersonation of ``target`` needs (k8s.io/apiserver pkg/endpoints/filters/impersonation)."""
    account = _account(target.name)
    if account is not None:
        accesses = [Access(user, "impersonate", resource="serviceaccounts", namespace=account[0], name=account[1])]
    else:
        accesses = [Access(user, "impersonate", resource="users", name=target.name)]
    accesses += [Access(user, "impersonate", resource="groups", name=group) for group in target.groups]
    if target.uid:
        accesses.append(Access(user, "impersonate", group="authentication.k8s.io", resource="uids", name=target.uid))
    accesses += [
        Access(user, "impersonate", group="authentication.k8s.io", resource="userextras", subresource=key, name=value)
        for key, values in target.extra.items()
        for value in values
    ]
    return accesses


def _completed(target: User) -> User:
    """Return an impersonated user with the groups that a kube-apiserver adds."""
    account = _account(target.name)
    if account is not None and not target.groups:
        return service_account(account[0], account[1], target.uid, target.extra)
    if target.name == ANONYMOUS.name:
        groups = target.groups if UNAUTHENTICATED in target.groups else (*target.groups, UNAUTHENTICATED)
        return User(target.name, groups, target.uid, target.extra)
    return authenticated(target)


def _account(name: str) -> tuple[str, str] | None:
    parts = name.split(":")
    return (parts[2], parts[3]) if len(parts) == 4 and name.startswith("system:serviceaccount:") else None
