"""Chooses Python type and default of a schema node.

Required and by-value structs are never None, pointers to structs are None when missing; lists and maps are never None; optional scalars
are None when missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kubeloop.schema import Schemas, TypeSchema

_META_V1 = "io.k8s.apimachinery.pkg.apis.meta.v1."
_EXTENSIONS_V1 = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."

#: Definitions with a hand-written class of the same name in ``kubeloop.meta``.
HAND_WRITTEN: dict[str, str] = {
    **{
        _META_V1 + name: name
        for name in (
            "LabelSelector",
            "LabelSelectorRequirement",
            "ListMeta",
            "ManagedFieldsEntry",
            "MicroTime",
            "ObjectMeta",
            "OwnerReference",
            "ShardInfo",
            "Status",
            "StatusCause",
            "StatusDetails",
            "Time",
        )
    },
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "Quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "IntOrString",
}

_FREE_OBJECT = "dict[str, Any]"

#: Definitions without a class: their Python type, with references in braces.
INLINE: dict[str, str] = {
    _META_V1 + "FieldsV1": _FREE_OBJECT,
    _META_V1 + "Patch": _FREE_OBJECT,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _FREE_OBJECT,
    _EXTENSIONS_V1 + "JSON": "Any",
    _EXTENSIONS_V1 + "JSONSchemaPropsOrArray": f"{{{_EXTENSIONS_V1}JSONSchemaProps}} | list[{{{_EXTENSIONS_V1}JSONSchemaProps}}]",
    _EXTENSIONS_V1 + "JSONSchemaPropsOrBool": f"{{{_EXTENSIONS_V1}JSONSchemaProps}} | bool",
    _EXTENSIONS_V1 + "JSONSchemaPropsOrStringArray": f"{{{_EXTENSIONS_V1}JSONSchemaProps}} | list[str]",
}

#: Required fields that are sent even when empty, by definition: custom kinds contain these structs, and their schemas require the field.
ALWAYS_SENT: dict[str, tuple[str, ...]] = {_META_V1 + "Condition": ("message",)}

_SCALARS = {"string": ("str", '""'), "integer": ("int", "0"), "boolean": ("bool", "False"), "number": ("float", "0.0")}


class PythonField(NamedTuple):
    """A field of a generated class. ``annotation`` and ``default`` are source code; if ``factory`` is set, ``default`` is called."""

    annotation: str
    default: str
    factory: bool = False


@dataclass(frozen=True, slots=True)
class TypeMapper:
    """Maps nodes to types; ``name`` returns the Python name of a definition and records the use."""

    schemas: Schemas
    name: Callable[[str], str]

    def field(self, node: TypeSchema, *, required: bool) -> PythonField:
        """Return type and default of a field with the schema ``node``."""
        text = self.type_of(node)
        if node.type == "array" or text.startswith("list["):
            return PythonField(text, "[]")
        if text.startswith("dict["):
            # A free-form object that may be left out (RawExtension, a CRD's preserved tree) is None then: {} would be an object.
            return PythonField(text, "{}") if node.is_map or required else PythonField(f"{text} | None", "None")
        if text == "Any":
            return PythonField("Any", "None")
        present = required or _zero_by_value(node)
        if not present:
            return PythonField(f"{text} | None", "None")
        return self._present(node, text)

    def _present(self, node: TypeSchema, text: str) -> PythonField:
        target = self.schemas.resolve(node)
        if target.format == "date-time" or " | " in text:
            return PythonField(f"{text} | None", "None")
        if target.int_or_string:
            return PythonField(text, "0")
        if target.format == "quantity" or text not in ("str", "int", "bool", "float", "bytes"):
            return PythonField(text, text, factory=True)
        if text == "bytes":
            return PythonField(text, 'b""')
        return PythonField(text, _SCALARS[target.type][1])

    def type_of(self, node: TypeSchema) -> str:
        """Return the Python type of a value with the schema ``node``, without ``| None``."""
        if node.ref in INLINE:
            return self._inline(INLINE[node.ref])
        if node.ref:
            return self.name(node.ref)
        if node.items is not None:
            return f"list[{self.type_of(node.items)}]"
        if node.values is not None:
            return f"dict[str, {self.type_of(node.values)}]"
        if node.int_or_string:
            return self.name("io.k8s.apimachinery.pkg.util.intstr.IntOrString")
        if node.format == "byte":
            return "bytes"
        if node.format == "date-time":
            return self.name(_META_V1 + "Time")
        if node.type == "array":
            return "list[Any]"
        if node.type == "object":
            return _FREE_OBJECT
        return _SCALARS[node.type][0] if node.type in _SCALARS else "Any"

    def _inline(self, pattern: str) -> str:
        head, brace, rest = pattern.partition("{")
        if not brace:
            return head
        name, _, tail = rest.partition("}")
        return head + self.name(name) + self._inline(tail)


def _zero_by_value(node: TypeSchema) -> bool:
    """Return whether the node has a zero default, which OpenAPI v3 gives to fields that Go holds by value: the field is always present."""
    return node.default in ({}, "", 0, False) and node.default is not None if node.has_default else False
