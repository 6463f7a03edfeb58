"""Converts descriptions to docstrings: bounded, wrapped, and safe for any text."""

from __future__ import annotations

import textwrap
from typing import Literal

from kubeloop.schema.classes.docs import paragraphs

Docs = Literal["none", "short", "full"]

_SHORT = 300
_WIDTH = 100


def docstring(description: str, docs: Docs, indent: int) -> list[str]:
    """Return the lines of a docstring, indented; none for an empty description. ``short`` is the first paragraph, cut at a word after 300
    characters.
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
