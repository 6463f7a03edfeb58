"""Apply configurations: the fields of an object that its creator set, without the defaults of its class.

A typed object, or a part of one, states the fields that somebody wants to own (server-side apply) or to merge (a patch). A default among
them would be owned too, or would overwrite the stored value.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import msgspec

from kubeloop.codec.changes import change_struct, change_tree, encode_struct, encode_value
from kubeloop.codec.decoding import decode, decode_struct
from kubeloop.codec.encoding import describe, to_dict, with_kind
from kubeloop.codec.shape import Shape, ValueForm, fields_of
from kubeloop.meta.model import DocumentSource
from kubeloop.meta.resource import Resource, source_of
from kubeloop.meta.unstructured import Unstructured

R = TypeVar("R", bound=Resource)

_OWNED = "it holds only the fields that are owned by field manager"


def read_owned(cls: type[R], document: bytes, manager: str) -> R:
    """Return a copy of an object with only the fields that ``manager`` owns. Change it and apply it again; never send it as an update."""
    return decode(cls, document, checked=True, partial=f'{_OWNED} "{manager}"')


def encode_applied(obj: Resource) -> bytes:
    """Return the JSON body for a server-side apply of ``obj``, with ``apiVersion`` and ``kind``.

    Guarantees
        An object constructed in this program: the body has the required fields and the fields that differ from the default of the class.
        ``{}`` stays where the class has None.
        An object from ``read_owned``: the body is its document with the caller's changes; fields unknown to the models stay owned.

    Not guaranteed
        A field set to its own default is not sent, because it looks like an unset field. Declare such fields ``T | None``.

    Raises:
        ValueError: The object was read from a server: applying it would own every field, also fields that others wrote.
    """
    source = source_of(obj)
    if source is None:
        tree = obj.to_dict() if isinstance(obj, Unstructured) else set_fields(obj)
        return with_kind(msgspec.json.encode(tree), obj)
    if not source.partial.startswith(_OWNED):
        raise ValueError(
            f"{describe(obj)} was read from the server: to apply it would make all of its fields yours. "
            "Apply an object that sets only your fields, or what client.extract gives for your field manager."
        )
    if isinstance(obj, Unstructured):
        return change_tree(source.document, msgspec.json.decode(source.document), obj.to_dict())
    return with_kind(_changed_owned(source, obj), obj)


def set_fields(obj: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a model that differ from the defaults of their classes, at every depth, as a tree."""
    tree: dict[str, Any] = msgspec.json.decode(encode_struct(obj))
    return _without_defaults(tree, type(obj))


def document_changes(obj: Resource) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return two trees: the document that ``obj`` was read from, and its current state; None if ``obj`` was constructed in this program.

    ``obj`` may be a part of an object.

    Two equal trees mean that nothing was changed.
    """
    source = source_of(obj)
    if source is None:
        return None
    old: dict[str, Any] = msgspec.json.decode(source.document)
    if isinstance(obj, Unstructured):
        return old, obj.to_dict()
    cls: type[Resource] = type(obj)
    before = decode_struct(cls, source.document, cls.kind)
    return old, msgspec.json.decode(change_struct(source.document, before, obj))


def fresh_tree(obj: Resource) -> dict[str, Any]:
    """Return the set fields of an object that was constructed in this program, without ``apiVersion`` and ``kind``, for a patch."""
    tree = dict(to_dict(obj)) if isinstance(obj, Unstructured) else set_fields(obj)
    return {name: value for name, value in tree.items() if name not in ("apiVersion", "kind")}


def _changed_owned(source: DocumentSource, obj: Resource) -> bytes:
    cls: type[Resource] = type(obj)
    before = decode_struct(cls, source.document, cls.kind)
    changed: dict[str, Any] = msgspec.json.decode(change_struct(source.document, before, obj))
    # Owned fields stay, defaults or not; only empty structs that came with a new part are left out.
    return msgspec.json.encode(_without_empty(changed, cls))


def _without_defaults(tree: dict[str, Any], cls: type[msgspec.Struct]) -> dict[str, Any]:
    defaults = _defaults(cls)
    kept: dict[str, Any] = {}
    for wire, field in fields_of(cls).by_wire.items():
        if wire not in tree:
            continue
        value = _inside(tree[wire], field.shape, _without_defaults)
        if wire not in defaults or not _equal(value, defaults[wire]):
            kept[wire] = value
    return kept


def _without_empty(tree: dict[str, Any], cls: type[msgspec.Struct]) -> dict[str, Any]:
    fields = fields_of(cls).by_wire
    kept: dict[str, Any] = {}
    for wire, value in tree.items():
        field = fields.get(wire)
        if field is None:
            kept[wire] = value
            continue
        inner = _inside(value, field.shape, _without_empty)
        if inner or field.optional or field.shape.form is not ValueForm.STRUCT:
            kept[wire] = inner
    return kept


def _inside(value: Any, shape: Shape, prune: Any) -> Any:
    if shape.form is ValueForm.STRUCT and isinstance(value, dict):
        return prune(value, shape.type)
    if shape.form is ValueForm.LIST and isinstance(value, list) and shape.item is not None:
        return [_inside(item, shape.item, prune) for item in value]
    if shape.form is ValueForm.MAP and isinstance(value, dict) and shape.item is not None:
        return {key: _inside(item, shape.item, prune) for key, item in value.items()}
    return value


@functools.cache
def _defaults(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the defaults of a class by wire name, as JSON trees without nested defaults."""
    result: dict[str, Any] = {}
    shapes = fields_of(cls).by_wire
    for info in msgspec.structs.fields(cls):
        if info.default is not msgspec.NODEFAULT:
            default = info.default
        elif _has_default(info.default_factory) and not shapes[info.encode_name].required:
            default = info.default_factory()
        else:
            continue
        if default is msgspec.UNSET:
            continue
        shape = shapes[info.encode_name].shape
        result[info.encode_name] = _inside(msgspec.json.decode(encode_value(default, shape)), shape, _without_defaults)
    return result


def _has_default(factory: Any) -> bool:
    """Return whether a field with this factory has a default that need not be sent. With the factory ``str``, "" is always sent."""
    return factory is not msgspec.NODEFAULT and factory is not str


def _equal(left: Any, right: Any) -> bool:
    """Return whether two trees are equal as JSON, in which 1, 1.0 and true are three values."""
    return bool(left == right) and msgspec.json.encode(left, order="sorted") == msgspec.json.encode(right, order="sorted")
