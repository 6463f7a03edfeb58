"""Links of a page that was fetched through the server: those to the backend's own paths are made to lead through the server again.

Source: k8s.io/apimachinery pkg/util/proxy/transport.go; attributes with URLs: HTML 4 index of attributes.
"""

from __future__ import annotations

import html
import posixpath
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kubeloop.apiserver.kubelet.backends import Place

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
_SAFE = "/$&+,:;=@-_.~"


@dataclass(frozen=True, slots=True)
class Links:
    """``prefix`` is the path here that stands for the backend's root; ``uri`` the path here that was asked for, in canonical form."""

    prefix: str
    uri: str
    authority: str

    @classmethod
    def through(cls, path: str, place: Place) -> Links:
        """For a request of ``path`` (decoded) that was sent to ``place``."""
        suffix = unquote(place.path)
        if path.endswith("/") and not suffix.endswith("/"):
            suffix += "/"
        prefix = path.removesuffix(suffix)
        uri = posixpath.normpath(f"{prefix}/{place.path}")
        return cls(prefix, f"{uri}/" if place.path.endswith("/") and uri != "/" else uri, place.authority)

    def rewritten(self, link: str, host: str) -> str:
        """``link`` as a client must follow it; ``host`` is how the client calls this server."""
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
            path = posixpath.normpath(f"{self.prefix}/{path}")
            path += "/" if slash and not path.endswith("/") else ""
        return urlunsplit(("", "", quote(path, safe=_SAFE), parts.query, parts.fragment))

    def page(self, text: str, host: str) -> str:
        """A page with all its links rewritten; everything else stays as it is."""
        parser = _Page(self, host, text)
        parser.feed(text)
        parser.close()
        return parser.result()


class _Page(HTMLParser):
    """Finds start tags with links, by position, so that what lies between is copied and never written anew."""

    def __init__(self, links: Links, host: str, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._links = links
        self._host = host
        self._text = text
        self._lines = [0]
        while at := text.find("\n", self._lines[-1]) + 1:
            self._lines.append(at)
        self._parts: list[str] = []
        self._copied = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = _ATTRIBUTES.get(tag)
        raw = self.get_starttag_text()
        if names is None or raw is None or not any(name in names for name, _ in attrs):
            return
        line, column = self.getpos()
        at = self._lines[line - 1] + column
        written = [tag]
        for name, value in attrs:
            link = value or ""
            written.append(f'{name}="{html.escape(self._links.rewritten(link, self._host) if name in names else link)}"')
        self._parts += [self._text[self._copied : at], "<", " ".join(written), "/>" if raw.endswith("/>") else ">"]
        self._copied = at + len(raw)

    def result(self) -> str:
        return "".join([*self._parts, self._text[self._copied :]])
