"""Python source text: docstrings, literals, calls, and formatting with ruff."""

from __future__ import annotations

import ast
import json
import math
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from kubeloop.schema.classes.docs import paragraphs
from kubeloop.types import JSONValue

Docs = Literal["none", "short", "full"]

_SHORT = 300
_WIDTH = 100


def docstring(description: str, docs: Docs, indent: int) -> list[str]:
    """Return the indented lines of a docstring; none for an empty description.

    With the form ``short``, the text is the first paragraph, cut at a word after 300 characters.
    """
    said = paragraphs(description) if docs != "none" else ""
    if docs == "short":
        said = textwrap.shorten(said.partition("\n\n")[0], _SHORT, placeholder=" ...")
    if not said:
        return []
    space = " " * indent
    escaped = said.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    escaped = "".join(char if char.isprintable() or char == "\n" else " " for char in escaped)
    opening = '""" ' if escaped.startswith('"') else '"""'
    if "\n" not in escaped and len(escaped) <= _WIDTH and not escaped.endswith('"'):
        return [f'{space}{opening}{escaped}"""']
    lines: list[str] = []
    for block in escaped.split("\n\n"):
        lines += ["", *textwrap.wrap(block, _WIDTH, break_long_words=False, break_on_hyphens=False)]
    body = [f"{space}{line}" if line else "" for line in lines[2:]]
    return [f"{space}{opening}{lines[1]}", *body, f'{space}"""']


_LENGTH = 120


def formatted(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files formatted by ruff, in one run; unchanged if ruff is not installed or fails."""
    beside = Path(sys.executable).with_name("ruff")
    ruff = str(beside) if beside.exists() else shutil.which("ruff")
    if ruff is None:
        return dict(files)
    with tempfile.TemporaryDirectory(prefix="kubeloop-") as name:
        folder = Path(name)
        for path, text in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        command = [ruff, "format", "--isolated", "--no-cache", "--quiet", "--line-length", str(_LENGTH), str(folder)]
        if subprocess.run(command, check=False, capture_output=True).returncode:  # noqa: S603 - a formatter, found above
            return dict(files)
        return {path: (folder / path).read_text(encoding="utf-8") for path in files}


def same(left: str, right: str) -> bool:
    """Return whether two modules differ only in format."""
    if left == right:
        return True
    try:
        return ast.dump(ast.parse(left)) == ast.dump(ast.parse(right))
    except SyntaxError:
        return False


def literal(value: JSONValue) -> str:
    """Return source that evaluates to ``value``; texts in double quotes."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text(str(key))}: {literal(one)}" for key, one in value.items()) + "}"
    return "[" + ", ".join(literal(one) for one in value) + "]"


def text(value: str) -> str:
    """Return a string literal in double quotes, or in single ones if that saves escapes; never raw."""
    if '"' in value and "'" not in value:
        inner = json.dumps(value, ensure_ascii=False)[1:-1].replace('\\"', '"')
        return f"'{_printable(inner)}'"
    return f'"{_printable(json.dumps(value, ensure_ascii=False)[1:-1])}"'


def _printable(inner: str) -> str:
    # JSON leaves control characters above 0x7f and separators as they are; Python source should show them.
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in inner)


def call(name: str, *positional: str, **named: JSONValue) -> str:
    """Return ``name(positional..., key=literal...)``; arguments that are None are left out."""
    said = [*positional, *(f"{key}={literal(value)}" for key, value in named.items() if value is not None)]
    return f"{name}({', '.join(said)})"
