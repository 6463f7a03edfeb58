"""Builds an object although its values break the rules of its class (choices, bounds, patterns). The last resort of decoding.

A server may store such values: they were written before a rule became stricter, or by a newer version that has more choices.
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from kubeloop.codec.shape import Shape, ValueForm, empty_value, fields_of

M = TypeVar("M", bound=msgspec.Struct)


def build(cls: type[M], tree: Any, hook: Callable[[type, Any], Any]) -> M:
    """Build an instance from a tree that ``tolerant.normalise`` returned.

    Raises:
        msgspec.ValidationError: a value has another JSON type than its field.
        TypeError: the class has a union of structs, which only the strict decoder can resolve.
    """
    if not isinstance(tree, dict):
        raise msgspec.ValidationError(f"Expected `object`, got `{type(tree).__name__}`")
    values: dict[str, Any] = {}
    for wire, field in fields_of(cls).by_wire.items():
        if wire in tree:
            values[field.name] = _within(f".{wire}", tree[wire], field.shape, hook)
        elif field.required:
            values[field.name] = None if field.optional else _value(empty_value(field.shape), field.shape, hook)
    return cls(**values)


def _within(step: str, value: Any, shape: Shape, hook: Callable[[type, Any], Any]) -> Any:
    """Build a value; errors name it as ``step``, as those of the strict decoder do."""
    try:
        return _value(value, shape, hook)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        raise msgspec.ValidationError(f"{text} - at `${step}{path.rstrip('`')}`") from None


def _value(value: Any, shape: Shape, hook: Callable[[type, Any], Any]) -> Any:
    if value is None and shape.none:
        return None
    if shape.form is ValueForm.STRUCT:
        return None if value is None else build(shape.type, value, hook)
    if shape.form is ValueForm.LIST and shape.item is not None and isinstance(value, list):
        return [_within(f"[{number}]", item, shape.item, hook) for number, item in enumerate(value)]
    if shape.form is ValueForm.MAP and shape.item is not None and isinstance(value, dict):
        return {key: _within("[...]", item, shape.item, hook) for key, item in value.items()}
    if shape.type is msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(value))
    if shape.form in (ValueForm.LIST, ValueForm.MAP):
        return msgspec.convert(value, list[Any] if shape.form is ValueForm.LIST else dict[str, Any])
    if shape.form is ValueForm.ANY:
        if shape.union:
            raise TypeError("a union of structs")
        return value
    if shape.int_or_string:
        return msgspec.convert(value, int | str)
    choices = _choices(shape.type)
    if choices:
        return _chosen(value, shape.type, choices)
    return None if value is None else msgspec.convert(value, shape.type, dec_hook=hook)


def _choices(hint: Any) -> set[type]:
    """Return the JSON types of the choices of a Literal or Enum; empty for other types."""
    if typing.get_origin(hint) is typing.Literal:
        return {type(one) for one in typing.get_args(hint)}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {type(member.value) for member in hint}
    return set()


def _chosen(value: Any, hint: Any, choices: set[type]) -> Any:
    if value is None:
        return "" if choices == {str} else None
    if isinstance(hint, type):
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError:
            pass
    if type(value) in choices:
        return value
    raise msgspec.ValidationError(f"Expected `{'` or `'.join(sorted(one.__name__ for one in choices))}`, got `{type(value).__name__}`")
