"""Who asks: client certificates of the server's own authority, static bearer tokens, or nobody (anonymous).

Source: Kubernetes documentation, "Authenticating" (X.509 client certificates, static token file, anonymous requests, impersonation).
"""

from __future__ import annotations

import csv
import json
import re
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from kubeloop.apiserver import refusals
from kubeloop.meta.errors import ConfigError
from kubeloop.serving.request import Request

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class User:
    """``extra`` holds further attributes, as impersonation and authenticators set them."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


_EXTRA_SPACE = "the provided Authorization header contains extra space before the bearer token, and is ignored"


class Authenticator:
    """Tells who a request is from: a bearer token counts before a certificate, as in kube-apiserver.

    The certificate was verified by TLS, all but its times: one of another authority never comes this far, an expired one does.
    """

    def __init__(self, tokens: Mapping[str, User] | None = None) -> None:
        self._tokens = dict(tokens or {})

    def authenticate(self, request: Request, warnings: list[str]) -> User:
        """No credentials at all, or of an unknown scheme, mean anonymous. ``warnings`` is added to.

        Raises:
            Unauthorized: a token that nobody knows, or a certificate that is expired.
        """
        header = request.header("Authorization")
        token = _bearer_token(header)
        if token is None:
            warnings.append(_EXTRA_SPACE)
        elif token:
            user = self._tokens.get(token)
            if user is None:
                raise refusals.unauthorized()
            return user
        if request.peer_certificate:
            if not _is_valid_now(request.peer_certificate):
                raise refusals.unauthorized()
            return _certificate_user(request.peer_certificate)
        return ANONYMOUS

    def review(self, token: str) -> User | None:
        """Whose token it is, for TokenReviews."""
        return self._tokens.get(token)


def read_tokens(path: Path) -> dict[str, User]:
    """A token file: CSV lines ``token,user,uid[,"group1,group2"]``, as kube-apiserver's --token-auth-file.

    Raises:
        ConfigError: unreadable, or a line with fewer than three columns, or without a token.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return _tokens(csv.reader(file, skipinitialspace=True), path)
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise ConfigError(f"cannot read token file {path}: {fault}") from None


def _tokens(rows: Iterable[list[str]], path: Path) -> dict[str, User]:
    found = {}
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        if len(row) < 3 or not row[0].strip():
            raise ConfigError(f'token file {path}, line {number}: wanted token,user,uid[,"groups"]')
        token, name, uid = (one.strip() for one in row[:3])
        groups = tuple(one.strip() for one in row[3].split(",") if one.strip()) if len(row) > 3 else ()
        found[token] = User(name, (*groups, AUTHENTICATED), uid)
    return found


def _bearer_token(header: str) -> str | None:
    """What stands between the first two spaces; empty without a token, None when there is a space too many."""
    scheme, _, rest = header.strip().partition(" ")
    if scheme.lower() != "bearer":
        return ""
    token, further, _ = rest.partition(" ")
    return None if further and not token else token


def _is_valid_now(certificate: Mapping[str, Any]) -> bool:
    # Not the server's own clock, which a test may have set to any time: certificates are issued at the real one.
    return _seconds(certificate["notBefore"]) <= time.time() < _seconds(certificate["notAfter"])


# Each request of a connection shows the same certificate.
_seconds = lru_cache(maxsize=1024)(ssl.cert_time_to_seconds)


def _certificate_user(certificate: Mapping[str, Any]) -> User:
    name = ""
    groups = []
    for relative in certificate.get("subject", ()):
        for kind, value in relative:
            if kind == "commonName":
                name = value
            elif kind == "organizationName":
                groups.append(value)
    return User(name, (*groups, AUTHENTICATED))


def impersonated(request: Request) -> User | None:
    """Whom the request asks to be taken for; None when it does not ask. Whether it may is for authorization to say.

    Raises:
        BadRequest: groups, uid or extra without a user.
    """
    name = request.header("Impersonate-User")
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    uid = request.header("Impersonate-Uid")
    for header, value in request.headers.items():
        lower = header.lower()
        if lower == "impersonate-group":
            groups.append(value)
        elif lower.startswith("impersonate-extra-"):
            extra.setdefault(_unescaped(lower.removeprefix("impersonate-extra-")), []).append(value)
    if not name:
        if groups or extra or uid:
            asked = f'&user.DefaultInfo{{Name:"", UID:{_go(uid)}, Groups:{_go_list(groups)}, Extra:{_go_map(extra)}}}'
            raise refusals.bad_request(f"requested {asked} without impersonating a user name")
        return None
    if name.startswith("system:serviceaccount:") and not groups:
        namespace = name.split(":")[2]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    if name != ANONYMOUS.name and AUTHENTICATED not in groups:
        groups.append(AUTHENTICATED)
    return User(name, tuple(groups), uid, {key: tuple(values) for key, values in extra.items()})


def _unescaped(key: str) -> str:
    """Percent escapes stand for what a header's name cannot hold; a key with a broken one is taken as it is (url.PathUnescape)."""
    return key if re.search("%(?![0-9a-f]{2})", key) else unquote(key)


def _go(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _go_list(texts: list[str]) -> str:
    """As Go prints a slice of strings with %#v."""
    return f"[]string{{{', '.join(map(_go, texts))}}}" if texts else "[]string(nil)"


def _go_map(extra: dict[str, list[str]]) -> str:
    inner = ", ".join(f"{_go(name)}:{_go_list(values)}" for name, values in sorted(extra.items()))
    return f"map[string][]string{{{inner}}}" if extra else "map[string][]string(nil)"
