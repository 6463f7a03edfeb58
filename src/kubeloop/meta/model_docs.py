"""The documentation of models that have no docstring: made when ``help()`` or an editor asks for it, so that it costs nothing before.

Generated models have a stub beside their module, which says all that the schemas say of a field. Of other models the class says it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec


def doc_of(cls: type[msgspec.Struct]) -> str:
    """A line for the class, and for each field its name, its type and what else is known of it."""
    stub = _stub_of(cls)
    head = (ast.get_docstring(stub) if stub is not None else None) or f"{cls.__name__}."
    said = dict(_said_in(stub)) if stub is not None else {}
    entries = [
        f"    {info.name}: {said[info.name][0]}\n        {said[info.name][1]}" if info.name in said else _of_field(info)
        for info in msgspec.structs.fields(cls)
        if not info.name.startswith("_")
    ]
    return "\n".join([head, "", "Fields:", *entries]) if entries else head


def _stub_of(cls: type[msgspec.Struct]) -> ast.ClassDef | None:
    """The class in the stub beside its module; None if there is no stub."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    stub = Path(file).with_suffix(".pyi") if file else None
    try:
        text = stub.read_text("utf-8") if stub is not None else ""
    except OSError:  # most models have none
        return None
    return next((node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == cls.__name__), None)


def _said_in(stub: ast.ClassDef) -> Iterator[tuple[str, tuple[str, str]]]:
    """Name, type and docstring of each field."""
    for field, below in zip(stub.body, stub.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            yield field.target.id, (ast.unparse(field.annotation), below.value.value)


def _of_field(info: msgspec.structs.FieldInfo) -> str:
    need = "required" if info.required else "optional"
    default: Any = info.default
    if default is not msgspec.NODEFAULT and default is not msgspec.UNSET and default not in ("", None):
        need += f"; {default!r} if absent"
    return f"    {info.name}: {_type_text(info.type)}\n        Wire name ``{info.encode_name}``, {need}."


def _type_text(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    return inspect.cleandoc(text).replace("typing.", "")
