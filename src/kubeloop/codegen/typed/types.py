"""Chooses the Python type of a node, and the schema keywords that a class derives from that type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from kubeloop.codegen.typed.python_text import text
from kubeloop.codegen.typed.source import known_struct
from kubeloop.codegen.types import HAND_WRITTEN, INLINE
from kubeloop.schema.classes.known import INT_OR_STRING, QUANTITY
from kubeloop.types import JSONObject

Form = Literal["scalar", "list", "map", "free", "any", "struct"]

_SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_ANY: Final[JSONObject] = {"x-kubernetes-preserve-unknown-fields": True}
_FREE: Final[JSONObject] = {"type": "object", **_ANY}
#: Definitions that are plain values: their Python type.
_VALUES: Final = ("Quantity", "IntOrString", "Time", "MicroTime")


class PyType(NamedTuple):
    """The Python type of a schema. ``text`` is its source code.

    ``said`` are the schema keywords that ``kubeloop.schema.classes`` derives from the type alone; None means those of the referenced type.
    """

    text: str
    form: Form
    said: JSONObject | None


class TypeNames:
    """Resolves names in types: a symbol of a module, or the class of a definition. Each use is recorded as an import.

    ``spelt`` returns how ``symbol`` spells a name, without recording a use.
    """

    def __init__(self, symbol: Callable[[str, str], str], spelt: Callable[[str, str], str], definition: Callable[[str], str]) -> None:
        self.symbol = symbol
        self.spelt = spelt
        self.definition = definition


class TypeReader:
    """Converts nodes to types; ``annotated`` gives the source of an element type with its own markers."""

    def __init__(self, names: TypeNames, annotated: Callable[[JSONObject], str]) -> None:
        self._names = names
        self._annotated = annotated

    def read(self, node: JSONObject) -> PyType:
        """Return the Python type of a value with the schema ``node``, without ``| None``."""
        ref = node.get("$ref")
        if ref:
            return self._reference(ref)
        known = known_struct(node)
        if known is not None:
            return PyType(self._names.definition(known), "struct", node)
        type_ = node.get("type", "")
        if node.get("x-kubernetes-int-or-string"):
            return self._int_or_string(node)
        if type_ == "array":
            return self._list(node)
        if type_ == "object":
            return self._object(node)
        if type_ in _SCALARS:
            return self._scalar(node, type_)
        return PyType(self._names.symbol("typing", "Any"), "any", _ANY)

    def _reference(self, ref: str) -> PyType:
        if ref in INLINE:
            free = INLINE[ref].startswith("dict[")
            any_ = self._names.symbol("typing", "Any")
            return PyType(f"dict[str, {any_}]", "free", _FREE) if free else PyType(any_, "any", _ANY)
        name = self._names.definition(ref)
        return PyType(name, "scalar" if HAND_WRITTEN.get(ref) in _VALUES else "struct", None)

    def _int_or_string(self, node: JSONObject) -> PyType:
        if node.get("pattern") == QUANTITY["pattern"]:
            return PyType(self._names.symbol("kubeloop.meta", "Quantity"), "scalar", QUANTITY)
        return PyType(self._names.symbol("kubeloop.meta", "IntOrString"), "scalar", INT_OR_STRING)

    def _list(self, node: JSONObject) -> PyType:
        items = node.get("items")
        if not isinstance(items, dict):
            return PyType(f"list[{self._names.symbol('typing', 'Any')}]", "list", {"type": "array", "items": _ANY})
        return PyType(f"list[{self._annotated(items)}]", "list", {"type": "array", "items": items})

    def _object(self, node: JSONObject) -> PyType:
        values = node.get("additionalProperties")
        if isinstance(values, dict):
            # A map of any values is read as a free object; a marker records the difference.
            inner = self._annotated(values)
            if inner == self._names.spelt("typing", "Any"):
                return PyType(f"dict[str, {inner}]", "map", _FREE)
            return PyType(f"dict[str, {inner}]", "map", {"type": "object", "additionalProperties": values})
        return PyType(f"dict[str, {self._names.symbol('typing', 'Any')}]", "free", _FREE)

    def _scalar(self, node: JSONObject, type_: str) -> PyType:
        choices = node.get("enum")
        if type_ == "string" and choices and all(isinstance(one, str) for one in choices):
            said = f"{self._names.symbol('typing', 'Literal')}[{', '.join(map(text, choices))}]"
            return PyType(said, "scalar", {"type": "string", "enum": choices})
        if type_ == "integer" and choices and all(type(one) is int for one in choices):
            said = f"{self._names.symbol('typing', 'Literal')}[{', '.join(map(str, choices))}]"
            return PyType(said, "scalar", {"type": "integer", "enum": choices})
        format_ = node.get("format")
        if type_ == "string" and format_ == "byte":
            return PyType("bytes", "scalar", {"type": "string", "format": "byte"})
        if type_ == "string" and format_ == "date-time":
            return PyType(self._names.symbol("kubeloop.meta", "Time"), "scalar", {"type": "string", "format": "date-time"})
        return PyType(_SCALARS[type_], "scalar", {"type": type_})
