"""Progress of handlers: the record in an annotation of the object, and the state in memory of this run of the program."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kubeloop.controller.decorators.decorators import UNKNOWN
from kubeloop.meta import ObjectKey

# The record: which changes of an object were handled. It is stored in an annotation, so that a restart continues there.
#
# Pure: it reads and writes the annotation's text. Bounded: at most 16 KiB; larger values are stored as digests.


#: The annotation that holds the record, and the finalizer; each followed by the controller's name.
RECORD: Final = "handled.kubeloop.dev/"
FINALIZER: Final = "kubeloop.dev/"

#: Maximum bytes of all values, and of one. The annotations of an object may have 256 KiB (apimachinery, TotalAnnotationSizeLimitB).
_ALL: Final = 16 * 1024
_ONE: Final = 1024


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that was handled, or a digest of it if it is large."""

    v: Any = None
    h: str = ""

    @classmethod
    def of(cls, value: Any, handlers: int) -> Value:
        """Return the stored form of a value. ``handlers``: number of values that share the record, which limits the size of each."""
        text = msgspec.json.encode(value, order="sorted")
        if len(text) <= min(_ONE, _ALL // max(handlers, 1)):
            return cls(v=value)
        return cls(h=hashlib.sha256(text).hexdigest()[:32])

    def is_of(self, value: Any) -> bool:
        """Return whether this record is of an equal JSON value; 1 and true differ."""
        text = msgspec.json.encode(value, order="sorted")
        if self.h:
            return hashlib.sha256(text).hexdigest()[:32] == self.h
        return msgspec.json.encode(self.v, order="sorted") == text

    @property
    def value_or_unknown(self) -> Any:
        return UNKNOWN if self.h else self.v


class HandlerRecord(msgspec.Struct, omit_defaults=True):
    """The handled changes of one object.

    ``create``: ids of the create handlers that have not succeeded yet. ``seen``: id of a change handler -> the value that it handled last.
    ``gone``: ids of the delete handlers that are done.
    """

    create: list[str] = []
    seen: dict[str, Value] = {}
    gone: list[str] = []

    def text(self) -> str:
        return msgspec.json.encode(self, order="sorted").decode()


class UnreadableRecord(Exception):
    """The annotation does not hold a record, because another program changed it."""


def read_record(text: str) -> HandlerRecord:
    """Parse a record. Raises UnreadableRecord if the text is not a record."""
    try:
        return msgspec.json.decode(text, type=HandlerRecord)
    except msgspec.MsgspecError as error:
        raise UnreadableRecord(str(error)) from None


def watched(tree: dict[str, Any], finalizer: str) -> dict[str, Any]:
    """Return the tree of an object without the parts that handler controllers write: their records, and this controller's finalizer.

    If change handlers compared those parts, each write of a record would be another change, without end.
    """
    metadata = dict(tree["metadata"])
    _keep(metadata, "annotations", {key: value for key, value in metadata.get("annotations", {}).items() if not key.startswith(RECORD)})
    _keep(metadata, "finalizers", [one for one in metadata.get("finalizers", ()) if one != finalizer])
    return {**tree, "metadata": metadata}


def _keep(metadata: dict[str, Any], name: str, value: dict[str, Any] | list[Any]) -> None:
    """Set a metadata field, or remove it if the value is empty, as servers do."""
    if value:
        metadata[name] = value
    else:
        metadata.pop(name, None)


#: Maximum seconds between two attempts of a handler.
LONGEST = 300.0


@dataclass(slots=True)
class Retry:
    tries: int = 0
    not_before: float = 0.0


@dataclass(slots=True)
class ObjectProgress:
    """The state of the handlers for one object in this run of the program.

    ``stale``: records that a lagging cache may still show, although ``written`` is newer.
    """

    uid: str
    record: HandlerRecord | None = None
    written: str | None = None
    stale: set[str | None] = field(default_factory=set)
    unsaved: bool = False
    resumed: set[str] = field(default_factory=set)
    retries: dict[str, Retry] = field(default_factory=dict)
    timers: dict[str, float] = field(default_factory=dict)
    running: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    #: The last failure of this reconcile, and its description.
    failure: tuple[BaseException, str] | None = None

    def wait(self, handler: str, now: float) -> float:
        """Return the seconds until the handler may be called."""
        known = self.retries.get(handler)
        return 0.0 if known is None else max(0.0, known.not_before - now)

    def failed(self, handler: str, now: float, backoff: float) -> Retry:
        known = self.retries.setdefault(handler, Retry())
        known.tries += 1
        known.not_before = now + min(backoff * 2.0 ** min(known.tries - 1, 64), LONGEST)
        return known

    def take_failure(self) -> tuple[BaseException, str] | None:
        """Return the failure since the last call, and clear it."""
        found, self.failure = self.failure, None
        return found

    def succeeded(self, handler: str) -> None:
        self.retries.pop(handler, None)


class ProgressStore:
    """The ``ObjectProgress`` of each existing object."""

    def __init__(self) -> None:
        self._by_key: dict[ObjectKey, ObjectProgress] = {}

    def of(self, key: ObjectKey, uid: str) -> ObjectProgress:
        """Return the ``ObjectProgress`` of an object. An object that was recreated under the same name starts with a new one."""
        found = self._by_key.get(key)
        if found is None or found.uid != uid:
            found = self._by_key[key] = ObjectProgress(uid)
        return found

    def forget(self, key: ObjectKey) -> None:
        self._by_key.pop(key, None)

    def __len__(self) -> int:
        return len(self._by_key)
