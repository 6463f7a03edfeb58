"""Writes the table of protobuf messages that ships with the package: ``.proto`` files, joined with Go's JSON encoding.

Protobuf knows neither JSON names nor which zero values JSON shows; the wire types of ``kubeloop.schema`` do. Only messages that a kind of
Kubernetes 1.36 uses are included. Deterministic: the same input gives the same bytes.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from kubeloop.codec.protobuf.table import SHARED, Count, FieldRow, MessageForm, MessageRow, Scalar, TableDocument, ZeroInJSON
from kubeloop.codegen.openapi import read_json
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema.strict_types import WireField, WireType, WireTypes, wire_types

# Reads fields of protobuf messages from ``generated.proto`` files or from a JSON document.
#
# Supports the part of the language that Kubernetes' generator writes: flat messages of optional, repeated and map fields.


SCALARS = frozenset({"string", "int32", "int64", "bool", "bytes", "double"})

_COMMENT = re.compile(r"//[^\n]*")
_PACKAGE = re.compile(r"^package ([\w.]+);", re.MULTILINE)
_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_SINGLE = re.compile(r"(optional|repeated) (\S+) (\w+) = (\d+)")
_MAP = re.compile(r"map<(\w+), (\S+)> (\w+) = (\d+)")


class ProtoField(NamedTuple):
    """A field. ``label`` is optional, repeated or map; ``type`` is the type or full message name, of the values for a map."""

    number: int
    name: str
    label: str
    type: str


#: Fields by full message name.
ProtoMessages = dict[str, list[ProtoField]]


def read_messages(sources: Iterable[Path]) -> ProtoMessages:
    """Read the fields of protobuf messages from files and folders; later sources take precedence.

    A file is a JSON document (``{message: [[number, name, label, type], ...]}``, for a map field ``[..., key type, value type]``).
    A folder contains ``generated.proto`` files at any depth.

    Raises:
        ConfigError: A source is missing or malformed, or has no message; the message names it.
    """
    messages: ProtoMessages = {}
    for source in sources:
        found = _folder(source) if source.is_dir() else _document(source)
        if not found:
            raise ConfigError(
                f"{source}: no protobuf message in it; name a folder with generated.proto files, as of the Go module k8s.io/api"
            )
        messages.update(found)
    return messages


def _document(path: Path) -> ProtoMessages:
    try:
        return {
            name: [ProtoField(number, field, label, types[-1]) for number, field, label, *types in fields]
            for name, fields in read_json(path).items()
        }
    except (TypeError, ValueError, IndexError) as error:
        raise ConfigError(f"{path}: not a document of message fields: {error}") from error


def _folder(folder: Path) -> ProtoMessages:
    messages: ProtoMessages = {}
    for path in sorted(folder.rglob("generated.proto")):
        text = _COMMENT.sub("", path.read_text())
        package = _PACKAGE.search(text)
        if package is None:
            raise ConfigError(f"{path}: names no package")
        for name, body in _MESSAGE.findall(text):
            messages[f"{package[1]}.{name}"] = [_field(line, package[1], path) for line in _statements(body)]
    return messages


def _statements(body: str) -> list[str]:
    lines = (" ".join(statement.split()) for statement in body.split(";"))
    return [line for line in lines if line and not line.startswith("reserved ")]


def _field(line: str, package: str, path: Path) -> ProtoField:
    single = _SINGLE.match(line)
    if single:
        return ProtoField(int(single[4]), single[3], single[1], _full(single[2], package))
    mapping = _MAP.match(line)
    if mapping and mapping[1] == "string":
        return ProtoField(int(mapping[4]), mapping[3], "map", _full(mapping[2], package))
    raise ConfigError(f'{path}: cannot read the field "{line}"')


def _full(type_: str, package: str) -> str:
    if type_ in SCALARS:
        return type_
    return type_.lstrip(".") if "." in type_ else f"{package}.{type_}"


_META = "k8s.io.apimachinery.pkg.apis.meta"
_FORMS = {
    f"{_META}.v1.Time": MessageForm.TIME,
    f"{_META}.v1.MicroTime": MessageForm.MICRO_TIME,
    f"{_META}.v1.FieldsV1": MessageForm.RAW,
    "k8s.io.apimachinery.pkg.runtime.RawExtension": MessageForm.RAW,
    "k8s.io.apimachinery.pkg.api.resource.Quantity": MessageForm.QUANTITY,
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": MessageForm.INT_OR_STRING,
}
#: Forms in CRD schemas, by message name without its package.
_SCHEMA_FORMS = {
    "JSON": MessageForm.RAW,
    "JSONSchemaPropsOrArray": MessageForm.SCHEMA_OR_ARRAY,
    "JSONSchemaPropsOrBool": MessageForm.SCHEMA_OR_BOOL,
    "JSONSchemaPropsOrStringArray": MessageForm.SCHEMA_OR_STRINGS,
}
_SCALARS = {scalar.name.lower(): scalar for scalar in Scalar}
#: Go kinds whose zero value ``omitempty`` leaves out; lists and maps are left out when empty.
_PLAIN = frozenset({"string", "bool", "int32", "int64", "int", "float64", "bytes"})
_GROUP_PACKAGES = {"": "core", "internal.apiserver.k8s.io": "apiserverinternal"}


def write_table(out: Path, messages: ProtoMessages) -> list[str]:
    """Write the table; return the kinds and fields of Kubernetes without a protobuf form, for review.

    Raises:
        ConfigError: The messages and the wire types contradict each other, or a special message has an unknown form.
        OSError: The file cannot be written.
    """
    builder = _Builder(messages, wire_types())
    document = builder.build()
    out.write_bytes(gzip.compress(msgspec.json.encode(document), 9, mtime=0))
    return builder.missing


class _Builder:
    def __init__(self, messages: ProtoMessages, wire: WireTypes) -> None:
        self._messages = messages
        self._wire = wire
        self._packages = {name.rpartition(".")[0] for name in messages}
        self._places: dict[str, int] = {}
        self._rows: list[MessageRow] = []
        #: The Go type of each message.
        self._types: dict[str, int] = {}
        self.missing: list[str] = []

    def build(self) -> TableDocument:
        kinds: dict[str, int] = {}
        for gvk, index in self._wire.kinds():
            if gvk.kind in SHARED and gvk.group_version != ("", "v1"):
                continue
            message = self._message_of(gvk)
            if message is None:
                self.missing.append(f"{gvk.api_version} {gvk.kind}")
            else:
                kinds["/".join(gvk)] = self._place(message, index)
        kinds |= self._machinery()
        return TableDocument(self._rows, dict(sorted(kinds.items())))

    def _message_of(self, gvk: GroupVersionKind) -> str | None:
        label = _GROUP_PACKAGES.get(gvk.group, gvk.group.partition(".")[0])
        ending = f".{label}.{gvk.version}"
        package = next((one for one in sorted(self._packages) if one.endswith(ending)), "")
        for candidate in (f"{package}.{gvk.kind}", f"{_META}.v1.{gvk.kind}"):
            if candidate in self._messages:
                return candidate
        return None

    def _machinery(self) -> dict[str, int]:
        """Return the kinds of the API machinery, which no group of resources registers."""
        object_meta = self._places[f"{_META}.v1.ObjectMeta"]
        list_meta = self._places[f"{_META}.v1.ListMeta"]
        partial = self._add(f"{_META}.v1.PartialObjectMetadata", [FieldRow(1, "metadata", object_meta, 0, ZeroInJSON.SHOWN)])
        partials = self._add(
            f"{_META}.v1.PartialObjectMetadataList",
            [FieldRow(1, "metadata", list_meta, 0, ZeroInJSON.SHOWN), FieldRow(2, "items", partial, Count.REPEATED, ZeroInJSON.NULL)],
        )
        kinds: dict[str, int] = {}
        for version in ("v1", "v1beta1"):
            kinds[f"meta.k8s.io/{version}/PartialObjectMetadata"] = partial
            kinds[f"meta.k8s.io/{version}/PartialObjectMetadataList"] = partials
        return kinds

    def _add(self, name: str, fields: list[FieldRow]) -> int:
        if [(field.number, field.name) for field in self._messages.get(name, ())] != [(field.number, field.name) for field in fields]:
            raise ConfigError(f"{name} differs from the known definition")
        self._rows.append(MessageRow(name, "", msgspec.Raw(msgspec.json.encode(fields))))
        return len(self._rows) - 1

    def _place(self, name: str, index: int) -> int:
        """Return the table index of a message for a Go type; the first call adds it."""
        while index >= 0 and self._wire.type(index).category == "pointer":
            index = self._wire.type(index).element
        if name in self._places:
            if self._types[name] not in (index, -1) and index >= 0:
                raise ConfigError(f"{name} stands for two Go types: {self._name(index)} and {self._name(self._types[name])}")
            return self._places[name]
        place = self._places[name] = len(self._rows)
        self._types[name] = index
        form = self._form(name, index)
        self._rows.append(MessageRow(name, form, msgspec.Raw(b"[]")))
        fields: list[FieldRow] = []
        if form == MessageForm.OBJECT:
            fields = self._fields(name, self._wire.type(index).fields, "")
        elif name not in _FORMS and form != MessageForm.RAW:
            fields = [self._bare(field) for field in self._messages[name]]
        self._rows[place] = MessageRow(name, form, msgspec.Raw(msgspec.json.encode(fields)))
        return place

    def _form(self, name: str, index: int) -> MessageForm:
        if name in _FORMS:
            return _FORMS[name]
        package, _, last = name.rpartition(".")
        if ".apiextensions." in package and last in _SCHEMA_FORMS:
            return _SCHEMA_FORMS[last]
        category = self._wire.type(index).category
        if category == "slice":
            return MessageForm.LIST
        if category != "struct":
            raise ConfigError(f"{name} stands for {self._name(index)}, whose JSON form is not known")
        return MessageForm.OBJECT

    def _bare(self, field: ProtoField) -> FieldRow:
        """Return the row of a field in a message with a special JSON form. Its name is that of the ``.proto`` file."""
        count = Count.REPEATED if field.label == "repeated" else Count.ONE
        return FieldRow(field.number, field.name, self._type(field, self._wire.schema_props), count, ZeroInJSON.AS_IS)

    def _fields(self, name: str, wire: tuple[WireField, ...], prefix: str) -> list[FieldRow]:
        """Return the fields of an object; ``prefix`` names the embedded structs that the message stands for."""
        known = {_plain(field.name): field for field in wire if field.prefix == prefix}
        rows: list[FieldRow] = []
        for field in self._messages[name]:
            found = known.pop(_plain(field.name), None)
            if found is not None:
                rows.append(self._row(name, field, found))
                continue
            inner = f"{prefix}{field.type.rpartition('.')[2]}."
            if field.type not in SCALARS and any(one.prefix.startswith(inner) for one in wire):
                rows.append(FieldRow(field.number, field.name, self._inlined(field.type, wire, inner), Count.INLINE))
        self.missing += [f"{name}.{one.name}" for one in known.values() if one.prefix != "TypeMeta."]
        return rows

    def _inlined(self, name: str, wire: tuple[WireField, ...], prefix: str) -> int:
        if name in self._places:
            return self._places[name]
        place = self._places[name] = len(self._rows)
        self._types[name] = -1
        self._rows.append(MessageRow(name, "", msgspec.Raw(b"[]")))
        fields = self._fields(name, wire, prefix)
        self._rows[place] = MessageRow(name, "", msgspec.Raw(msgspec.json.encode(fields)))
        return place

    def _row(self, message: str, field: ProtoField, wire: WireField) -> FieldRow:
        kind = self._wire.type(wire.type)
        inner = kind
        while inner.category == "pointer":
            inner = self._wire.type(inner.element)
        wanted = {"repeated": "slice", "map": "map"}.get(field.label)
        if wanted is not None and inner.category != wanted:
            raise ConfigError(f"{message}.{field.name} is {field.label}, but {inner.name} in Go")
        index = inner.element if wanted else wire.type
        count = {"repeated": Count.REPEATED, "map": Count.MAP}.get(field.label, Count.ONE)
        return FieldRow(field.number, wire.name, self._type(field, index), count, _zero(wire, kind))

    def _type(self, field: ProtoField, index: int) -> int:
        return _SCALARS[field.type] if field.type in SCALARS else self._place(field.type, index)

    def _name(self, index: int) -> str:
        return self._wire.type(index).name if index >= 0 else "an embedded struct"


def _plain(name: str) -> str:
    """Return the common form of JSON and protobuf field names: x-kubernetes-list-type is xKubernetesListType, $ref is ref."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _zero(field: WireField, kind: WireType) -> ZeroInJSON:
    if kind.category in ("pointer", "slice", "map"):
        return ZeroInJSON.AS_IS if field.omitempty else ZeroInJSON.NULL
    if field.omitzero or (field.omitempty and kind.category in _PLAIN):
        return ZeroInJSON.LEFT_OUT
    return ZeroInJSON.NULL if kind.category == "bytes" else ZeroInJSON.SHOWN
