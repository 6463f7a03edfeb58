"""The documentation of models: built when ``help()`` or an editor requests it, so that it costs nothing before.

Generated models have a stub beside their module, with the schema's facts about each field. Hand-written models have a string below
each field in their module. A model with neither has only the text of its class.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

_FACTS = "Wire name "


def doc_of(cls: type[msgspec.Struct], docstring: str | None = None) -> str:
    """Return the text of the class, and name, type and documentation of each field.

    Args:
        cls: A model.
        docstring: The docstring of the class. It stands alone if there is no text below any field.
    """
    stub, *_ = nodes = [_node_of(base) for base in cls.__mro__ if issubclass(base, msgspec.Struct)]
    texts = {name: text for node in reversed(nodes) if node is not None for name, text in _field_texts(node)}
    head = docstring or (ast.get_docstring(stub) if stub is not None else None) or f"{cls.__name__}."
    fields = [info for info in msgspec.structs.fields(cls) if not info.name.startswith("_")]
    if not fields or (docstring is not None and not (stub is not None and any(_field_texts(stub)))):
        return head
    return "\n".join([inspect.cleandoc(head), "", "Fields:", *(_entry(info, texts.get(info.name)) for info in fields)])


def _entry(info: msgspec.structs.FieldInfo, known: tuple[str, str] | None) -> str:
    facts = _of_field(info)
    if known is None:
        return facts
    annotation, text = known
    first, second = facts.splitlines()
    return f"    {info.name}: {annotation}\n        {text}" if text.startswith(_FACTS) else f"{first}\n{second} {text}"


def _node_of(cls: type[msgspec.Struct]) -> ast.ClassDef | None:
    """Return the class in the stub beside its module, or else in the module; None without a source."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return _classes_of(file).get(cls.__name__) if file and file.endswith(".py") else None


@lru_cache(4)
def _classes_of(file: str) -> dict[str, ast.ClassDef]:
    stub = Path(file).with_suffix(".pyi")
    try:
        text = (stub if stub.exists() else Path(file)).read_text("utf-8")
    except OSError:  # the module is in an archive
        return {}
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}


def _field_texts(node: ast.ClassDef) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield name, type and docstring of each field."""
    for field, below in zip(node.body, node.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            yield field.target.id, (ast.unparse(field.annotation), " ".join(below.value.value.split()))


def _of_field(info: msgspec.structs.FieldInfo) -> str:
    need = "required" if info.required else "optional"
    default: Any = info.default
    if default is not msgspec.NODEFAULT and default is not msgspec.UNSET and default not in ("", None):
        need += f"; {default!r} if absent"
    return f"    {info.name}: {_type_text(info.type)}\n        Wire name ``{info.encode_name}``, {need}."


def _type_text(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    return inspect.cleandoc(text).replace("typing.", "")
