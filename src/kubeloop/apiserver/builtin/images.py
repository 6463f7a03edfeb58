"""References to container images, as far as defaults need them. Source: the grammar of distribution/reference."""

from __future__ import annotations

import re

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_DOMAIN_LABEL}(?:\.{_DOMAIN_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(
    rf"(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>{_DIGEST}))?", re.ASCII
)
#: Registries whose images of one component stand below "library".
_HUBS = ("", "docker.io", "index.docker.io")
_LONGEST_PATH = 255
_IDENTIFIER = re.compile("[a-f0-9]{64}")


def image_tag(image: str) -> str:
    """The tag; "latest" when neither tag nor digest is given, empty with a digest alone and for what is no reference."""
    first, slash, rest = image.partition("/")
    if slash and not (set(".:") & set(first) or first == "localhost" or first.lower() != first):
        first, rest = "", image
    name = (rest if slash else image).partition(":")[0]
    path = name.partition("@")[0]
    found = _REFERENCE.fullmatch(image)
    if found is None or _IDENTIFIER.fullmatch(image) or path != path.lower():
        return ""
    if (first if slash else "") in _HUBS and "/" not in path:
        path = f"library/{path}"
    if len(path) > _LONGEST_PATH:
        return ""
    if found["tag"]:
        return found["tag"]
    return "" if found["digest"] else "latest"


def default_pull_policy(image: str) -> str:
    """Mutable tags are pulled each time."""
    return "Always" if image_tag(image) == "latest" else "IfNotPresent"
