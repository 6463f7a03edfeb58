"""Documentation pages as programs: the Python blocks of a page run one after the other and share their variables, as in a notebook.

A comment before a block changes its use::

    <!-- block: compiled -->     the block is only compiled: it shows another library, or needs a node; the page says which
    <!-- block: file NAME -->    the block is written to a file of that name, in the folder where the page runs

The fence of a block that needs a node with a kubelet is "python kubelet".
"""

from __future__ import annotations

import ast
import builtins
import dis
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"(?:<!-- block: (?P<use>[^>]*?) -->\s*)?^```python(?: (?P<fence>kubelet))?\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
_BUILTINS = set(dir(builtins))
_READS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}


@dataclass(frozen=True)
class Block:
    """``use``: "run", "compiled", "kubelet" or "file NAME". ``line`` is the line of the page where the code begins, counted from 1."""

    code: str
    use: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """The Python blocks of a page, in order.

    Raises:
        ValueError: A comment names a use that does not exist.
    """
    for match in _BLOCK.finditer(text):
        use = match["use"] or match["fence"] or "run"
        line = text.count("\n", 0, match.start("code")) + 1
        if use not in ("run", "compiled", "kubelet") and not use.startswith("file "):
            raise ValueError(f"line {line}: no block is used as {use!r}; write compiled or file NAME")
        yield Block(match["code"], use, line)


def compile_block(block: Block, name: str = "page") -> CodeType:
    """Compiles a block with top-level ``await``. Its lines are those of the page, so that a traceback shows the place in the page."""
    code = "\n" * (block.line - 1) + block.code
    compiled: CodeType = compile(code, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return compiled


def unexplained_names(page: Iterable[Block]) -> list[str]:
    """The names, each as "line 3: name", that neither their block imports or assigns nor an earlier block assigns.

    An import of an earlier block does not count, so that a reader can copy a block without searching the page for its imports.
    """
    assigned: set[str] = set()
    unexplained = []
    for block in page:
        code = compile_block(block)
        tree = ast.parse(block.code)
        imported = {
            (each.asname or each.name).partition(".")[0]
            for statement in ast.walk(tree)
            if isinstance(statement, ast.Import | ast.ImportFrom)
            for each in statement.names
        }
        stored = _stored(code)
        known = _BUILTINS | imported | stored | (set() if block.use.startswith("file ") else assigned)
        unexplained += [f"line {block.line}: {name}" for name in sorted(_read(code) - known)]
        if not block.use.startswith("file "):
            assigned |= stored - imported
    return unexplained


def _stored(code: CodeType) -> set[str]:
    """The names that the outermost level of a block or of a class body assigns."""
    return {str(each.argval) for each in dis.get_instructions(code) if each.opname in ("STORE_NAME", "STORE_GLOBAL")}


def _read(code: CodeType) -> set[str]:
    """The names that a block reads from its module, in its functions and classes too."""
    names = {str(each.argval) for each in dis.get_instructions(code) if each.opname in _READS} - _stored(code)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= _read(inner)
    return {name for name in names if not name.startswith("__")}
