"""Writes the head of a request, or refuses to: what a caller gives must never become another header or another request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubeloop.http1.grammar import FORBIDDEN_IN_VALUE, TOKEN

# RFC 9110, sections 5.1, 5.5 and 5.6.2. Values may hold what is not ASCII (a user's name in Impersonate-User), sent as UTF-8 like Go does.
_TARGET = re.compile(r"/[!-\"$-~]*")
# Their values say how the request is framed; only the transport knows.
_OWN = frozenset(("host", "content-length", "transfer-encoding", "connection", "trailer", "upgrade", "te"))


def request_head(method: str, prefix: str, target: str, headers: Sequence[tuple[str, str]], length: int | None, upgrade: str = "") -> bytes:
    """The head, empty line included. ``headers`` begin with Host. ``length`` None: no body. ``upgrade``: the protocol to change to.

    Raises:
        ValueError: a method, path or header that cannot be sent. Values are not shown: they may be secret.
    """
    if TOKEN.fullmatch(method) is None or _TARGET.fullmatch(target) is None:
        asked = _shown(method, target)
        raise ValueError(f"a path begins with / and holds no line break or blank; percent-encode what is not ASCII ({asked})")
    lines = [f"{method} {prefix}{target} HTTP/1.1"]
    for place, (name, value) in enumerate(headers):
        if TOKEN.fullmatch(name) is None or FORBIDDEN_IN_VALUE.search(value):
            asked = _shown(method, target)
            raise ValueError(f"the header {name!r} holds a line break or another control character, or its name a blank ({asked})")
        if place and name.lower() in _OWN:
            raise ValueError(f"the header {name} is the transport's own; leave it out ({_shown(method, target)})")
        lines.append(f"{name}: {value}")
    if upgrade:
        lines += ["Connection: Upgrade", f"Upgrade: {upgrade}"]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")


def _shown(method: str, target: str) -> str:
    """Without the query, whose values may be secret."""
    return f"{method} {target.partition('?')[0]!r}"
