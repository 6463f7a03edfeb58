"""Links of a page that was fetched through the server: those to the backend's own paths are made to lead through the server again.

Source: k8s.io/apimachinery pkg/util/proxy/transport.go; attributes with URLs: HTML 4 index of attributes.
"""

from __future__ import annotations

import html
import posixpath
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kubeloop.apiserver.kubelet.backends import SAFE, Place
from kubeloop.apiserver.kubelet.html_tags import start_tags

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
        uri = "/" + posixpath.normpath(f"{prefix}/{place.path}").lstrip("/")  # two slashes would stay two
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
            path = "/" + posixpath.normpath(f"{self.prefix}/{path}").lstrip("/")
            path += "/" if slash and not path.endswith("/") else ""
        return urlunsplit(("", "", quote(path, safe=SAFE, errors="surrogateescape"), parts.query, parts.fragment))

    def page(self, text: str, host: str) -> str:
        """A page with all its links rewritten; everything else stays as it is."""
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
