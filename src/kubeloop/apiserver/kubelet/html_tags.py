"""The start tags of an HTML page, by position, in time that grows with the page and no faster, whatever is in it.

The standard library's parser takes quadratic time on pages made for it, and raises on others; a pod's pages are a stranger's.
Source: HTML Living Standard, section 13.2.5 (tokenization), as far as start tags need it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

_NAME = re.compile(r"[^\s/>]+")
_BETWEEN = re.compile(r"[\s/]*")
_ATTRIBUTE = re.compile(r"=?[^\s/>=]*")
_EQUALS = re.compile(r"\s*=\s*")
_UNQUOTED = re.compile(r"[^\s>]*")
#: Elements whose content is text up to their end tag.
_RAW = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp")
}


@dataclass(frozen=True, slots=True)
class StartTag:
    """``name`` and attributes' names are in lower case, values unescaped. ``closed``: it ends in a slash."""

    start: int
    end: int
    name: str
    attributes: list[tuple[str, str]]
    closed: bool


def start_tags(text: str) -> Iterator[StartTag]:
    """In order. What is not ended (a tag, a comment, a quote) ends the search, so that nothing is looked through twice."""
    at = 0
    while (at := text.find("<", at)) >= 0:
        after = text[at + 1 : at + 2]
        if text.startswith("<!--", at):
            end = text.find("-->", at + 4)
            at = end + 3
        elif after in ("!", "?", "/"):
            end = text.find(">", at)
            at = end + 1
        elif after.isascii() and after.isalpha():
            tag = _tag(text, at)
            if tag is None:
                return
            yield tag
            at = end = tag.end
            if tag.name == "plaintext":
                return
            if tag.name in _RAW and not tag.closed:
                ending = _RAW[tag.name].search(text, at)
                at = end = ending.start() if ending else -1
        else:
            at = end = at + 1
        if end < 0:
            return


def _tag(text: str, start: int) -> StartTag | None:
    """None: it does not end."""
    named = _NAME.match(text, start + 1)
    assert named is not None
    attributes: list[tuple[str, str]] = []
    at = named.end()
    while True:
        gap = _BETWEEN.match(text, at)
        assert gap is not None
        at = gap.end()
        if at >= len(text):
            return None
        if text[at] == ">":
            return StartTag(start, at + 1, named[0].lower(), attributes, closed=text[at - 1] == "/")
        attribute = _ATTRIBUTE.match(text, at)
        assert attribute is not None
        at = attribute.end()
        value, ended = "", at
        equals = _EQUALS.match(text, at)
        if equals is not None:
            found = _value(text, equals.end())
            if found is None:
                return None
            value, ended = found
        attributes.append((attribute[0].lower(), html.unescape(value)))
        at = ended


def _value(text: str, at: int) -> tuple[str, int] | None:
    """The value and where it ends; None: its quote does not end."""
    quote = text[at : at + 1]
    if quote in ('"', "'"):
        end = text.find(quote, at + 1)
        return (text[at + 1 : end], end + 1) if end >= 0 else None
    plain = _UNQUOTED.match(text, at)
    assert plain is not None
    return plain[0], plain.end()
