"""Continue tokens of paged lists: from which key, at which revision. Opaque to clients.

Source: k8s.io/apiserver pkg/storage/continue.go.
"""

from __future__ import annotations

import base64
import binascii
import json
import posixpath
from dataclasses import dataclass

from kubeloop.apiserver import refusals
from kubeloop.apiserver.json_fault import json_fault
from kubeloop.meta.integers import decimal

_VERSION = "meta.k8s.io/v1"
#: A token with this revision goes on at the newest one: an inconsistent list, asked for knowingly.
ANY_REVISION = -1


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """``start`` is relative to the key prefix of the list."""

    start: str
    revision: int

    def __str__(self) -> str:
        tree = {"v": _VERSION, "rv": self.revision, "start": self.start}
        return base64.urlsafe_b64encode(json.dumps(tree, separators=(",", ":")).encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> ContinueToken:
        """Raises BadRequest for what is no token of this server."""
        tree = _decode(text)
        version, revision, start = tree.get("v") or "", tree.get("rv") or 0, tree.get("start") or ""
        if version != _VERSION:
            raise _refused(f"server does not recognize this encoded version {version}")
        if not isinstance(revision, int) or not revision or decimal(str(revision)) is None:
            raise _refused(f"incorrect encoded start resourceVersion (version {_VERSION})")
        if not isinstance(start, str) or not start:
            raise _refused(f"encoded start key empty (version {_VERSION})")
        key = f"/{start.removeprefix('/')}"
        if posixpath.normpath(key) != key:
            raise _refused(start)  # it could lead out of the list
        return cls(start.removeprefix("/"), revision)


def _decode(text: str) -> dict[str, object]:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        # Where Go stops: at what is none of its letters, or where the last group of four begins.
        last = len(text) - len(text) % 4
        at = next((index for index, char in enumerate(text) if not (char.isascii() and (char.isalnum() or char in "-_"))), last)
        raise _refused(f"illegal base64 data at input byte {at}") from None
    try:
        tree = json.loads(data)
    except ValueError:
        raise _refused(json_fault(data) or "invalid UTF-8") from None
    if not isinstance(tree, dict):
        raise _refused("it is not an object")
    return tree


def _refused(why: str) -> Exception:
    return refusals.bad_request(f"invalid continue token: continue key is not valid: {why}")
