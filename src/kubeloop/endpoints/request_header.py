"""Headers that name a user: those of a trusted front proxy, and those for impersonation.

Source: Kubernetes documentation, "Authenticating Proxy"; k8s.io/apiserver pkg/authentication/request/headerrequest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from multidict import CIMultiDict

from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import User
from kubeloop.meta.errors import ConfigError
from kubeloop.serving.request import Request


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """The headers in which front proxies send the user, uid, groups and extras.

    ``allowed_names`` are the common names that a front proxy's certificate may have; if it is empty, every name is allowed.
    """

    names: tuple[str, ...] = ()
    uids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()
    allowed_names: tuple[str, ...] = ()

    def check(self) -> None:
        """Check the header names. Raises ConfigError if one is empty."""
        flags = ("username-headers", self.names), ("uid-headers", self.uids), ("group-headers", self.groups)
        for flag, headers in (*flags, ("extra-headers-prefix", self.extra_prefixes)):
            if not all(one.strip() for one in headers):
                raise ConfigError(f"--requestheader-{flag}: an empty header")

    def allows(self, name: str) -> bool:
        """Return whether a front proxy may have this common name."""
        return not self.allowed_names or name in self.allowed_names

    def user(self, request: Request) -> User | None:
        """Return the user in the headers, or None if they name none."""
        name = _first(request, self.names)
        if not name:
            return None
        groups: list[str] = []
        extra: dict[str, tuple[str, ...]] = {}
        for desired in self.groups:
            groups += [value for header, value in request.headers.items() if header.lower() == desired.lower() and value]
        for prefix in self.extra_prefixes:
            for header, value in request.headers.items():
                if header.lower().startswith(prefix.lower()):
                    key = unescaped(header[len(prefix) :].lower())
                    extra[key] = (*extra.get(key, ()), value)
        return User(name, tuple(groups), _first(request, self.uids), extra)

    def forget(self, request: Request) -> None:
        """Remove the headers from a request, whether or not a trusted proxy sent them, so that later stages do not see them."""
        whole = {one.lower() for one in (*self.names, *self.uids, *self.groups)}
        begin = tuple(one.lower() for one in self.extra_prefixes)

        def is_own(name: str) -> bool:
            return name.lower() in whole or (bool(begin) and name.lower().startswith(begin))

        if any(is_own(name) for name in request.headers):
            request.headers = CIMultiDict((name, value) for name, value in request.headers.items() if not is_own(name))


#: The conventional headers, which kube-apiserver uses as well.
CONVENTIONAL: Final = RequestHeaders(("X-Remote-User",), ("X-Remote-Uid",), ("X-Remote-Group",), ("X-Remote-Extra-",))


def _first(request: Request, headers: Sequence[str]) -> str:
    """Return the first value of the first header that has one."""
    return next((value for one in headers if (value := request.header(one))), "")


def unescaped(key: str) -> str:
    """Decode the percent escapes in the key of an extra. A key with an invalid escape stays unchanged (Go's url.PathUnescape)."""
    return key if re.search("%(?![0-9a-fA-F]{2})", key) else unquote(key)


# Impersonation. Source: Kubernetes documentation, "User impersonation".


def requested_impersonation(request: Request) -> User | None:
    """Return the user that the request wants to impersonate, or None.

    Authorization decides later whether this is allowed, and adds the groups that such a user always has.

    Raises:
        BadRequest: The headers name groups, uid or extras without a user.
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
            extra.setdefault(unescaped(lower.removeprefix("impersonate-extra-")), []).append(value)
    if not name:
        if groups or extra or uid:
            requested = f'&user.DefaultInfo{{Name:"", UID:{_go(uid)}, Groups:{_go_list(groups)}, Extra:{_go_map(extra)}}}'
            raise api_errors.bad_request(f"requested {requested} without impersonating a user name")
        return None
    return User(name, tuple(groups), uid, {key: tuple(values) for key, values in extra.items()})


def _go(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _go_list(texts: list[str]) -> str:
    """Format strings as Go prints a slice with %#v."""
    return f"[]string{{{', '.join(map(_go, texts))}}}" if texts else "[]string(nil)"


def _go_map(extra: dict[str, list[str]]) -> str:
    inner = ", ".join(f"{_go(name)}:{_go_list(values)}" for name, values in sorted(extra.items()))
    return f"map[string][]string{{{inner}}}" if extra else "map[string][]string(nil)"
