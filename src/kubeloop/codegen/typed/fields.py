"""Renders a field of a class: its annotation with markers, its default, its docstring.

Required fields of custom kinds have no default. Other defaults are the server's if Python can express them (they are not sent), else empty.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kubeloop.codegen.naming import camel_case
from kubeloop.codegen.typed.markers import markers
from kubeloop.codegen.typed.python_text import Docs, docstring, literal, text
from kubeloop.codegen.typed.types import PyType, TypeNames, TypeReader
from kubeloop.meta.quantity import Quantity
from kubeloop.types import JSONObject

#: Extensions of Kubernetes' own definitions, which CRDs do not have.
_FOREIGN: Final = ("x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key", "x-kubernetes-unions", "x-kubernetes-group-version-kind")
_EMPTY: Final = {"str": '""', "int": "0", "float": "0.0", "bool": "False", "bytes": 'b""'}


class PythonDefault(NamedTuple):
    """The source code of a Python default, empty if there is none.

    ``factory`` says that the default is called, ``implied`` that it also determines the server's default.
    """

    source: str = ""
    factory: bool = False
    implied: bool = False


class FieldWriter:
    """Renders the fields of one module."""

    def __init__(self, names: TypeNames, docs: Docs) -> None:
        self._names = names
        self._docs = docs
        self._types = TypeReader(names, self.annotated)

    def annotated(self, node: JSONObject) -> str:
        """Return the type of an element of a list or map, with its markers."""
        found = self._types.read(node)
        seen = self._seen(node)
        none = seen.get("nullable") is True and found.form != "any"
        if none:
            del seen["nullable"]
        extra = markers(seen, self._said(node, found), found.text)
        if self._docs == "full" and node.get("description") and "$ref" not in node:
            extra.append(f"msgspec.Meta(description={literal(node['description'])})")
        return self._with(found.text, extra) + (" | None" if none else "")

    def field(self, name: str, wire: str, node: JSONObject, *, required: bool, strict: bool) -> list[str]:
        """Return the lines of a field, indented by four.

        Args:
            name: The attribute.
            wire: The wire name.
            node: The schema of the field.
            required: Whether the schema requires it.
            strict: Whether required fields have no Python default.

        Returns:
            Lines of source.
        """
        if not strict and "default" in node and node["default"] in ({}, "", 0, False):
            # OpenAPI v3 gives a zero default to fields that Go holds by value and always writes.
            node, required = {key: value for key, value in node.items() if key != "default"}, True
        found = self._types.read(node)
        default = self._default(node, found, required=required, strict=strict)
        none = self._may_be_none(node, found, default, required=required)
        seen = self._seen(node)
        if default.implied:
            seen.pop("default", None)
        if none and not default.source and found.form != "any":
            seen.pop("nullable", None)  # a required field that may be None is nullable by its type
        extra = markers(seen, self._said(node, found), found.text)
        if strict and required and default.source:
            extra.insert(0, "declare.Required()")
        annotation = self._with(found.text, extra)
        if none and found.form != "any":
            annotation += " | None"
        lines = [f"    {name}: {annotation}{self._value(name, wire, default)}"]
        if "$ref" not in node:
            lines += docstring(node.get("description", ""), self._docs, 4)
        return lines

    def _seen(self, node: JSONObject) -> JSONObject:
        return {key: value for key, value in node.items() if key != "$ref" and key not in _FOREIGN}

    def _said(self, node: JSONObject, py_type: PyType) -> JSONObject:
        return {} if py_type.said is None or "$ref" in node else py_type.said

    def _with(self, type_text: str, extra: list[str]) -> str:
        if not extra:
            return type_text
        for one in extra:
            if one.startswith("declare."):
                self._names.symbol("kubeloop", "declare")
        return f"{self._names.symbol('typing', 'Annotated')}[{type_text}, {', '.join(extra)}]"

    def _default(self, node: JSONObject, py_type: PyType, *, required: bool, strict: bool) -> PythonDefault:
        if "default" in node and node["default"] is not None and py_type.form == "scalar":
            return self._of_server(node["default"], py_type.text)
        if strict and required and not ("default" in node and py_type.form != "scalar"):
            return PythonDefault()
        if py_type.form in ("list", "map") or (py_type.form == "free" and required):
            return PythonDefault("list" if py_type.form == "list" else "dict", factory=True)
        if py_type.form in ("free", "any") or not (required and not strict):
            return PythonDefault("None")
        return self._by_value(py_type)

    def _by_value(self, py_type: PyType) -> PythonDefault:
        """Return the default of a required by-value field of a Go type."""
        if py_type.form == "struct":
            return PythonDefault(py_type.text, factory=True)
        if py_type.text == self._names.spelt("kubeloop.meta", "Quantity"):
            return PythonDefault(py_type.text, factory=True)
        return PythonDefault(_EMPTY.get(py_type.text, "None"))

    def _of_server(self, value: Any, type_text: str) -> PythonDefault:
        if type_text.endswith("]"):  # Literal
            return PythonDefault(literal(value), implied=True) if literal(value) in _choices(type_text) and value else PythonDefault("None")
        fits = {
            "str": type(value) is str,
            "int": type(value) is int,
            "float": type(value) in (int, float),
            "bool": type(value) is bool,
            self._names.spelt("kubeloop.meta", "IntOrString"): type(value) in (int, str),
        }
        if fits.get(type_text):
            return PythonDefault(literal(value), implied=bool(value))
        if type_text == self._names.spelt("kubeloop.meta", "Quantity") and _is_canonical(value):
            return PythonDefault(f"{type_text}({text(value)})", implied=bool(Quantity(value)))
        return PythonDefault("None")

    def _may_be_none(self, node: JSONObject, py_type: PyType, default: PythonDefault, *, required: bool) -> bool:
        if default.source == "None":
            return True
        return bool(node.get("nullable")) and py_type.form in ("scalar", "struct", "free") and (required or not default.factory)

    def _value(self, name: str, wire: str, default: PythonDefault) -> str:
        arguments = []
        if default.source:
            arguments.append(f"default_factory={default.source}" if default.factory else f"default={default.source}")
        if camel_case(name) != wire:
            arguments.append(f"name={text(wire)}")
        if not arguments:
            return ""
        if len(arguments) == 1 and default.source and not default.factory:
            return f" = {default.source}"
        return f" = msgspec.field({', '.join(arguments)})"


def _choices(type_text: str) -> list[str]:
    return type_text.partition("[")[2].removesuffix("]").split(", ")


def _is_canonical(value: Any) -> bool:
    try:
        return isinstance(value, str) and str(Quantity(value)) == value
    except ValueError:
        return False
