"""Explains why a model cannot be constructed: names the class, the field and the probably intended name.

Loaded when a constructor raises; successful calls never load it.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import linecache
import re
from collections.abc import Iterable, Mapping
from types import FrameType, ModuleType, TracebackType
from typing import Any

import msgspec

#: The messages of msgspec's constructor.
_UNEXPECTED = re.compile(r"Unexpected keyword argument '(?P<name>.+)'")
_MISSING = re.compile(r"Missing required argument '(?P<name>.+)'")
_POSITIONAL = "Extra positional arguments provided"

#: Maximum number of fields in a message.
_LISTED = 12


class ConstructionError(TypeError):
    """A model was constructed with wrong arguments. Callers catch ``TypeError``; the class only marks errors that are explained already."""


def construction_error(cls: type[msgspec.Struct], arguments: Mapping[str, Any], error: TypeError) -> TypeError:
    """Return the error to raise for ``error``, which the constructor of ``cls`` raised.

    Args:
        cls: The class that was called.
        arguments: The keyword arguments.
        error: As msgspec raised it, or the ``ConstructionError`` of a default that could not be made.

    Returns:
        A ``ConstructionError``; ``error`` itself if it comes from other code, such as a user's default factory.
    """
    text = str(error)
    if isinstance(error, ConstructionError):
        found = _default_that_fails(cls, arguments)
        return error if found is None else ConstructionError(_unmade(cls, *found))
    unexpected = _UNEXPECTED.fullmatch(text)
    if unexpected is not None:
        unknown = [name for name in arguments if name not in cls.__struct_fields__] or [unexpected["name"]]
        return ConstructionError("; ".join(_unknown(cls, name) for name in unknown))
    if _MISSING.fullmatch(text):
        missing = [name for name in required_fields(cls) if name not in arguments]
        return ConstructionError(f"{cls.__name__} needs {_joined(missing)}: {cls.__name__}({_arguments(missing)})")
    if text == _POSITIONAL:
        return ConstructionError(f"{cls.__name__} takes keyword arguments only: {cls.__name__}({_arguments(_fields(cls)[:3])})")
    return error


def required_fields(cls: type[msgspec.Struct]) -> list[str]:
    """Return the Python names of the fields without a default, in the class's order."""
    return [info.name for info in msgspec.structs.fields(cls) if info.required]


def _fields(cls: type[msgspec.Struct]) -> list[str]:
    return [name for name in cls.__struct_fields__ if not name.startswith("_")]


def _unknown(cls: type[msgspec.Struct], name: str) -> str:
    """Return a text such as ``PodSpec has no field 'nodeName'; the Python name is node_name``."""
    begin = f"{cls.__name__} has no field '{name}'"
    of_class: Any = cls
    if name in ("api_version", "apiVersion", "kind") and hasattr(of_class, "kind"):
        return f"{begin}: leave it out, the class sets it ({cls.__name__}.api_version, {cls.__name__}.kind)"
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


def _default_that_fails(cls: type[msgspec.Struct], arguments: Mapping[str, Any]) -> tuple[str, type[msgspec.Struct]] | None:
    """Return the name and the default class of the first omitted field whose default cannot be constructed, or None if there is none."""
    for info in msgspec.structs.fields(cls):
        factory = info.default_factory
        if info.name not in arguments and isinstance(factory, type) and issubclass(factory, msgspec.Struct):
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


def explain_from_traceback(error: BaseException) -> None:
    """Reword an error of msgspec's constructor like a model's own errors, if the traceback shows the call.

    A frequently called class is constructed by msgspec alone, whose errors name neither class nor the intended field. The source line
    of the call names both, so successful calls pay nothing. Other errors, and errors whose source cannot be read, stay unchanged.
    """
    text = str(error)
    if type(error) is not TypeError or not (_UNEXPECTED.fullmatch(text) or _MISSING.fullmatch(text) or text == _POSITIONAL):
        return
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    call = _call_at(trace) if trace is not None else None
    cls = _value_of(call.func, trace.tb_frame) if trace is not None and call is not None else None
    if call is None or not (isinstance(cls, type) and issubclass(cls, msgspec.Struct)):
        return
    given = {keyword.arg: None for keyword in call.keywords if keyword.arg is not None}
    complete = len(given) == len(call.keywords)  # no ** arguments
    unexpected, missing = _UNEXPECTED.fullmatch(text), _MISSING.fullmatch(text)
    if unexpected is not None and unexpected["name"] not in cls.__struct_fields__:
        found = construction_error(cls, given if complete else {unexpected["name"]: None}, error)
    elif (text == _POSITIONAL and call.args) or (
        missing is not None and complete and missing["name"] in set(required_fields(cls)) - given.keys()
    ):
        found = construction_error(cls, given, error)
    else:  # a struct made by a default factory
        return
    error.args = found.args


def _call_at(trace: TracebackType) -> ast.Call | None:
    """Return the call that a frame was executing when it failed, from its source."""
    frame = trace.tb_frame
    line, end_line, column, end_column = next(itertools.islice(frame.f_code.co_positions(), trace.tb_lasti // 2, None), (None,) * 4)
    if line is None or end_line is None or column is None or end_column is None:
        return None
    lines = [linecache.getline(frame.f_code.co_filename, one, frame.f_globals).encode() for one in range(line, end_line + 1)]
    lines[-1] = lines[-1][:end_column]  # the end first, because one line may be both the first and the last
    lines[0] = lines[0][column:]
    try:
        found = ast.parse(b"(" + b"".join(lines) + b"\n)", mode="eval").body
    except SyntaxError:
        return None
    return found if isinstance(found, ast.Call) else None


def _value_of(node: ast.expr, frame: FrameType) -> object:
    """Return the value of a name, or of an attribute of a module or class, in the frame; None for other expressions."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        base = _value_of(node.value, frame)
        return vars(base).get(node.attr) if isinstance(base, ModuleType | type) else None
    return None
