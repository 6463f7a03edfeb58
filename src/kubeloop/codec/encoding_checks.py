"""A check before sending: it finds wrong types and values that JSON cannot express, and names the field.

Models accept any value when they are built (checking each assignment would cost every reader); this check runs before sending.
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from kubeloop.codec.apply_configuration import document_changes
from kubeloop.codec.decoding import dec_hook, decoder_of
from kubeloop.codec.encoding import describe
from kubeloop.codec.lenient import build, explain_error, normalise
from kubeloop.codec.shape import fields_of
from kubeloop.meta.model import Model
from kubeloop.meta.object_meta import ObjectMeta
from kubeloop.meta.quantity import Quantity
from kubeloop.meta.resource import Resource, source_of
from kubeloop.meta.type_checks import require_object
from kubeloop.meta.unstructured import Unstructured

R = TypeVar("R", bound=Resource)
T = TypeVar("T")

_STEPS = re.compile(r"\.[^.\[`]+|\[\.\.\.\]")


def checked(obj: R, write: Callable[[R], bytes]) -> bytes:
    """Return the result of ``write`` if every field of ``obj`` has its declared type. An unchanged document is not checked again.

    Raises:
        ValueError: A field holds a value of another type, or a value that JSON cannot express; the message names object and field.
        TypeError: ``obj`` is not an object of the API.
    """
    body = _written(obj, write)
    source = source_of(obj)
    if not isinstance(obj, Unstructured) and (source is None or source.document is not body):
        _check(obj, type(obj), obj, None if source is None else source.document, body)
    return body


def checked_changes(obj: Resource, field: str = "") -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the trees before and after the changes to an object that was read (``document_changes``), if its fields have their types.

    Args:
        obj: The object.
        field: Wire name of the only field to check, such as ``status``; other fields may have any JSON value. Empty: check all fields.

    Returns:
        Both trees; None if ``obj`` was constructed in this program.

    Raises:
        ValueError, TypeError: See ``checked``.
    """
    trees = _written(obj, document_changes)
    if trees is None or isinstance(obj, Unstructured):
        return trees
    before, after = trees
    cls: type[msgspec.Struct] = type(obj)
    given: msgspec.Struct = obj
    if field:
        known = fields_of(cls).by_wire.get(field)
        if known is None or after.get(field) is None:
            return trees
        cls = _class_with(cls, known.name, field)
        before, after = {field: before.get(field)}, {field: after[field]}
        given = cls(**{known.name: getattr(obj, known.name)})
    if before != after:
        _check(obj, cls, given, msgspec.json.encode(before), msgspec.json.encode(after))
    return trees


def _written(obj: R, write: Callable[[R], T]) -> T:
    require_object(obj)
    require_metadata(obj)
    try:
        return write(obj)
    except (TypeError, UnicodeEncodeError):
        found = _unsayable(obj)
        if found is None:
            raise
        path, value = found
        what = "half a character (a lone surrogate)" if isinstance(value, str) else f"a {type(value).__name__}"
        text = f"{describe(obj)}: {path.removeprefix('.')}: {what} was given, which JSON cannot represent"
        raise ValueError(text) from None


def _check(obj: Resource, cls: type[msgspec.Struct], value: msgspec.Struct, before: bytes | None, after: bytes) -> None:
    """Raise ValueError if ``after``, written from ``value`` (a ``cls``), breaks its types. ``before`` is the document that was read."""
    fault = fault_of(cls, after, value)
    if fault and before is not None and fault_of(cls, before):
        # Values read from a newer server may break declared choices or bounds: they may be sent back; values of other types may not.
        fault = _wrong_type(cls, after)
    if fault:
        raise ValueError(f"{describe(obj)}: {fault}")


@functools.cache
def _class_with(cls: type[msgspec.Struct], name: str, wire: str) -> type[msgspec.Struct]:
    """Return a struct class with a single field, ``name`` of ``cls``, whose wire name is ``wire``."""
    hint = typing.get_type_hints(cls, include_extras=True)[name]
    return msgspec.defstruct(cls.__name__, [(name, hint, msgspec.field(default=None, name=wire))], kw_only=True, gc=False)


def require_metadata(obj: Resource) -> None:
    """Check that the metadata of an object is an ``ObjectMeta``, because every message takes the object's name from it.

    Raises:
        ValueError: The metadata has another type.
    """
    fits = isinstance(obj, Unstructured) or isinstance(obj.metadata, ObjectMeta)
    if not fits:
        raise ValueError(f"{type(obj).__name__}: metadata: expected ObjectMeta, got {type(obj.metadata).__name__}")


def fault_of(cls: type[msgspec.Struct], body: bytes, obj: msgspec.Struct | None = None) -> str:
    """Return the error in JSON that was encoded from a ``cls``, such as ``spec.replicas: expected int, got str``, or "" if it is valid.

    ``obj`` is the struct from which the JSON was encoded. With it, a struct in the place of one of another type is detected too, even if
    all fields of the wrong struct are unknown fields there.
    """
    decoder = decoder_of(cls)
    try:
        read = decoder.decode(body)
    except (msgspec.ValidationError, TypeError):  # TypeError: the default of a missing field cannot be made
        # Nulls and spellings that readers accept are no faults: they came from a server.
        document = msgspec.json.decode(body)
        tree = normalise(cls, document)
        try:
            decoder.decode(msgspec.json.encode(tree))
        except msgspec.ValidationError as error:
            # The empty value in the place of a null may break a rule, such as a minimum length, which the null itself does not.
            return "" if _is_null(document, _STEPS.findall(str(error).partition("`$")[2])) else explain_error(error, decoder, tree)
        return ""
    if obj is not None and read != obj and (found := _misplaced(obj, read)) is not None:
        path, wrong, meant = found
        text = f"{path.removeprefix('.')}: expected {meant.__name__}, got {wrong.__name__}"
        return f"{text}; {meant.__name__}.from_dict reads a dict with wire names" if wrong is dict and issubclass(meant, Model) else text
    return ""


def _misplaced(value: Any, read: Any) -> tuple[str, type, type] | None:
    """Find the first struct (or dict) within ``value`` whose class differs from the struct read back in its place.

    Returns:
        Its path, its class and the class that belongs there.
    """
    if isinstance(value, msgspec.Struct) and isinstance(read, msgspec.Struct) and not isinstance(value, type(read)):
        return "", type(value), type(read)
    if isinstance(value, dict) and isinstance(read, msgspec.Struct):
        return "", dict, type(read)
    if type(value) is not type(read):
        return None
    mine, theirs = dict(_parts(value)), dict(_parts(read))
    for step, part in mine.items():
        if step in theirs and not _is_plain(part):
            found = _misplaced(part, theirs[step])
            if found is not None:
                return f"{step}{found[0]}", found[1], found[2]
    return None


def _wrong_type(cls: type[msgspec.Struct], body: bytes) -> str:
    try:
        build(cls, normalise(cls, msgspec.json.decode(body)), dec_hook)
    except msgspec.ValidationError as error:
        return explain_error(error)
    except TypeError:
        return ""
    return ""


def _unsayable(value: Any) -> tuple[str, Any] | None:
    """Return the first value within ``value`` that JSON cannot express, and its path in wire names, or None if there is none."""
    for step, part in _parts(value):
        if isinstance(part, str) and not _can_be_said(part):
            return step, part
        if not _is_plain(part):
            found = _unsayable(part)
            if found is not None:
                path, odd = found
                return f"{step}{path}", odd
            if not _is_container(part) and not _can_be_said(part):
                return step, part
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Unstructured):
        value = value.content
    if isinstance(value, msgspec.Struct):
        yield from (
            (f".{wire}", getattr(value, name)) for name, wire in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        )
    elif isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                yield ".{}", key
            yield f".{key}", part
    elif isinstance(value, list | tuple):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float)


def _is_container(value: Any) -> bool:
    return isinstance(value, msgspec.Struct | dict | list | tuple)


def _can_be_said(value: Any) -> bool:
    try:
        msgspec.json.encode(value, enc_hook=_quantity)
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def _quantity(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    raise TypeError


def _is_null(value: Any, steps: Sequence[str]) -> bool:
    """Return whether a value is null at a path of msgspec's errors, whose step ``[...]`` stands for any item of a list or map."""
    if not steps:
        return value is None
    step, rest = steps[0], steps[1:]
    if step == "[...]":
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return any(_is_null(item, rest) for item in items)
    return isinstance(value, dict) and step[1:] in value and _is_null(value[step[1:]], rest)
