"""Links of a proxied HTML page, changed to lead through the proxy.

Source: k8s.io/apimachinery pkg/util/proxy/transport.go; attributes with URLs: HTML 4 index of attributes.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kubeloop.reverseproxy.backend import PATH_SAFE, Backend

# Start tags of an HTML page with their positions, in linear time for any input.
#
# The standard library's parser takes quadratic time on hostile pages and raises on others, and a pod's pages are untrusted. Source:
# HTML Living Standard, section 13.2.5 (tokenization), as far as start tags need it.


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
    """Yield start tags in order. An unfinished tag, comment or quote ends the search, so that no text is scanned twice."""
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
    """Parse the start tag at a position. Returns None if it is unfinished."""
    name = _NAME.match(text, start + 1)
    assert name is not None
    attributes: list[tuple[str, str]] = []
    at = name.end()
    while True:
        gap = _BETWEEN.match(text, at)
        assert gap is not None
        at = gap.end()
        if at >= len(text):
            return None
        if text[at] == ">":
            return StartTag(start, at + 1, name[0].lower(), attributes, closed=text[at - 1] == "/")
        attribute = _ATTRIBUTE.match(text, at)
        assert attribute is not None
        at = attribute.end()
        value, ended = "", at
        equals = _EQUALS.match(text, at)
        if equals is not None:
            parsed = _value(text, equals.end())
            if parsed is None:
                return None
            value, ended = parsed
        attributes.append((attribute[0].lower(), html.unescape(value)))
        at = ended


def _value(text: str, at: int) -> tuple[str, int] | None:
    """Return an attribute's value and its end; None if its quote is unfinished."""
    quote = text[at : at + 1]
    if quote in ('"', "'"):
        end = text.find(quote, at + 1)
        return (text[at + 1 : end], end + 1) if end >= 0 else None
    plain = _UNQUOTED.match(text, at)
    assert plain is not None
    return plain[0], plain.end()


_ATTRIBUTES: dict[str, frozenset[str]] = {
    tag: frozenset(names.split())
    for tag, names in {
        "a": "href",
        "applet": "codebase",
        "area": "href",
        "audio": "src",
        "base": "href",
        "blockquote": "cite",
        "body": "background",
        "button": "formaction",
        "command": "icon",
        "del": "cite",
        "embed": "src",
        "form": "action",
        "frame": "longdesc src",
        "head": "profile",
        "html": "manifest",
        "iframe": "longdesc src",
        "img": "longdesc src usemap",
        "input": "src usemap formaction",
        "ins": "cite",
        "link": "href",
        "object": "classid codebase data usemap",
        "q": "cite",
        "script": "src",
        "source": "src",
        "video": "poster src",
    }.items()
}


@dataclass(frozen=True, slots=True)
class Links:
    """Maps links of a backend's responses to paths of this server.

    ``prefix`` is the path of this server that stands for the backend's root; ``uri`` is the requested path, in canonical form.
    """

    prefix: str
    uri: str
    authority: str

    @classmethod
    def through(cls, path: str, backend: Backend) -> Links:
        """Return the links for a request of ``path`` (decoded) that is proxied to ``backend``."""
        suffix = unquote(backend.path)
        if path.endswith("/") and not suffix.endswith("/"):
            suffix += "/"
        prefix = path.removesuffix(suffix)
        uri = "/" + posixpath.normpath(f"{prefix}/{backend.path}").lstrip("/")  # two slashes would stay two
        return cls(prefix, f"{uri}/" if backend.path.endswith("/") and uri != "/" else uri, backend.authority)

    def rewritten(self, link: str, host: str) -> str:
        """Return the link that leads a client through this server; ``host`` is the Host header of its request."""
        try:
            parts = urlsplit(link)
        except ValueError:
            return link
        elsewhere = parts.netloc not in ("", self.authority, host)
        if elsewhere or not parts.path.startswith("/"):
            return link
        path = unquote(parts.path)
        if not path.startswith(self.prefix):
            slash = path.endswith("/")
            path = "/" + posixpath.normpath(f"{self.prefix}/{path}").lstrip("/")
            path += "/" if slash and not path.endswith("/") else ""
        return urlunsplit(("", "", quote(path, safe=PATH_SAFE, errors="surrogateescape"), parts.query, parts.fragment))

    def page(self, text: str, host: str) -> str:
        """Return a page with all its links rewritten, and all else unchanged."""
        parts: list[str] = []
        copied = 0
        for tag in start_tags(text):
            names = _ATTRIBUTES.get(tag.name)
            if names is None or not any(name in names for name, _ in tag.attributes):
                continue
            words = [tag.name]
            for name, value in tag.attributes:
                written = self.rewritten(value, host) if name in names else value
                words.append(f'{name}="{html.escape(written)}"')
            parts += [text[copied : tag.start], "<", " ".join(words), "/>" if tag.closed else ">"]
            copied = tag.end
        return "".join([*parts, text[copied:]])
