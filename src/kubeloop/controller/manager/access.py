"""Access to a manager's metrics and debug endpoints: by static token, client certificate, or the cluster's RBAC.

RBAC access works like controller-runtime's filter (pkg/metrics/filters): a TokenReview identifies the user, and a SubjectAccessReview
authorizes the request.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import ssl
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from kubeloop.client import Client
from kubeloop.meta import ConfigError, KubeloopError
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import logger_with_context

_LOG = logger_with_context("kubeloop.controller.manager")

K = TypeVar("K")
V = TypeVar("V")

#: Seconds for which reviews are cached: user of a token, positive and negative authorization. controller-runtime's values.
AUTHENTICATED, ALLOWED, DENIED = 60.0, 300.0, 30.0
#: Maximum number of cached reviews, so that random tokens cannot fill the memory.
_MOST = 4096


class EndpointAccess(Protocol):
    """Decides who may read an endpoint."""

    @property
    def authorities(self) -> bytes:
        """Certificate authorities (PEM) for client certificates. Empty: clients need no certificate."""

    async def admit(self, request: Request) -> Answer | None:
        """Return None if the request is allowed, else the response that rejects it."""


class BearerToken:
    """Allows requests with a static token, or with the token of a file, which is read again when it has changed.

    Raises:
        ConfigError: neither or both are given, or the file holds no token.
    """

    authorities = b""

    def __init__(self, token: str = "", *, file: Path | str | None = None) -> None:
        if bool(token) == (file is not None):
            raise ConfigError("BearerToken: give a token, or file=... with one in it")
        self._path = Path(file) if file is not None else None
        self._token = token
        self._stamp: tuple[int, int] | None = None
        self._current()

    async def admit(self, request: Request) -> Answer | None:
        given = _bearer(request)
        if given and hmac.compare_digest(given.encode(), self._current().encode()):
            return None
        return _unauthorized()

    def _current(self) -> str:
        if self._path is None:
            return self._token
        try:
            found = self._path.stat()
            if (stamp := (found.st_mtime_ns, found.st_ino)) != self._stamp:
                token = self._path.read_text().strip()
                if not token:
                    raise ConfigError(f"BearerToken: {self._path} is empty; write a token into it")
                self._token, self._stamp = token, stamp
        except OSError as error:
            if not self._token:
                raise ConfigError(f"BearerToken: {self._path} cannot be read: {error.strerror}") from None
        except ConfigError:
            if not self._token:
                raise
        return self._token


class ClientCertificates:
    """Allows clients with a valid certificate signed by ``authority`` (PEM, or a file); with ``names``, only these common names.

    Raises:
        ConfigError: the authority is not a certificate.
    """

    def __init__(self, authority: bytes | Path | str, names: Collection[str] = (), *, clock: Clock | None = None) -> None:
        try:
            self.authorities = authority if isinstance(authority, bytes) else Path(authority).read_bytes()
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=self.authorities.decode())
        except OSError as error:
            raise ConfigError(f"ClientCertificates: {authority!r} cannot be used: {error.strerror or error}") from None
        except ValueError:
            raise ConfigError("ClientCertificates: the authority is not a PEM certificate") from None
        self._names = frozenset(names)
        self._clock = clock or SystemClock()

    async def admit(self, request: Request) -> Answer | None:
        certificate = request.peer_certificate
        if not certificate:
            return _unauthorized()
        now = self._clock.wall().timestamp()
        if not ssl.cert_time_to_seconds(certificate["notBefore"]) <= now <= ssl.cert_time_to_seconds(certificate["notAfter"]):
            return _unauthorized()
        names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
        if self._names and not self._names.intersection(names):
            return _forbidden(", ".join(names))
        return None


@dataclass(frozen=True, slots=True)
class _User:
    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]


class KubernetesAccess:
    """Allows users that the cluster authenticates by bearer token and authorizes for the path.

    Users need a cluster role with ``nonResourceURLs: ["/metrics"]`` and ``verbs: ["get"]``.

    The program itself needs ``create`` on tokenreviews and subjectaccessreviews (the role system:auth-delegator).

    Guarantees
        Tokens are cached as hashes only. Users are cached for one minute, positive decisions for five minutes, negative ones for half a
        minute. If the cluster does not respond, every request is rejected.
    """

    authorities = b""

    def __init__(self, client: Client, *, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or client.clock
        self._users: dict[bytes, tuple[float, _User | None]] = {}
        self._verdicts: dict[tuple[_User, str, str], tuple[float, bool]] = {}

    async def admit(self, request: Request) -> Answer | None:
        token = _bearer(request)
        if not token:
            return _unauthorized()
        try:
            user = await self._who(token)
        except KubeloopError as error:
            _LOG.log(logging.ERROR, "%s: authentication failed: %s", request.path, error)
            return _text(500, "Authentication failed\n")
        if user is None:
            return _unauthorized()
        verb = request.method.lower()
        try:
            allowed = await self._may(user, verb, request.path)
        except KubeloopError as error:
            _LOG.log(logging.ERROR, "%s: authorization of %s failed: %s", request.path, user.name, error)
            return _text(500, f"Authorization for user {user.name} failed\n")
        return None if allowed else _forbidden(user.name)

    async def _who(self, token: str) -> _User | None:
        from kubeloop.api.authentication.v1 import TokenReview, TokenReviewSpec

        key, now = hashlib.sha256(token.encode()).digest(), self._clock.now()
        known = self._users.get(key)
        if known is not None and now < known[0]:
            return known[1]
        review = await self._client.create(TokenReview(spec=TokenReviewSpec(token=token)))
        user = None
        if review.status.authenticated:
            info = review.status.user
            extra = tuple(sorted((name, tuple(values)) for name, values in info.extra.items()))
            user = _User(info.username or "", info.uid or "", tuple(info.groups), extra)
        _bounded(self._users)[key] = (now + AUTHENTICATED, user)
        return user

    async def _may(self, user: _User, verb: str, path: str) -> bool:
        from kubeloop.api.authorization.v1 import NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec

        now = self._clock.now()
        known = self._verdicts.get((user, verb, path))
        if known is not None and now < known[0]:
            return known[1]
        spec = SubjectAccessReviewSpec(
            user=user.name,
            uid=user.uid,
            groups=list(user.groups),
            extra={name: list(values) for name, values in user.extra},
            non_resource_attributes=NonResourceAttributes(path=path, verb=verb),
        )
        review = await self._client.create(SubjectAccessReview(spec=spec))
        allowed = bool(review.status.allowed)
        _bounded(self._verdicts)[user, verb, path] = (now + (ALLOWED if allowed else DENIED), allowed)
        return allowed


def _bounded(cache: dict[K, V]) -> dict[K, V]:
    """Return the cache, emptied if it is full. Entries in use are then reviewed again."""
    if len(cache) >= _MOST:
        cache.clear()
    return cache


def _bearer(request: Request) -> str:
    scheme, _, token = request.header("Authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _unauthorized() -> Answer:
    return _text(401, "Unauthorized\n")


def _forbidden(user: str) -> Answer:
    return _text(403, f"Authorization denied for user {user}\n")


def _text(status: int, text: str) -> Answer:
    return Answer(status, body=text.encode(), content_type="text/plain; charset=utf-8", headers=[("X-Content-Type-Options", "nosniff")])
