"""Authentication of a request by the front proxy's headers, a client certificate or a bearer token, or else as the anonymous user.

The first method that identifies a user decides. Source: Kubernetes documentation, "Authenticating"; k8s.io/kubernetes
pkg/kubeapiserver/authenticator (the order).
"""

from __future__ import annotations

import base64
import binascii
import csv
import logging
import time
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Final, Protocol

from multidict import CIMultiDict

from kubeloop.apiserver.authentication.certificates import ClientAuthorities, user_of_certificate
from kubeloop.apiserver.authentication.token_claims import TokenRefused
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import ANONYMOUS, AUTHENTICATED, Proof, User, authenticated
from kubeloop.endpoints.client_certificates import parse_certificate
from kubeloop.endpoints.request_header import CONVENTIONAL, RequestHeaders
from kubeloop.meta.errors import ConfigError
from kubeloop.pki.watched import WatchedFile
from kubeloop.serving.request import Request

# Static bearer tokens from a file. Source: Kubernetes documentation, "Authenticating" (static token file).


_LOG = logging.getLogger("kubeloop.apiserver.authentication")


class StaticTokens:
    """Static bearer tokens: those in the arguments, and those of ``file``, which is read again when it changes.

    They are valid for every audience.

    Raises:
        ConfigError: The file cannot be read at first. Later errors are logged, and the previous tokens stay valid.
    """

    def __init__(self, tokens: Mapping[str, User], audiences: tuple[str, ...], file: Path | None = None) -> None:
        self._given = tokens
        self._audiences = audiences
        self._file = WatchedFile(file, "--token-auth-file") if file is not None else None
        self._mark = self._file.mark() if self._file is not None else None
        self._tokens = {**tokens, **(read_tokens(file) if file is not None else {})}

    async def authenticate(self, token: str, audiences: tuple[str, ...]) -> Proof | None:
        """Return the user of a token, or None if the token is unknown or no audience of the server is requested."""
        if self._file is not None:
            self._refresh(self._file)
        user = self._tokens.get(token)
        if user is None:
            return None
        both = tuple(one for one in self._audiences if one in audiences)
        return Proof(user, both) if both else None

    def _refresh(self, file: WatchedFile) -> None:
        mark = file.mark()
        if mark == self._mark:
            return
        self._mark = mark
        try:
            self._tokens = {**self._given, **read_tokens(file.path)}
        except ConfigError as error:
            _LOG.warning("%s; the previous content stays in use", error)
        else:
            _LOG.info("%s %s was reloaded", file.flag, file.path)


def read_tokens(path: Path) -> dict[str, User]:
    """Read a token file: CSV lines ``token,user,uid[,"group1,group2"]``, as for kube-apiserver's --token-auth-file.

    Raises:
        ConfigError: The file is unreadable, or a line has fewer than three columns or no token.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return _tokens(csv.reader(file, skipinitialspace=True), path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot read token file {path}: {error}") from None


def _tokens(rows: Iterable[list[str]], path: Path) -> dict[str, User]:
    result = {}
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        if len(row) < 3 or not row[0].strip():
            raise ConfigError(f'token file {path}, line {number}: wanted token,user,uid[,"groups"]')
        token, name, uid = (one.strip() for one in row[:3])
        groups = tuple(one.strip() for one in row[3].split(",") if one.strip()) if len(row) > 3 else ()
        result[token] = User(name, (*groups, AUTHENTICATED), uid)
    return result


# Browsers cannot set headers of a WebSocket, so they send a bearer token as one of the offered subprotocols.
# Source: k8s.io/apiserver pkg/authentication/request/websocket.


_PREFIX: Final = "base64url.bearer.authorization.k8s.io."
_PROTOCOLS: Final = "Sec-WebSocket-Protocol"


class BadProtocol(Exception):
    """The offered subprotocols contain a malformed bearer token. The message does not contain the token."""


def websocket_token(request: Request) -> str:
    """Return the bearer token in the subprotocols of a WebSocket request, or "" if there is none.

    Raises:
        BadProtocol: The token is malformed.
    """
    if _PROTOCOLS not in request.headers or request.header("Upgrade").lower() != "websocket":
        return ""
    offered = _offered(request)
    tokens = [one.removeprefix(_PREFIX) for one in offered if one.startswith(_PREFIX)]
    if not tokens:
        return ""
    if len(tokens) > 1:
        raise BadProtocol("multiple base64.bearer.authorization tokens specified")
    try:
        if "=" in tokens[0]:
            raise BadProtocol("invalid base64.bearer.authorization token encoding")
        decoded = base64.b64decode(tokens[0] + "=" * (-len(tokens[0]) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadProtocol("invalid base64.bearer.authorization token encoding") from None
    try:
        token = decoded.decode()
    except UnicodeDecodeError:
        raise BadProtocol("invalid base64.bearer.authorization token") from None
    if token and len(offered) == 1:
        raise BadProtocol("missing additional subprotocol")
    return token


def remove_websocket_token(request: Request) -> None:
    """Remove the bearer token from the offered subprotocols, so that later stages neither see nor select it."""
    headers = CIMultiDict(request.headers)
    headers[_PROTOCOLS] = ",".join(one for one in _offered(request) if not one.startswith(_PREFIX))
    request.headers = headers


def _offered(request: Request) -> list[str]:
    values = (value for name, value in request.headers.items() if name.lower() == _PROTOCOLS.lower())
    return [one.strip() for value in values for one in value.split(",")]


INVALID_TOKEN = "invalid bearer token"  # noqa: S105 - an error text
_EXTRA_SPACE = "the provided Authorization header contains extra space before the bearer token, and is ignored"


class TokenAuthenticator(Protocol):
    """Authenticates bearer tokens of one kind."""

    async def authenticate(self, token: str, audiences: tuple[str, ...]) -> Proof | None:
        """Return the user of a token, or None if the token is of another kind.

        Raises:
            TokenRefused: The token is of this kind, but not valid.
        """


class NotAuthenticated(Exception):
    """The credentials of a request are invalid. ``faults`` holds the errors in the words of Kubernetes, for TokenReviews."""

    def __init__(self, *faults: str) -> None:
        super().__init__(", ".join(faults))
        self.faults = faults


class Authenticator:
    """Authenticates requests.

    The TLS handshake has verified client certificates except for their validity period, so that expired certificates are rejected here.
    ``audiences`` are the audiences of the server; a token must have one of them. A request without credentials is anonymous.
    """

    def __init__(
        self,
        tokens: tuple[TokenAuthenticator, ...] = (),
        audiences: tuple[str, ...] = (),
        *,
        authorities: ClientAuthorities | None = None,
        proxies: RequestHeaders = CONVENTIONAL,
        anonymous: bool = True,
    ) -> None:
        """Create the chain.

        Args:
            tokens: Authenticators of bearer tokens, in order.
            audiences: Audiences of the server.
            authorities: Authorities of client certificates and front proxies; None: no client certificates.
            proxies: Headers of front proxies.
            anonymous: Serve requests without credentials.
        """
        self._tokens = tokens
        self.audiences = audiences
        self._authorities = authorities
        self._proxies = proxies
        self._anonymous = anonymous

    async def authenticate(self, request: Request, warnings: list[str], annotations: MutableMapping[str, str] | None = None) -> User:
        """Return the user of a request. It is the anonymous user if the request has no credentials, or an unknown authentication scheme.

        Args:
            request: The request. The identity headers of configured front proxies are removed.
            warnings: Receives texts for Warning headers.
            annotations: Receives annotations of the audit events.

        Raises:
            Unauthorized: The credentials are invalid, or missing where anonymous requests are not allowed.
        """
        try:
            proof = await self._proof(request, warnings)
        except NotAuthenticated:
            raise api_errors.unauthorized() from None
        if proof is None:
            if not self._anonymous:
                raise api_errors.unauthorized()
            return ANONYMOUS
        if self._proxies is not CONVENTIONAL:  # proxying removes the conventional headers
            self._proxies.forget(request)
        warnings += proof.warnings
        if annotations is not None:
            annotations.update(proof.annotations)
        return authenticated(proof.user)

    async def review(self, token: str, audiences: tuple[str, ...] = ()) -> Proof:
        """Return the user of a token, for a TokenReview.

        Everything after the first space of the token is ignored, as in an Authorization header. ``audiences`` are the audiences that the
        review requests; if there are none, the audiences of the server apply.

        Raises:
            NotAuthenticated: The token is invalid.
        """
        requested = audiences or self.audiences
        bare = bearer_token(f"Bearer {token}")
        if bare:
            proof = await self._of_token(bare, requested)
            return Proof(authenticated(proof.user), proof.audiences, proof.annotations, proof.warnings)
        if not self._anonymous:
            raise NotAuthenticated
        return Proof(ANONYMOUS, requested)

    async def _proof(self, request: Request, warnings: list[str]) -> Proof | None:
        """Return the user that the credentials prove, or None if there are no credentials.

        Raises:
            NotAuthenticated: The credentials are invalid.
        """
        faults: list[str] = []
        if request.peer_chain:
            user = self._of_certificate(request, faults)
            if user is not None:
                return Proof(user)
        elif request.peer_certificate:
            return Proof(user_of_certificate(request.peer_certificate))
        token = bearer_token(request.header("Authorization"))
        if token is None:
            warnings.append(_EXTRA_SPACE)
        elif token:
            try:
                return await self._of_token(token, self.audiences)
            except NotAuthenticated as error:
                faults += error.faults
        try:
            in_protocol = websocket_token(request)
            if in_protocol:
                proof = await self._of_token(in_protocol, self.audiences)
                remove_websocket_token(request)
                return proof
        except BadProtocol as error:
            faults.append(str(error))
        except NotAuthenticated as error:
            faults += error.faults
        if faults:
            raise NotAuthenticated(*faults)
        return None

    def _of_certificate(self, request: Request, faults: list[str]) -> User | None:
        """Return the user of the client certificate, or None. Errors of the certificate are appended to ``faults``."""
        chain = request.peer_chain
        certificate = parse_certificate(chain[0])
        if not certificate.is_valid_at(time.time()):  # the system time, because tests may set the server's clock to any time
            faults.append("x509: certificate has expired or is not yet valid")
            return None
        authorities = self._authorities
        if authorities is not None:
            authorities.refresh()
            if authorities.is_proxy(chain):
                if self._proxies.allows(certificate.name):
                    user = self._proxies.user(request)
                    if user is not None:
                        return user
                else:
                    faults.append(f"x509: subject with cn={certificate.name} is not in the allowed list")
            if not authorities.is_client(chain):
                faults.append("x509: certificate signed by unknown authority")
                return None
        if certificate.fault:
            faults.append(certificate.fault)
            return None
        return certificate.user

    async def _of_token(self, token: str, audiences: tuple[str, ...]) -> Proof:
        """Return the user of a bearer token. Raises NotAuthenticated."""
        faults = []
        for one in self._tokens:
            try:
                proof = await one.authenticate(token, audiences)
            except TokenRefused as error:
                faults.append(str(error))
            else:
                if proof is not None:
                    return proof
        raise NotAuthenticated(INVALID_TOKEN, *faults)


def bearer_token(header: str) -> str | None:
    """Return the bearer token of an Authorization header. Return "" if it has none, and None if more than one space follows the scheme."""
    scheme, _, rest = header.strip().partition(" ")
    if scheme.lower() != "bearer":
        return ""
    token, further, _ = rest.partition(" ")
    return None if further and not token else token
