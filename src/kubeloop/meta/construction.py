"""Explains why a model cannot be constructed: names the class, the field and what was probably meant.

Loaded when a constructor raises. The normal path never comes here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

#: What msgspec's constructor says.
_UNEXPECTED = re.compile(r"Unexpected keyword argument '(?P<name>.+)'")
_MISSING = re.compile(r"Missing required argument '(?P<name>.+)'")
_POSITIONAL = "Extra positional arguments provided"

#: Fields that a message lists at most.
_LISTED = 12


class ConstructionError(TypeError):
    """A model was constructed with wrong arguments. Catch ``TypeError``: this class only tells these errors from those of other calls."""


def construction_error(cls: type[msgspec.Struct], given: Mapping[str, Any], error: TypeError) -> TypeError:
    """The error to raise for ``error``, which the constructor of ``cls`` raised.

    Args:
        cls: The class that was called.
        given: The keyword arguments.
        error: As msgspec raised it, or the ``ConstructionError`` of a default that could not be made.

    Returns:
        A ``ConstructionError``; ``error`` itself if it comes from other code, such as a default factory of the user's.
    """
    text = str(error)
    if isinstance(error, ConstructionError):
        found = _default_that_fails(cls, given)
        return error if found is None else ConstructionError(_unmade(cls, *found))
    unexpected = _UNEXPECTED.fullmatch(text)
    if unexpected is not None:
        unknown = [name for name in given if name not in cls.__struct_fields__] or [unexpected["name"]]
        return ConstructionError("; ".join(_unknown(cls, name) for name in unknown))
    if _MISSING.fullmatch(text):
        missing = [name for name in required_fields(cls) if name not in given]
        return ConstructionError(f"{cls.__name__} needs {_joined(missing)}: {cls.__name__}({_arguments(missing)})")
    if text == _POSITIONAL:
        return ConstructionError(f"{cls.__name__} takes keyword arguments only: {cls.__name__}({_arguments(_fields(cls)[:3])})")
    return error


def required_fields(cls: type[msgspec.Struct]) -> list[str]:
    """The Python names of the fields without a default, in the class's order."""
    return [info.name for info in msgspec.structs.fields(cls) if info.required]


def _fields(cls: type[msgspec.Struct]) -> list[str]:
    return [name for name in cls.__struct_fields__ if not name.startswith("_")]


def _unknown(cls: type[msgspec.Struct], name: str) -> str:
    """``PodSpec has no field 'nodeName'; the Python name is node_name``."""
    begin = f"{cls.__name__} has no field '{name}'"
    of_class: Any = cls
    if name in ("api_version", "apiVersion", "kind") and hasattr(of_class, "kind"):
        return f"{begin}; the class itself says it: {cls.__name__}.api_version, {cls.__name__}.kind"
    python = {wire: field for wire, field in zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True) if field[0] != "_"}
    if name in python:
        return f"{begin}; the Python name is {python[name]}"
    simple = {_simplified(wire): field for wire, field in python.items()} | {_simplified(field): field for field in python.values()}
    close = simple.get(_simplified(name))
    if close is None:
        near = difflib.get_close_matches(_simplified(name), simple, n=1)
        close = simple[near[0]] if near else None
    if close is not None:
        return f"{begin}; did you mean {close}?"
    if not python:
        return f"{begin}; it has no fields"
    more = len(python) - _LISTED
    return f"{begin}; its fields: {', '.join(sorted(python.values())[:_LISTED])}" + (f" and {more} more" if more > 0 else "")


def _default_that_fails(cls: type[msgspec.Struct], given: Mapping[str, Any]) -> tuple[str, type[msgspec.Struct]] | None:
    """The first field that was not given and whose default is a class with required fields."""
    for info in msgspec.structs.fields(cls):
        factory = info.default_factory
        if info.name not in given and isinstance(factory, type) and issubclass(factory, msgspec.Struct):
            try:
                factory()
            except TypeError:
                return info.name, factory
    return None


def _unmade(cls: type[msgspec.Struct], name: str, factory: type[msgspec.Struct]) -> str:
    needed = required_fields(factory)
    lacks = f", as {factory.__name__} needs {_joined(needed)}" if needed else ""
    return (
        f"{cls.__name__} needs {name}: its default {factory.__name__}() cannot be made{lacks}. "
        f"Give {name}={factory.__name__}({_arguments(needed)}), or declare it as {name}: {factory.__name__} | None = None"
    )


def _simplified(name: str) -> str:
    return name.replace("_", "").lower()


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names)


def _arguments(names: Iterable[str]) -> str:
    return ", ".join(f"{name}=..." for name in names)
