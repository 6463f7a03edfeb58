"""Parsing of Accept and Content-Type headers: the media types that a client accepts, in order of preference.

Malformed headers are treated as upstream's parsers treat them. Source: RFC 9110 section 12.5.1; github.com/munnerz/goautoneg and Go's
mime.ParseMediaType.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

#: Maximum characters of a header that are parsed. Its clauses are compared with each other, and results are cached.
_LONGEST: Final = 2048


@dataclass(frozen=True, slots=True)
class Clause:
    """One alternative of an Accept header. ``parameters`` are all its parameters except ``q``."""

    media_type: str
    parameters: tuple[tuple[str, str], ...] = ()
    quality: float = 1.0

    def parameter(self, name: str) -> str:
        return next((value for key, value in self.parameters if key == name), "")

    def accepts(self, media_type: str) -> bool:
        """Return whether the clause accepts ``media_type`` (type/subtype), exactly or through a wildcard."""
        kind, _, subtype = self.media_type.partition("/")
        return self.media_type in (media_type, "*/*") or (subtype == "*" and media_type.startswith(f"{kind}/"))


def shortened(header: str) -> str:
    """Return the part of a header that is parsed, which has a limited length."""
    return header if len(header) <= _LONGEST else header[:_LONGEST]


def parse_accept(header: str) -> tuple[Clause, ...]:
    """Return the well-formed clauses of an Accept header, the preferred clauses first.

    A concrete type comes before a wildcard regardless of their quality values. A malformed quality value counts as 0.

    Not guaranteed
        Clauses beyond the first 2,048 characters are ignored. Upstream reads them all.
    """
    return _parsed(shortened(header))


@lru_cache(maxsize=256)
def _parsed(header: str) -> tuple[Clause, ...]:
    clauses: list[Clause] = []
    for part in header.split(","):
        clause = _clause(part)
        if clause is not None:
            clauses.append(clause)
            # An insertion sort, as Go uses for so few: the order is not total, so the algorithm matters.
            at = len(clauses) - 1
            while at and _before(clauses[at], clauses[at - 1]):
                clauses[at - 1], clauses[at] = clauses[at], clauses[at - 1]
                at -= 1
    return tuple(clauses)


def _before(clause: Clause, other: Clause) -> bool:
    (kind, _, subtype), (other_kind, _, other_subtype) = clause.media_type.partition("/"), other.media_type.partition("/")
    return clause.quality > other.quality or (kind != "*" and other_kind == "*") or (subtype != "*" and other_subtype == "*")


def _clause(text: str) -> Clause | None:
    media_type, *rest = text.split(";")
    kind, slash, subtype = media_type.partition("/")
    kind, subtype = kind.strip(" "), subtype.strip(" ")
    if not slash or not subtype:
        if kind != "*":
            return None
        subtype = "*"
    if "/" in subtype:
        return None
    quality = 1.0
    parameters: dict[str, str] = {}
    for one in rest:
        name, _, value = one.partition("=")
        name, value = name.strip(" "), value.strip(" ")
        if not value or "=" in value:
            continue
        if name == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 0.0
        else:
            parameters[name] = value
    return Clause(f"{kind}/{subtype}", tuple(parameters.items()), quality)


def content_media_type(header: str) -> str | None:
    """Return the media type of a Content-Type header in lower case, or None if the header is malformed."""
    media_type, *parameters = header.split(";")
    media_type = media_type.strip().lower()
    if not media_type or any(not part or not _is_token(part) for part in media_type.split("/", 1)):
        return None
    for at, one in enumerate(parameters):
        name, equals, value = one.strip().partition("=")
        last = at == len(parameters) - 1
        if not (equals and _is_token(name) and value) and not (last and not one.strip()):
            return None
    return media_type


def _is_token(text: str) -> bool:
    return bool(text) and all(sign.isalnum() or sign in "!#$%&'*+-.^_`|~" for sign in text) and text.isascii()
