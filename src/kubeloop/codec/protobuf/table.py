"""The table of protobuf messages that ships with the package: field numbers, JSON names, and Go's treatment of zero values.

``kubeloop generate protobuf`` writes it. A process loads it once, and prepares each message at its first use.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec

from kubeloop.meta.errors import UnknownKind
from kubeloop.meta.kinds import GroupVersionKind

DOCUMENT = "messages.json.gz"


class MessageForm(enum.StrEnum):
    """The form of a message in JSON."""

    OBJECT = ""
    #: ``items`` alone: a JSON array.
    LIST = "list"
    TIME = "time"
    MICRO_TIME = "microtime"
    QUANTITY = "quantity"
    INT_OR_STRING = "intorstring"
    #: One ``raw`` field that holds JSON.
    RAW = "raw"
    #: Parts of CRD schemas whose JSON has one of two forms.
    SCHEMA_OR_ARRAY = "schemaOrArray"
    SCHEMA_OR_BOOL = "schemaOrBool"
    SCHEMA_OR_STRINGS = "schemaOrStrings"


class Scalar(enum.IntEnum):
    """The scalar types of fields. A field type of 0 or more is not a scalar, but the index of a message in the table."""

    STRING = -1
    INT32 = -2
    INT64 = -3
    BOOL = -4
    BYTES = -5
    DOUBLE = -6


class Count(enum.IntEnum):
    """Cardinality of a field. ``INLINE``: a message whose fields JSON shows beside the others, as Go's embedded structs."""

    ONE = 0
    REPEATED = 1
    MAP = 2
    INLINE = 3


class ZeroInJSON(enum.IntEnum):
    """How JSON shows a field that is absent or has the zero value of its type."""

    #: Unchanged: a pointer, or a list or map that is left out when empty.
    AS_IS = 0
    #: Zero and absent values are left out.
    LEFT_OUT = 1
    #: An absent value is shown as the type's zero value.
    SHOWN = 2
    #: An absent value is shown as null.
    NULL = 3


class FieldRow(msgspec.Struct, array_like=True, frozen=True):
    """A field as the file stores it. Keys of maps are strings; ``type`` is the type of their values."""

    number: int
    name: str
    type: int
    count: int = 0
    zero: int = 0


class MessageRow(msgspec.Struct, array_like=True, frozen=True):
    name: str
    form: str
    fields: msgspec.Raw


class TableDocument(msgspec.Struct, frozen=True):
    """The document as its file stores it. ``kinds``: "GROUP/VERSION/KIND" -> index of the message; kinds of meta.k8s.io too."""

    messages: list[MessageRow]
    kinds: dict[str, int]


class MessageField:
    """One field of a message, prepared for decoding and encoding."""

    __slots__ = ("count", "drops_zero", "key", "message", "name", "number", "type", "wire", "zero")

    def __init__(self, row: FieldRow, table: MessageTable) -> None:
        self.number = row.number
        self.name = row.name
        self.type = row.type
        self.count = row.count
        self.zero = row.zero
        self.drops_zero = row.zero == ZeroInJSON.LEFT_OUT
        #: Wire type of the protobuf encoding.
        self.wire = 2 if row.count or row.type >= 0 else WIRE[Scalar(row.type)]
        if row.count == Count.REPEATED and row.type < 0:
            self.wire = WIRE[Scalar(row.type)]
        self.key = row.number << 3 | self.wire
        self.message: MessageDefinition | None = table.message(row.type) if row.type >= 0 else None

    def empty(self) -> Any:
        """Return the JSON of a missing value; only for fields that are shown without a value."""
        if self.zero == ZeroInJSON.NULL:
            return None
        if self.message is not None:
            return self.message.empty()
        return EMPTY[Scalar(self.type)]


#: Wire types: 0 varint, 1 eight bytes, 2 with a length.
WIRE = {Scalar.STRING: 2, Scalar.INT32: 0, Scalar.INT64: 0, Scalar.BOOL: 0, Scalar.BYTES: 2, Scalar.DOUBLE: 1}
EMPTY: dict[Scalar, Any] = {
    Scalar.STRING: "",
    Scalar.INT32: 0,
    Scalar.INT64: 0,
    Scalar.BOOL: False,
    Scalar.BYTES: "",
    Scalar.DOUBLE: 0,
}


class MessageDefinition:
    """The definition of one protobuf message. Its fields are prepared at the first use, because messages refer to one another."""

    def __init__(self, row: MessageRow, table: MessageTable) -> None:
        self.name = row.name.rpartition(".")[2]
        self.form = MessageForm(row.form)
        self.is_object = not row.form
        self._row = row
        self._table = table

    @cached_property
    def fields(self) -> tuple[MessageField, ...]:
        rows = msgspec.json.decode(self._row.fields, type=list[FieldRow])
        return tuple(MessageField(row, self._table) for row in rows)

    @cached_property
    def by_key(self) -> dict[int, MessageField]:
        """The fields by protobuf key, which combines the field number and the wire type."""
        return {field.key: field for field in self.fields}

    @cached_property
    def by_number(self) -> dict[int, MessageField]:
        return {field.number: field for field in self.fields}

    @cached_property
    def by_name(self) -> dict[str, MessageField]:
        """The fields by JSON name; names inside an inlined message lead to the inlined field."""
        names: dict[str, MessageField] = {}
        for field in self.fields:
            if field.count == Count.INLINE:
                assert field.message is not None
                names.update(dict.fromkeys(field.message.by_name, field))
            else:
                names[field.name] = field
        return names

    @cached_property
    def shown(self) -> tuple[tuple[str, Callable[[], Any]], ...]:
        """The fields that JSON shows without a value, each with a factory of its JSON."""
        result: list[tuple[str, Callable[[], Any]]] = []
        for field in self.fields:
            if field.count == Count.INLINE:
                assert field.message is not None
                result += field.message.shown
            elif field.zero in (ZeroInJSON.SHOWN, ZeroInJSON.NULL):
                result.append((field.name, field.empty))
        return tuple(result)

    def empty(self) -> Any:
        """Return the JSON of the message without any field."""
        match self.form:
            case MessageForm.OBJECT:
                return {name: make() for name, make in self.shown}
            case MessageForm.QUANTITY:
                return "0"
            case MessageForm.INT_OR_STRING:
                return 0
            case MessageForm.SCHEMA_OR_BOOL:
                return False
        return None


#: Kinds of metav1 that Go registers in every group: a client of apps/v1 sends DeleteOptions of apps/v1.
SHARED = frozenset({"CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions"})


class MessageTable:
    """All messages, by index and by kind.

    Raises
        UnknownKind: ``kind`` finds no protobuf message for the kind, such as for a custom resource.
    """

    def __init__(self, document: TableDocument) -> None:
        self._rows = document.messages
        self._kinds = document.kinds
        self._messages: dict[int, MessageDefinition] = {}

    def __contains__(self, gvk: object) -> bool:
        return isinstance(gvk, GroupVersionKind) and self._place(gvk) is not None

    def kinds(self) -> list[GroupVersionKind]:
        return [GroupVersionKind(*key.rsplit("/", 2)) for key in self._kinds]

    def message(self, place: int) -> MessageDefinition:
        found = self._messages.get(place)
        if found is None:
            found = self._messages[place] = MessageDefinition(self._rows[place], self)
        return found

    def kind(self, gvk: GroupVersionKind) -> MessageDefinition:
        place = self._place(gvk)
        if place is None:
            raise UnknownKind(
                f"{gvk.kind} of {gvk.api_version or 'no version'} has no protobuf form; send and accept it as application/json"
            )
        return self.message(place)

    def _place(self, gvk: GroupVersionKind) -> int | None:
        if gvk.kind in SHARED or not gvk.version:
            return self._kinds.get(f"/v1/{gvk.kind}")
        return self._kinds.get("/".join(gvk))


@cache
def table() -> MessageTable:
    """Return the table of Kubernetes' own kinds."""
    # Importing the gzip module costs more than reading the document.
    data = zlib.decompress(Path(__file__).with_name(DOCUMENT).read_bytes(), wbits=zlib.MAX_WBITS | 16)
    return MessageTable(msgspec.json.decode(data, type=TableDocument))
