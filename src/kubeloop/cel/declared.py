"""Declared types: the types of a schema for rules, and the types that mutation expressions construct."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from kubeloop.cel import types
from kubeloop.cel.estimate import CostRange, Path
from kubeloop.cel.identifier_escaping import escape
from kubeloop.cel.overloads import Function, function
from kubeloop.cel.program import Environment
from kubeloop.cel.types import Type
from kubeloop.schema.node import TypeSchema
from kubeloop.schema.structural import ANY_VALUE, NO_OTHER

#: Bytes of the largest request; it bounds every value that the schema does not bound.
MOST_BYTES: Final = 3 * 1024 * 1024
#: The name of the type of ``self``; nested objects are named by their path below it. Not a stable name.
SELF_TYPE: Final = "selfType0"
_STRING: Final = TypeSchema(type="string")
_METADATA: Final = TypeSchema(type="object", properties={"name": _STRING, "generateName": _STRING})
_MOMENT: Final = {"duration": (types.DURATION, 32, 3), "date": (types.TIMESTAMP, 12, 12), "date-time": (types.TIMESTAMP, 32, 21)}


@dataclass(slots=True)
class DeclaredType:
    """The CEL type of a schema, with size bounds for cost estimates.

    ``least`` is the size in bytes of the smallest value as JSON; ``most`` is the maximum length of a string, list or map.
    """

    type: Type
    least: int
    most: int = 0
    fields: dict[str, DeclaredType] = field(default_factory=dict)
    #: The type of a list's items or of a map's values.
    element: DeclaredType | None = None

    def at(self, path: Path) -> DeclaredType | None:
        """Return the declared type at a path of field names, ``@items``, ``@values`` and ``@keys``; None if there is none."""
        found: DeclaredType | None = self
        for name in path:
            if found is None:
                return None
            if name in ("@items", "@values"):
                found = found.element
            elif name == "@keys":
                found = DeclaredType(types.STRING, 2) if found.type.kind == "map" else None
            else:
                found = found.fields.get(name)
        return found

    def size_of(self, path: Path) -> CostRange | None:
        """Return the size range of the value at a path that begins with a variable of this type."""
        found = self.at(path[1:])
        return None if found is None else CostRange(0, found.most)

    @property
    def cardinality(self) -> int:
        """The maximum number of values of this type in a request: as many as fit if each has the smallest possible size."""
        return MOST_BYTES // (self.least + 1)


def declare(schema: TypeSchema, *, is_root: bool, name: str = SELF_TYPE) -> DeclaredType | None:
    """Return the declared type of a schema, or None if CEL has no such type.

    ``is_root`` says that the schema describes an object with apiVersion, kind and metadata.
    """
    if schema.int_or_string:
        return DeclaredType(types.DYN, 1, MOST_BYTES - 2 if schema.max_length is None else max(schema.max_length, 0) * 4)
    if is_root:
        schema = with_object_meta(schema)
    match schema.type:
        case "array":
            return _list(schema, name)
        case "object":
            return _object(schema, name)
        case "string":
            return _string(schema)
        case "boolean":
            return DeclaredType(types.BOOL, 4)
        case "number":
            return DeclaredType(types.DOUBLE, 1)
        case "integer":
            return DeclaredType(types.INT, 1)
        case _:
            return None


def with_object_meta(schema: TypeSchema) -> TypeSchema:
    """Return the schema with ``kind``, ``apiVersion`` and the metadata fields that rules may use, ``name`` and ``generateName``.

    A schema that declares these fields as strings is returned as it is.
    """
    metadata = schema.properties.get("metadata")
    names = metadata.properties if metadata is not None and metadata.type == "object" else {}
    if _is_text(schema.properties, "kind", "apiVersion") and _is_text(names, "name", "generateName"):
        return schema
    added = {"kind": _STRING, "apiVersion": _STRING, "metadata": _METADATA}
    return msgspec.structs.replace(schema, properties={**schema.properties, **added})


def _is_text(properties: dict[str, TypeSchema], *names: str) -> bool:
    return all(name in properties and properties[name].type == "string" for name in names)


def _list(schema: TypeSchema, name: str) -> DeclaredType | None:
    if schema.items is None:
        return None
    items = declare(schema.items, is_root=schema.items.embedded_resource, name=f"{name}.@idx")
    if items is None:
        return None
    most = (MOST_BYTES - 2) // (items.least + 1) if schema.max_items is None else max(schema.max_items, 0)
    return DeclaredType(types.list_of(items.type), 2, most, element=items)


def _object(schema: TypeSchema, name: str) -> DeclaredType | None:
    if schema.values is not None and schema.values is not ANY_VALUE and schema.values is not NO_OTHER:
        values = declare(schema.values, is_root=schema.values.embedded_resource, name=f"{name}.@elem")
        if values is None:
            return None
        most = (MOST_BYTES - 2) // (values.least + 6) if schema.max_properties is None else max(schema.max_properties, 0)
        return DeclaredType(types.map_of(types.STRING, values.type), 2, most, element=values)
    fields: dict[str, DeclaredType] = {}
    least = 2
    for key, below in schema.properties.items():
        identifier = escape(key)
        found = declare(below, is_root=below.embedded_resource, name=f"{name}.{identifier or key}")
        if found is None:
            continue
        if identifier is not None:
            fields[identifier] = found
        if key in schema.required and (not below.has_default or below.default is None):
            least += len(key.encode()) + found.least + 4
    return DeclaredType(types.struct(name), least, fields=fields)


def _string(schema: TypeSchema) -> DeclaredType:
    if schema.format in _MOMENT:
        of, most, least = _MOMENT[schema.format]
        return DeclaredType(of, least, most)
    longest = MOST_BYTES - 2
    if schema.format == "byte":
        return DeclaredType(types.BYTES, 2, longest if schema.max_length is None else max(schema.max_length, 0))
    if schema.max_length is not None:
        longest = max(schema.max_length, 0) * 4
    elif schema.enum:
        longest = max((len(one.encode()) for one in schema.enum if isinstance(one, str)), default=0)
    return DeclaredType(types.STRING, 2, longest)


def environment(declared: DeclaredType, *, optional_old: bool = False) -> Environment:
    """Return the environment of a rule, with ``self`` and ``oldSelf``. With ``optional_old``, ``oldSelf`` is an optional value."""
    fields: dict[str, dict[str, Type]] = {}
    _collect(declared, fields)
    old = types.optional_of(declared.type) if optional_old else declared.type
    return Environment({"self": declared.type, "oldSelf": old}, fields)


def _collect(declared: DeclaredType, into: dict[str, dict[str, Type]]) -> None:
    if declared.type.kind == "struct":
        into[declared.type.name] = {name: one.type for name, one in declared.fields.items()}
    for one in declared.fields.values():
        _collect(one, into)
    if declared.element is not None:
        _collect(declared.element, into)


# Types that mutation expressions may construct: ``Object{...}`` with any fields, ``JSONPatch{...}``; and keys of JSON pointers.
#
# Source: k8s.io/apiserver pkg/cel/mutation, pkg/cel/library/jsonpatch.go.


OBJECT: Final = types.struct("Object")
OPERATION: Final = types.struct("JSONPatch")

PATCH_FUNCTIONS: Final[dict[str, Function]] = {}
_OPERATION_FIELDS: Final = {"op": types.STRING, "from": types.STRING, "path": types.STRING, "value": types.DYN}


class _AnyFields(Mapping[str, Type]):
    """A mapping in which every name is a field of any type."""

    def __getitem__(self, name: str) -> Type:
        return types.DYN

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


_ANY: Final = _AnyFields()


def patch_messages(name: str) -> Mapping[str, Type] | None:
    """Return the fields of the type ``name``: ``Object``, a type of its fields (``Object.spec.template``) or ``JSONPatch``; else None."""
    if name == OPERATION.name:
        return _OPERATION_FIELDS
    return _ANY if name == OBJECT.name or name.startswith(f"{OBJECT.name}.") else None


@function("jsonpatch.escapeKey", "string -> string", "string_jsonpatch_escapeKey_string", into=PATCH_FUNCTIONS)
def _escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
