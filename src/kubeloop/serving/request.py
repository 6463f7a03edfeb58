"""The request object that handlers get. It is independent of the HTTP implementation."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(slots=True)
class Request:
    """One HTTP request. ``path`` is decoded, ``query`` has every value in order; header names are case-insensitive.

    ``peer_certificate`` is the verified client certificate in the form of ``ssl.SSLSocket.getpeercert``, or None. ``remote`` is the
    client's address. ``body`` streams the body, of any size, if ``read_body`` was not called.
    """

    method: str
    path: str
    query_string: str
    headers: Mapping[str, str]
    read_body: Callable[[int], Awaitable[bytes]]
    peer_certificate: Mapping[str, Any] | None = None
    remote: str = ""
    body: Callable[[], AsyncIterator[bytes]] | None = None
    #: The client's certificate chain, DER, as far as Python provides it. Empty: no certificate.
    peer_chain: tuple[bytes, ...] = ()
    query: dict[str, list[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.query = {}
        if self.query_string:
            for name, value in query_pairs(self.query_string):
                self.query.setdefault(name, []).append(value)

    def parameter(self, name: str) -> str:
        """Return the first value of a query parameter, or the empty string (as Go's url.Values.Get)."""
        values = self.query.get(name)
        return values[0] if values else ""

    def header(self, name: str) -> str:
        return self.headers.get(name, "")


def query_pairs(query: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of a query, parsed as by Go's net/url: pairs with a semicolon or a malformed escape are skipped."""
    for pair in query.split("&"):
        if not pair or ";" in pair or _BAD_ESCAPE.search(pair):
            continue
        name, _, value = pair.partition("=")
        yield unquote_plus(name), unquote_plus(value)
