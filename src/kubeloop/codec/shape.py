"""Shape: the facts about a model's fields that the lenient decoder and the change finder need. Computed once for each class."""

from __future__ import annotations

import enum
import types
import typing
from datetime import datetime
from typing import Any, Union

import msgspec

from kubeloop.meta.model import Model
from kubeloop.meta.quantity import Quantity


class ValueForm(enum.Enum):
    """The form of a field's value in JSON, which decides how the value is decoded and compared."""

    STRUCT = "struct"
    LIST = "list"
    MAP = "map"
    SCALAR = "scalar"
    ANY = "any"


class Shape(msgspec.Struct):
    """The facts about the values of a type that decoding and encoding need: their form in JSON, and the shape of their items.

    ``loose``: equality of Python values is not sufficient (1 == True); ``micro``: a MicroTime is somewhere inside.

    ``union``: one of several structs, which only the strict decoder can resolve; ``int_or_string``: an int that may be a string;
    ``none``: an item may be None.
    """

    form: ValueForm
    type: Any
    item: Shape | None = None
    loose: bool = False
    micro: bool = False
    union: bool = False
    int_or_string: bool = False
    none: bool = False


class FieldShape(msgspec.Struct):
    """One field of a struct. ``optional``: null means None. ``required``: the class gives no default, or a default that cannot be made.

    A default cannot be made where ``default_factory`` is a struct class with required fields.
    """

    name: str
    wire: str
    shape: Shape
    optional: bool
    required: bool
    keys: tuple[str, ...] = ()


class StructShape(msgspec.Struct):
    """The fields of a class, by wire name in the class's order."""

    cls: type[msgspec.Struct]
    by_wire: dict[str, FieldShape] = msgspec.field(default_factory=dict)
    loose: bool = False
    micro: bool = False


def fields_of(cls: type[msgspec.Struct], within: tuple[type[msgspec.Struct], ...] = ()) -> StructShape:
    """Return the fields of a struct class. ``within``: the classes being analysed at the moment, for recursive definitions."""
    known = _KNOWN.get(cls)
    if known is not None:
        return known
    found = StructShape(cls)
    hints = typing.get_type_hints(cls, include_extras=True)
    list_keys = cls.__list_keys__ if issubclass(cls, Model) else {}
    for info in msgspec.structs.fields(cls):
        shape, optional = _shape_of(hints[info.name], (*within, cls))
        keys = _attributes(shape, list_keys.get(info.encode_name) or _declared_keys(hints[info.name]))
        required = info.required or _lacks_default(info.default_factory, (*within, cls))
        found.by_wire[info.encode_name] = FieldShape(info.name, info.encode_name, shape, optional, required, keys)
        found.loose |= shape.loose
        found.micro |= shape.micro
    _KNOWN[cls] = found
    return found


_KNOWN: dict[type[msgspec.Struct], StructShape] = {}


def _lacks_default(factory: Any, within: tuple[type[msgspec.Struct], ...]) -> bool:
    """Return whether a ``default_factory`` is a struct class that needs arguments."""
    if not (isinstance(factory, type) and issubclass(factory, msgspec.Struct)) or factory in within:
        return False
    return any(field.required for field in fields_of(factory, within).by_wire.values())


def _shape_of(hint: Any, within: tuple[type[msgspec.Struct], ...]) -> tuple[Shape, bool]:
    micro = False
    if typing.get_origin(hint) is typing.Annotated:
        micro = any(isinstance(extra, msgspec.Meta) and (extra.extra or {}).get("kubernetes") == "MicroTime" for extra in hint.__metadata__)
        shape, optional = _shape_of(hint.__origin__, within)
        shape.micro |= micro
        return shape, optional
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        optional = len(members) < len(typing.get_args(hint))
        if len(members) == 1:
            return _shape_of(members[0], within)[0], optional
        if all(member in (int, str) for member in members):
            return Shape(ValueForm.SCALAR, int, int_or_string=True), optional
        return Shape(ValueForm.ANY, Any, loose=True, union=True), optional
    if origin is list:
        item = _item_of(typing.get_args(hint)[0], within)
        return Shape(ValueForm.LIST, list, item, item.loose, item.micro), False
    if origin is dict:
        item = _item_of(typing.get_args(hint)[1], within)
        return Shape(ValueForm.MAP, dict, item, item.loose, item.micro), False
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint in within:
            # The content is not known yet: assume the worst.
            return Shape(ValueForm.STRUCT, hint, loose=True, micro=True), False
        inner = fields_of(hint, within)
        return Shape(ValueForm.STRUCT, hint, loose=inner.loose, micro=inner.micro), False
    if hint is msgspec.Raw:
        return Shape(ValueForm.ANY, hint), False
    if hint is Any or hint is object:
        return Shape(ValueForm.ANY, hint, loose=True), True
    return Shape(ValueForm.SCALAR, hint), hint is datetime


def _item_of(hint: Any, within: tuple[type[msgspec.Struct], ...]) -> Shape:
    shape, optional = _shape_of(hint, within)
    shape.none = optional
    return shape


def _declared_keys(hint: Any) -> tuple[str, ...]:
    """Return the keys of ``Annotated[list[...], ListMap(...)]``; found by attribute, because most programs import no markers."""
    if typing.get_origin(hint) is not typing.Annotated:
        return ()
    return next((keys for marker in hint.__metadata__ if (keys := getattr(marker, "list_map_keys", ()))), ())


def _attributes(shape: Shape, wire_keys: tuple[str, ...]) -> tuple[str, ...]:
    """Convert wire names to attributes: keys are declared by wire name, items are compared by attribute."""
    if not wire_keys or shape.item is None or shape.item.form is not ValueForm.STRUCT:
        return ()
    names = {info.encode_name: info.name for info in msgspec.structs.fields(shape.item.type)}
    return tuple(names[key] for key in wire_keys if key in names)


def empty_value(shape: Shape) -> Any:
    """Return the JSON value that replaces null or a missing value, such as ``[]`` for a list."""
    if shape.form is ValueForm.LIST:
        return []
    if shape.form in (ValueForm.STRUCT, ValueForm.MAP):
        return {}
    return _EMPTY.get(shape.type)


_EMPTY: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, bytes: "", Quantity: "0", msgspec.Raw: {}}
