"""Validates an object against its field type, with the error texts of an API server.

Source: structured-merge-diff's typed/validate. Where upstream orders several faults at random, they are sorted by name here.
"""

from __future__ import annotations

from typing import Any, Final

from kubeloop.merge.fields.elements import ElementError, element_text
from kubeloop.merge.fields.errors import MISMATCHES, TypeMismatch
from kubeloop.merge.fields.field_types import ATOMIC, DEDUCED, ListType, MapType, MergeType, ScalarType, shape
from kubeloop.merge.go_text import go_text, go_type
from kubeloop.meta.strconv import go_quoted
from kubeloop.types import JSONObject


def check(obj: JSONObject, type_: MergeType, *, allow_duplicates: bool = False) -> None:
    """Validate an object. ``allow_duplicates``: associative lists may hold items with the same key, as stored objects may.

    Raises:
        TypeMismatch: The object does not fit; the message names every fault with its path.
    """
    faults: list[str] = []
    with MISMATCHES:
        _value(obj, type_, "", faults, allow_duplicates)
    if len(faults) == 1:
        raise TypeMismatch(faults[0])
    if faults:
        raise TypeMismatch("\n  ".join(["errors:", *faults]))


def _value(value: Any, type_: MergeType, path: str, faults: list[str], allow_duplicates: bool) -> None:
    if type_ is DEDUCED or type_ is ATOMIC or value is None:
        return
    as_ = shape(type_, value)
    if as_ == "map":
        if value.__class__ is not dict:
            _fault(faults, path, f"expected map, got {_shown(value)}")
        elif type_.map is not None:
            _map(value, type_.map, path, faults, allow_duplicates)
    elif as_ == "list":
        if value.__class__ is not list:
            _fault(faults, path, f"expected list, got {_shown(value)}")
        elif type_.list is not None:
            _list(value, type_.list, path, faults, allow_duplicates)
    elif type_.scalar is not None:
        if value.__class__ not in _FITTING[type_.scalar]:
            _fault(faults, path, _misfit(value, type_.scalar))
    else:
        _fault(faults, path, "schema error: invalid atom: inlined")


def _map(value: JSONObject, type_: MapType, path: str, faults: list[str], allow_duplicates: bool) -> None:
    fields, values = type_.fields, type_.values
    for name in sorted(value):
        field = fields.get(name, values)
        if field is None:
            _fault(faults, f"{path}.{name}", "field not declared in schema")
            return
        below = value[name]
        if field.scalar is not None and below.__class__ in _FITTING[field.scalar]:
            continue
        _value(below, field, f"{path}.{name}", faults, allow_duplicates)


def _list(value: list[Any], type_: ListType, path: str, faults: list[str], allow_duplicates: bool) -> None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        if type_.atomic:
            text = f"[{index}]"
        else:
            try:
                element = type_.element(item)
            except ElementError as fault:
                _fault(faults, path, f"element {index}: {fault}")
                return
            text = element_text(element)
            if element in seen and not allow_duplicates:
                _fault(faults, path, f"duplicate entries for key {text}")
            seen.add(element)
        _value(item, type_.items, f"{path}{text}", faults, allow_duplicates)


def _fault(faults: list[str], path: str, text: str) -> None:
    faults.append(f"{path}: {text}" if path else text)


_FITTING: Final[dict[ScalarType, frozenset[type]]] = {
    "numeric": frozenset({int, float}),
    "string": frozenset({str}),
    "boolean": frozenset({bool}),
    "untyped": frozenset({str, int, float, bool}),
}


def _misfit(value: Any, expected: ScalarType) -> str:
    match expected:
        case "numeric":
            return f"expected numeric (int or float), got {go_type(value)}"
        case "string":
            return f"expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
        case "boolean":
            return f"expected boolean, got {_shown(value)}"
        case _:
            return f"expected any scalar, got {_shown(value)}"


def _shown(value: Any) -> str:
    """Return a value as Go's ``%v`` prints upstream's wrapper of the value."""
    return f"&{{{go_text(value)}}}"


def _go_syntax(value: Any) -> str:
    """Return a value as Go's ``%#v`` prints it."""
    match value:
        case dict():
            return "map[string]interface {}{" + ", ".join(f"{go_quoted(name)}:{_go_syntax(value[name])}" for name in sorted(value)) + "}"
        case list():
            return "[]interface {}{" + ", ".join(map(_go_syntax, value)) + "}"
        case str():
            return go_quoted(value)
        case None:
            return "interface {}(nil)"
        case _:
            return go_text(value)
