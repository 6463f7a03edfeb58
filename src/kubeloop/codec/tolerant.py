"""The lenient pass: converts a tree to a form that the strict decoder accepts, guided by the models. It runs after the strict pass failed.

Null gives the empty value wherever Go's decoder would leave one; 3.0 is read as a whole number. Nothing else is converted.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.codec.shape import Shape, ValueForm, empty_value, fields_of


def normalise(cls: type[msgspec.Struct], tree: Any) -> Any:
    """Return a new tree for ``cls``; values of a wrong type stay, and the strict decoder names them. Unknown fields are left out."""
    if not isinstance(tree, dict):
        return tree
    result: dict[str, Any] = {}
    for field in fields_of(cls).by_wire.values():
        value = tree.get(field.wire)
        if value is not None:
            result[field.wire] = _value(field.shape, value)
        elif field.required:
            result[field.wire] = None if field.optional else _empty(field.shape)
    return result


def _empty(shape: Shape) -> Any:
    """Return the empty value; the required fields of a struct have their own empty values in it."""
    return normalise(shape.type, {}) if shape.form is ValueForm.STRUCT else empty_value(shape)


def _value(shape: Shape, value: Any) -> Any:
    if value is None:
        return None if shape.form is ValueForm.ANY or shape.none else _empty(shape)
    if shape.form is ValueForm.STRUCT:
        return normalise(shape.type, value)
    if shape.form is ValueForm.LIST and isinstance(value, list) and shape.item is not None:
        return [_value(shape.item, item) for item in value]
    if shape.form is ValueForm.MAP and isinstance(value, dict) and shape.item is not None:
        return {key: _value(shape.item, item) for key, item in value.items()}
    if shape.type is int and isinstance(value, float) and value.is_integer():
        return int(value)
    return value
