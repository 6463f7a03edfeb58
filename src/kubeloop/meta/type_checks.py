"""Checks that an argument is a kind or an object, and describes arguments for errors and log lines without their contents."""

from __future__ import annotations

import re

from kubeloop.meta.resource import Resource
from kubeloop.meta.unstructured import Unstructured


def require_kind(value: object) -> None:
    """Check that a value is the class of a kind, such as ``Pod`` or ``Unstructured.for_kind("v1", "Pod")``.

    Raises:
        TypeError: The text describes the value, and says what to pass.
    """
    if isinstance(value, type):
        if issubclass(value, Resource) and value is not Unstructured:
            return
        if value is Unstructured:
            text = f"Unstructured alone is not a kind; say which: {_UNTYPED}"
        elif issubclass(value, type):
            text = "a class was given where an object is meant"
        else:
            text = f"{_article(value.__name__)} was given where a kind is meant: a class of kubeloop.api, your own, or {_UNTYPED}"
    elif isinstance(value, Resource):
        name = type(value).__name__
        text = f"{_article(name)} object was given where a kind is meant; give the class: {name}"
    elif isinstance(value, str):
        shown = f'the text "{value}"' if _WORD.fullmatch(value) else described(value)
        text = f"{shown} was given where a kind is meant: a class of kubeloop.api, your own, or {_UNTYPED}"
    else:
        text = f"{_article(type(value).__name__)} was given where a kind is meant: a class of kubeloop.api, your own, or {_UNTYPED}"
    raise TypeError(text)


def require_object(value: object) -> None:
    """Check that a value is an object of a kind, such as a ``Pod``.

    Raises:
        TypeError: The text describes the value, and says what to pass.
    """
    if isinstance(value, Resource):
        return
    if isinstance(value, dict):
        raise TypeError("a dict was given where an object is meant; make one of it: Unstructured.from_dict(tree), or KIND.from_dict(tree)")
    if isinstance(value, type):
        raise TypeError(f"the class {value.__name__} was given where an object is meant; make one: {value.__name__}(metadata=...)")
    raise TypeError(f"{_article(type(value).__name__)} was given where an object is meant")


def described(value: object) -> str:
    """Describe an argument for an error or a log line, without its contents, which may be secret.

    Numbers and None are shown as they are; objects and trees by kind and name; everything else, texts too, by type and size.
    It never raises, because errors call it.

    Example:
        >>> described({"kind": "Secret", "metadata": {"namespace": "shop", "name": "login"}, "data": {"password": "..."}})
        'a dict (Secret shop/login)'
    """
    try:
        return _described(value)
    except Exception:  # noqa: BLE001 - methods of the argument's own class may raise anything
        return _article(type(value).__name__)


def described_word(value: object) -> str:
    """Describe an argument as ``described`` does, but show a short word, which may be a misspelt name or value of an enumeration.

    Example:
        >>> described_word("merg")
        "'merg'"
    """
    return repr(str(value)) if isinstance(value, str) and _WORD.fullmatch(value) else described(value)


def _described(value: object) -> str:
    match value:
        case None | bool():
            return repr(value)
        case int():
            return int.__repr__(value) if value.bit_length() <= _BITS else f"a whole number of {value.bit_length()} bits"
        case float():
            return float.__repr__(value)
        case str() if not value:
            return "''"
        case str():
            return f"a text of {len(value)} character{'' if len(value) == 1 else 's'}"
        case bytes() | bytearray() | memoryview():
            return f"{type(value).__name__} of length {len(value)}"
        case type():
            return f"the class {value.__name__}"
        case Resource():
            metadata = getattr(value, "metadata", None)
            place = _place(getattr(metadata, "namespace", None), getattr(metadata, "name", None))
            return f"the {_name(value.kind) or type(value).__name__} {place}"
        case dict() if not value:
            return "{}"
        case dict():
            metadata = value.get("metadata")
            known = metadata if isinstance(metadata, dict) else {}
            kind, name = _name(value.get("kind")), _name(known.get("name"))
            if kind or name:
                return f"a dict ({kind or 'object'} {_place(known.get('namespace'), name)})"
            return f"a dict of {_counted(len(value), 'key')}"
        case list() | tuple() | set() | frozenset():
            return f"{_article(type(value).__name__)} of {_counted(len(value), 'item')}"
        case _:
            return _article(type(value).__name__)


def _place(namespace: object, name: object) -> str:
    shown = _name(name) or "unnamed"
    return f"{_name(namespace)}/{shown}" if _name(namespace) else shown


def _name(value: object) -> str:
    """Return a kind or name unchanged, or "" for any other value."""
    return str(value) if isinstance(value, str) and len(value) <= _LONGEST_NAME and value.isprintable() else ""


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


#: A text that may be a name or a value of an enumeration.
_WORD = re.compile(r"[\w./+:-]{1,63}")
#: Maximum length of names in Kubernetes.
_LONGEST_NAME = 253
#: Limit of whole numbers that are shown.
_BITS = 128
_UNTYPED = 'Unstructured.for_kind("v1", "Pod")'


def _article(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"
