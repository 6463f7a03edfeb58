"""Rewriting of the links in a proxied HTML page, so that they lead through the proxy.

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

# A scanner for the start tags of an HTML page that takes linear time for any input.
#
# The pages of a pod are untrusted, and the standard library's parser takes quadratic time on some hostile pages and raises on others.
# Source: HTML Living Standard, section 13.2.5 (tokenization), reduced to the parts that concern start tags.


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
    """A start tag of an HTML page.

    The tag's name and the names of attributes are in lower case; the values of attributes are unescaped. ``start`` and ``end`` are
    positions in the page. ``closed`` says whether the tag ends with a slash.
    """

    start: int
    end: int
    name: str
    attributes: list[tuple[str, str]]
    closed: bool


def start_tags(text: str) -> Iterator[StartTag]:
    """Yield the start tags of a page in order.

    The search ends at an unfinished tag, comment or quote, so that no text is scanned twice.
    """
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
    """Return the start tag at a position, or None if the tag is unfinished."""
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
    """Return the attribute value at a position, and the position after it. Return None if its closing quote is missing."""
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

    ``prefix`` is the path on this server that corresponds to the root path of the backend. ``uri`` is the requested path in canonical
    form. ``authority`` is the backend's host and port.
    """

    prefix: str
    uri: str
    authority: str

    @classmethod
    def through(cls, path: str, backend: Backend) -> Links:
        """Return the mapping for a request that is proxied to ``backend``. ``path`` is the decoded path of the request."""
        suffix = unquote(backend.path)
        if path.endswith("/") and not suffix.endswith("/"):
            suffix += "/"
        prefix = path.removesuffix(suffix)
        uri = "/" + posixpath.normpath(f"{prefix}/{backend.path}").lstrip("/")  # two slashes would stay two
        return cls(prefix, f"{uri}/" if backend.path.endswith("/") and uri != "/" else uri, backend.authority)

    def rewritten(self, link: str, host: str) -> str:
        """Return a link of the backend's response, changed to lead through this server. Links to other hosts stay unchanged.

        ``host`` is the Host header of the client's request.
        """
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
        """Return an HTML page with its links rewritten and everything else unchanged. ``host`` is as for ``rewritten``."""
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
