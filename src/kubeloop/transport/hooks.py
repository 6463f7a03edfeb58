"""What a program adds to each request, or wants to know of it: a ``Hook`` sees each try as it is sent, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

#: Their values are secrets: they are shown to hooks, as to client-go's WrapTransport, but never printed.
SECRET_HEADERS = frozenset(("authorization", "proxy-authorization", "cookie", "set-cookie", "sec-websocket-key"))
# Of the API server it is commands and tokens; programs behind a proxy have passwords, keys and signatures of their own.
_SECRET_QUERY = re.compile(r"([?&](?:command|[^=&#]*(?:token|password|secret|signature|credential|api[-_]?key))=)[^&#]*", re.IGNORECASE)
_USER = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/?#@]*@")


class SentRequest(msgspec.Struct):
    """One try. A hook may ``add`` headers while it is ``sending``; ``notes`` is its own, to remember something until the answer.

    ``path`` is below the server's own, without a query. ``verb`` is that of Kubernetes (``list``, ``watch``, ``create``), or the HTTP
    method where the path names no resource. ``attempt`` is 0 for the first try.
    """

    method: str
    url: str
    path: str
    verb: str
    asked: str
    headers: list[tuple[str, str]]
    body: bytes | None = None
    attempt: int = 0
    notes: dict[str, Any] = {}

    def add(self, name: str, value: str) -> None:
        """Send this header, in place of another of that name."""
        self.headers[:] = [one for one in self.headers if one[0].lower() != name.lower()]
        self.headers.append((name, value))

    def get(self, name: str) -> str | None:
        """A header's first value."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def __repr__(self) -> str:
        return f"SentRequest({self.method} {without_secrets(self.url)}, attempt {self.attempt})"


class Outcome(msgspec.Struct, frozen=True):
    """What became of a try: an answer (``status``), or ``error``. ``size`` is the body's in bytes, None for a stream."""

    seconds: float
    status: int | None = None
    headers: Mapping[str, str] = {}
    size: int | None = None
    error: BaseException | None = None

    def __repr__(self) -> str:
        # Headers may hold cookies.
        return f"Outcome({self.status or self.error!r} after {self.seconds:.3f} s)"


class Hook:
    """Override what you want to see. Both run in the event loop: they must not block.

    Guarantees
        For each ``sending`` that returns there is one ``answered``: when the whole answer is there; for streams and changes of protocol
        with the head; also for a try that was refused, broke off or was cancelled.
        What ``sending`` raises ends the call before anything is sent; what ``answered`` raises ends it too.
    """

    def sending(self, request: SentRequest) -> None:
        """Before each try, its headers complete."""

    def answered(self, request: SentRequest, outcome: Outcome) -> None:
        """After each try."""


def without_secrets(url: str) -> str:
    """A URL for logs: commands, tokens and passwords are masked, as is who logs in by it."""
    return _USER.sub(r"\1<masked>@", _SECRET_QUERY.sub(r"\1<masked>", url))


def shown(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Headers for logs: the kind of credentials is kept, their value is not (client-go transport/round_trippers.go, maskValue)."""
    return [(name, _masked(value) if name.lower() in SECRET_HEADERS else value) for name, value in headers]


def _masked(value: str) -> str:
    kind, blank, _ = value.partition(" ")
    return f"{kind} <masked>" if blank and kind.lower() in ("bearer", "basic", "negotiate") else "<masked>"
