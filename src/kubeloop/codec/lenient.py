"""Lenient decoding of values that the strict decoder refuses, and the field at which decoding failed."""

from __future__ import annotations

import enum
import re
import typing
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from kubeloop.codec.shape import Shape, ValueForm, empty_value, fields_of

# The lenient pass: converts a tree to a form that the strict decoder accepts, guided by the models. It runs after the strict pass failed.
#
# Null gives the empty value wherever Go's decoder would leave one; 3.0 is read as a whole number. Nothing else is converted.


def normalise(cls: type[msgspec.Struct], tree: Any) -> Any:
    """Return a copy of ``tree`` in the form that the strict decoder of ``cls`` accepts: nulls become empty values, 3.0 becomes 3.

    Unknown fields are left out. Values of a wrong type stay; the strict decoder reports them.
    """
    if not isinstance(tree, dict):
        return tree
    result: dict[str, Any] = {}
    for field in fields_of(cls).by_wire.values():
        value = tree.get(field.wire)
        if value is not None:
            result[field.wire] = _normalised_value(field.shape, value)
        elif field.required:
            result[field.wire] = None if field.optional else _empty(field.shape)
    return result


def _empty(shape: Shape) -> Any:
    """Return the empty value of a shape; for a struct, a dict with the empty values of its required fields."""
    return normalise(shape.type, {}) if shape.form is ValueForm.STRUCT else empty_value(shape)


def _normalised_value(shape: Shape, value: Any) -> Any:
    if value is None:
        return None if shape.form is ValueForm.ANY or shape.none else _empty(shape)
    if shape.form is ValueForm.STRUCT:
        return normalise(shape.type, value)
    if shape.form is ValueForm.LIST and isinstance(value, list) and shape.item is not None:
        return [_normalised_value(shape.item, item) for item in value]
    if shape.form is ValueForm.MAP and isinstance(value, dict) and shape.item is not None:
        return {key: _normalised_value(shape.item, item) for key, item in value.items()}
    if shape.type is int and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


# Builds an object although its values break the rules of its class (choices, bounds, patterns). The last resort of decoding.
#
# A server may store such values: they were written before a rule became stricter, or by a newer version that has more choices.


M = TypeVar("M", bound=msgspec.Struct)


def build(cls: type[M], tree: Any, hook: Callable[[type, Any], Any]) -> M:
    """Build an instance from a tree that ``normalise`` returned.

    Raises:
        msgspec.ValidationError: a value has another JSON type than its field.
        TypeError: The class has a union of structs, which only the strict decoder can resolve.
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
    """Build the value of a field or an item; errors name it by ``step``, in the format of the strict decoder's errors."""
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


# Compiled when the first error needs them.
_STEP = r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|\[(?P<any>\.\.\.)\]"
_PLAIN = r"[A-Za-z_$][\w$-]*"


def explain_error(error: Exception, decoder: msgspec.json.Decoder[Any] | None = None, tree: Any = None) -> str:
    """Reword an error of msgspec as ``spec.replicas: expected int, got str``.

    ``tree`` is the value that ``decoder`` refused. With ``decoder`` and ``tree``, the text names the keys of maps too.
    """
    text, _, path = str(error).rpartition(" - at `$")
    if not text:
        return str(error)
    path = path.rstrip("`")
    if decoder is not None and "[...]" in path:
        path = _with_keys(decoder, tree, path)
    field = path.removeprefix(".")
    reason = text.replace("`", "")
    return f"{field}: {reason[:1].lower()}{reason[1:]}" if field else reason


def _with_keys(decoder: msgspec.json.Decoder[Any], tree: Any, path: str) -> str:
    named = ""
    at = tree
    for token in re.finditer(_STEP, path):
        if token["any"] and isinstance(at, dict):
            key = _culprit(decoder, tree, at)
            if key is None:
                return path
            named += f".{key}" if re.fullmatch(_PLAIN, key) else f'["{key}"]'
            at = at[key]
            continue
        named += token[0]
        if token["name"] and isinstance(at, dict):
            at = at.get(token["name"])
        elif token["index"] and isinstance(at, list) and int(token["index"]) < len(at):
            at = at[int(token["index"])]
        else:
            at = None
    return named


def _culprit(decoder: msgspec.json.Decoder[Any], tree: Any, holder: dict[str, Any]) -> str | None:
    """Return the first member of ``holder`` (a dict within ``tree``) that is refused when it is the only member."""
    members = dict(holder)
    try:
        for key, value in members.items():
            holder.clear()
            holder[key] = value
            try:
                decoder.decode(msgspec.json.encode(tree))
            except msgspec.ValidationError:
                return key
    finally:
        holder.clear()
        holder.update(members)
    return None
