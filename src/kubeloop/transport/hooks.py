"""Hooks: a program's code that is called before each attempt of a request and with its outcome. Hooks may add headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

#: Headers with secret values: hooks see them, as client-go's WrapTransport does, but they are never printed.
SECRET_HEADERS = frozenset(("authorization", "proxy-authorization", "cookie", "set-cookie", "sec-websocket-key"))
# The secret parameters of the API server are commands and tokens; programs behind a proxy have other passwords, keys and signatures.
_SECRET_QUERY = re.compile(r"([?&](?:command|[^=&#]*(?:token|password|secret|signature|credential|api[-_]?key))=)[^&#]*", re.IGNORECASE)
_USER = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/?#@]*@")


class SentRequest(msgspec.Struct):
    """One attempt of a request. A hook may ``add`` headers in ``sending``, and store its own data in ``notes`` until the response.

    ``path`` is relative to the server's address, without a query. ``verb`` is that of Kubernetes (``list``, ``watch``, ``create``), or the
    HTTP method if the path names no resource. ``attempt`` is 0 for the first attempt.

    Example:
        >>> request = SentRequest("GET", "https://api/version", "/version", "GET", "GET /version", [("Accept", "text/plain")])
        >>> request.add("X-Trace", "17")
        >>> request.get("x-trace")
        '17'
    """

    method: str
    url: str
    path: str
    verb: str
    description: str
    headers: list[tuple[str, str]]
    body: bytes | None = None
    attempt: int = 0
    notes: dict[str, Any] = {}

    def add(self, name: str, value: str) -> None:
        """Set a header. It replaces an existing header of that name."""
        self.headers[:] = [one for one in self.headers if one[0].lower() != name.lower()]
        self.headers.append((name, value))

    def get(self, name: str) -> str | None:
        """Return the first value of a header, or None if the request does not have it."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def __repr__(self) -> str:
        return f"SentRequest({self.method} {without_secrets(self.url)}, attempt {self.attempt})"


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of an attempt: a response (``status``) or an ``error``. ``size`` is the length of the body in bytes, None for a stream.

    Example:
        >>> Outcome(0.25, status=200, size=17)
        Outcome(200 after 0.250 s)
    """

    seconds: float
    status: int | None = None
    headers: Mapping[str, str] = {}
    size: int | None = None
    error: BaseException | None = None

    def __repr__(self) -> str:
        # Headers may contain cookies.
        return f"Outcome({self.status or self.error!r} after {self.seconds:.3f} s)"


class Hook:
    """The base class of hooks. Override its methods. Both run in the event loop, so they must not block.

    Guarantees
        For each ``sending`` that returns, ``answered`` is called once: after the complete response, or for streams and protocol upgrades
        after the head. It is also called for attempts that were rejected, broken or cancelled.
        An exception of ``sending`` ends the call before the request is sent; an exception of ``answered`` ends it too.

    Example:
        >>> from kubeloop.transport import Transport
        >>> class PrintStatus(Hook):
        ...     def answered(self, request: SentRequest, outcome: Outcome) -> None:
        ...         print(request.verb, outcome.status)
        >>> async with Transport(cluster.config, hooks=[PrintStatus()]) as transport:
        ...     await transport.request("GET", "/api/v1/nodes")
        list 200
        Response(status=200, ... bytes)
    """

    def sending(self, request: SentRequest) -> None:
        """Called before each attempt, when its headers are complete."""

    def answered(self, request: SentRequest, outcome: Outcome) -> None:
        """Called after each attempt."""


def without_secrets(url: str) -> str:
    """Return a URL for logs: commands, tokens, passwords and user names are masked."""
    return _USER.sub(r"\1<masked>@", _SECRET_QUERY.sub(r"\1<masked>", url))


def shown(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return headers for logs. Credentials are masked except for their scheme (client-go transport/round_trippers.go, maskValue)."""
    return [(name, _masked(value) if name.lower() in SECRET_HEADERS else value) for name, value in headers]


def _masked(value: str) -> str:
    kind, blank, _ = value.partition(" ")
    return f"{kind} <masked>" if blank and kind.lower() in ("bearer", "basic", "negotiate") else "<masked>"
