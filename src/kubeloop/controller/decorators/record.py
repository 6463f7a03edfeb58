"""The record: what of an object has been handled, kept in one of its annotations so that a restart goes on where the last run ended.

Pure: reading and writing the annotation's text. Bounded: at most 16 KiB, values beyond their share as digests.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from kubeloop.controller.decorators.decorators import UNKNOWN

#: The annotation that holds the record, and the finalizer; each followed by the controller's name.
RECORD: Final = "handled.kubeloop.dev/"
FINALIZER: Final = "kubeloop.dev/"

#: Bytes of all values together, and of one. All annotations of an object may have 256 KiB (apimachinery, TotalAnnotationSizeLimitB).
_ALL: Final = 16 * 1024
_ONE: Final = 1024


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that was handled: itself, or a digest of it if it is large."""

    v: Any = None
    h: str = ""

    @classmethod
    def of(cls, value: Any, handlers: int) -> Value:
        """``handlers``: how many values share the record."""
        text = msgspec.json.encode(value, order="sorted")
        if len(text) <= min(_ONE, _ALL // max(handlers, 1)):
            return cls(v=value)
        return cls(h=hashlib.sha256(text).hexdigest()[:32])

    def is_of(self, value: Any) -> bool:
        """Whether it is that value, as JSON: 1 and true are two."""
        text = msgspec.json.encode(value, order="sorted")
        if self.h:
            return hashlib.sha256(text).hexdigest()[:32] == self.h
        return msgspec.json.encode(self.v, order="sorted") == text

    @property
    def known(self) -> Any:
        return UNKNOWN if self.h else self.v


class Record(msgspec.Struct, omit_defaults=True):
    """``create``: handlers of the creation that are still to succeed. ``seen``: by handler, the value last handled.

    ``gone``: handlers of the deletion that are done.
    """

    create: list[str] = []
    seen: dict[str, Value] = {}
    gone: list[str] = []

    def text(self) -> str:
        return msgspec.json.encode(self, order="sorted").decode()


class UnreadableRecord(Exception):
    """Somebody wrote something else into the annotation."""


def read_record(text: str) -> Record:
    """Raises UnreadableRecord."""
    try:
        return msgspec.json.decode(text, type=Record)
    except msgspec.MsgspecError as error:
        raise UnreadableRecord(str(error)) from None


def watched(tree: dict[str, Any], finalizer: str) -> dict[str, Any]:
    """An object's tree as handlers of changes see it: without records, this controller's or others', and without its own finalizer.

    Else each write of a record would be a change of the annotations, for which another record is written, without end.
    """
    metadata = dict(tree["metadata"])
    _keep(metadata, "annotations", {key: value for key, value in metadata.get("annotations", {}).items() if not key.startswith(RECORD)})
    _keep(metadata, "finalizers", [one for one in metadata.get("finalizers", ()) if one != finalizer])
    return {**tree, "metadata": metadata}


def _keep(metadata: dict[str, Any], name: str, value: dict[str, Any] | list[Any]) -> None:
    """As servers do: what is empty is not there."""
    if value:
        metadata[name] = value
    else:
        metadata.pop(name, None)
