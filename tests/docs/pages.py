"""Documentation pages as programs: the Python blocks of a page run one after the other and share their names, as in a notebook.

What stands before a block, in a comment that readers do not see, says what is done with it::

    <!-- block: compiled -->     it is only compiled: it shows a part of a program, or needs a node
    <!-- block: file NAME -->    it is written to a file of that name, in the folder where the page runs

A page may begin with blocks of its own that readers do not see: ``<!-- setup`` ... ``-->``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PART = re.compile(
    r"<!-- setup\n(?P<setup>.*?)-->|(?:<!-- block: (?P<use>[^>]*?) -->\s*)?^```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """``use``: "run", "compiled" or "file NAME". ``line`` is where its code begins in the page, counted from 1."""

    code: str
    use: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """Raises ValueError: a comment asks for something else."""
    for found in _PART.finditer(text):
        group = "setup" if found["code"] is None else "code"
        use = found["use"] or "run"
        line = text.count("\n", 0, found.start(group)) + 1
        if use not in ("run", "compiled") and not use.startswith("file "):
            raise ValueError(f"line {line}: no block is used as {use!r}; write compiled or file NAME")
        yield Block(found[group], use, line)
