"""From text to syntax tree: read, macros expanded, what is wrong told in cel-go's words, which clients of Kubernetes see."""

from __future__ import annotations

from typing import Final

from kubeloop.cel.depth import MOST_LEVELS, is_too_deep
from kubeloop.cel.faults import CompileError, Issue, render
from kubeloop.cel.macros import expand
from kubeloop.cel.reading import TooDeep, read
from kubeloop.cel.syntax import Parsed
from kubeloop.cel.syntax_words import syntax_words
from kubeloop.cel.unexpected import NotCel

_MOST_CHARACTERS: Final = 100_000
_NOWHERE: Final = "ERROR: <input>:-1:0: "


def parse(source: str, *, bindings: bool = False) -> Parsed:
    """The syntax tree of an expression, every macro that Kubernetes knows expanded; ``cel.bind`` where there are ``bindings``.

    Raises:
        CompileError: the text is no expression.
    """
    text = _clean(source)
    if len(text) > _MOST_CHARACTERS:
        raise CompileError(f"{_NOWHERE}expression code point size exceeds limit: size: {len(text)}, limit {_MOST_CHARACTERS}")
    try:
        parsed, issues = read(text)
    except TooDeep:
        raise CompileError(f"{_NOWHERE}expression recursion limit exceeded: {MOST_LEVELS}") from None
    except NotCel as fault:
        raise CompileError(syntax_words(text) or _rendered(text, fault.issues)) from None
    if is_too_deep(parsed.root):
        raise CompileError(f"{_NOWHERE}max recursion depth exceeded")
    expand(parsed, issues, bindings=bindings)
    return parsed


def _rendered(text: str, issues: list[Issue]) -> str:
    shown = render(text, issues)
    # Where cel-go sees the end of nothing.
    return shown if text else shown.replace("<input>:1:1:", "<input>:1:0:")


def _clean(source: str) -> str:
    """Without halves of surrogate pairs, which are no characters."""
    return source.encode("utf-8", "replace").decode()
