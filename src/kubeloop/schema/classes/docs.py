"""Finds descriptions in docstrings: of a class, and the string below a field, which only the source file contains."""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from functools import cache
from pathlib import Path


def class_text(cls: type) -> str:
    """Return the docstring of the class itself, one line for each paragraph, or an empty text if it has none."""
    text = cls.__dict__.get("__doc__")
    if not isinstance(text, str):
        return ""
    # The second paragraph of a type of kubeloop.api links to its reference, for people who write Python.
    return paragraphs(text).partition("\n\n")[0] if cls.__module__.startswith("kubeloop.meta.") else paragraphs(text)


def field_texts(cls: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class and its bases, by attribute name; empty without a source file, as in a REPL."""
    result: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        result |= _of_module(base.__module__).get(base.__qualname__, {})
    return result


def paragraphs(text: str) -> str:
    """Convert text to a description: without indentation, the lines of a paragraph joined, paragraphs separated by an empty line."""
    blocks = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(block.split()) for block in blocks if block.strip())


@cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None or not file.endswith(".py") or name.startswith("kubeloop.meta"):
        return {}
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return {}
    result: dict[str, dict[str, str]] = {}
    _collect(tree.body, "", result)
    return result


def _collect(body: list[ast.stmt], prefix: str, field_docs: dict[str, dict[str, str]]) -> None:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            name = prefix + statement.name
            field_docs[name] = _fields(statement.body)
            _collect(statement.body, f"{name}.", field_docs)


def _fields(body: list[ast.stmt]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for statement, after in itertools.pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            texts[statement.target.id] = paragraphs(after.value.value)
    return texts
