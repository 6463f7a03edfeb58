"""Parses CEL source into a syntax tree. Source: the CEL specification, "Syntax"; messages are cel-go's."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from kubeloop.cel.depth import MOST_LEVELS, is_too_deep
from kubeloop.cel.faults import CompileError, Issue, render
from kubeloop.cel.macros import expand
from kubeloop.cel.reading import TooDeep, read
from kubeloop.cel.syntax import Parsed
from kubeloop.cel.syntax_errors import NO_IDENTIFIER, SyntaxErrorReport

# Syntax errors in cel-go's words, if the library ``cel-expr-python`` is installed, whose grammar has the same source.
#
# Only messages depend on it: usual mistakes read the same without it; for a text with several mistakes, some may be left out.


_AROUND: Final = re.compile(r"\A(?:INVALID_ARGUMENT|CANCELLED): | {1,2}\[(?:INVALID_ARGUMENT|CANCELLED)\]\Z")
#: cel-go prints an unknown line as -1, the library as an unsigned number.
_UNKNOWN_LINE: Final = "<input>:4294967295:"
#: Faults that the two word differently.
_WORDS: Final = (
    (re.compile(r"(?<=\n)ERROR: <input>:-1:0: <<nil>> parsetree\Z"), ""),
    (re.compile(r"(?:all|exists|exists_one|existsOne)\(\) variable name must be a simple identifier"), "argument must be a simple name"),
    (re.compile(r"(?:map|filter)\(\) variable name must be a simple identifier"), "argument is not an identifier"),
    (re.compile(r"has\(\) argument must be a field selection"), "invalid argument to has() macro"),
    (re.compile(r"'\\u003F'"), "'?'"),
    (re.compile(r"no viable alternative at input '.(true|false|null)'"), r"mismatched input '\1' expecting IDENTIFIER"),
)
#: No name follows ``.?``: cel-go reports it twice.
_NO_FIELD: Final = re.compile(
    r"(ERROR: (<input>:\d+:\d+:) Syntax error: mismatched input '[^\n]*' expecting \{IDENTIFIER, ESC_IDENTIFIER\}(\n \| .*\n \| .*))"
)


@cache
def _parser() -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional
    except ImportError:
        return None
    return cel.NewEnv(extensions=[ext_optional.ExtOptional()])


def syntax_words(source: str) -> str:
    """Return cel-go's message for a text with syntax errors; empty if it is not available."""
    parser = _parser()
    if parser is None:
        return ""
    try:
        parser.compile(source, disable_check=True)
    except RuntimeError as exc:
        text = _AROUND.sub("", str(exc)).replace(_UNKNOWN_LINE, "<input>:-1:")
    else:
        return ""
    if "recursion" in text:
        return ""  # the library stops at 32 levels, so its message is not about the text
    if not source:
        text = text.replace("<input>:1:1:", "<input>:1:0:")  # as cel-go reports an empty text
    for theirs, ours in _WORDS:
        text = theirs.sub(ours, text)
    return _NO_FIELD.sub(rf"\1\nERROR: \2 {NO_IDENTIFIER}\3", text).rstrip("\n")


_MOST_CHARACTERS: Final = 100_000
_NOWHERE: Final = "ERROR: <input>:-1:0: "


def parse(source: str, *, bindings: bool = False) -> Parsed:
    """Return the syntax tree of an expression with all of Kubernetes' macros expanded; ``cel.bind`` only with ``bindings``.

    Raises:
        CompileError: the text is not an expression.
    """
    text = _clean(source)
    if len(text) > _MOST_CHARACTERS:
        raise CompileError(f"{_NOWHERE}expression code point size exceeds limit: size: {len(text)}, limit {_MOST_CHARACTERS}")
    try:
        parsed, issues = read(text)
    except TooDeep:
        raise CompileError(f"{_NOWHERE}expression recursion limit exceeded: {MOST_LEVELS}") from None
    except SyntaxErrorReport as fault:
        raise CompileError(syntax_words(text) or _rendered(text, fault.issues)) from None
    if is_too_deep(parsed.root):
        raise CompileError(f"{_NOWHERE}max recursion depth exceeded")
    expand(parsed, issues, bindings=bindings)
    return parsed


def _rendered(text: str, issues: list[Issue]) -> str:
    shown = render(text, issues)
    # As cel-go reports an empty text.
    return shown if text else shown.replace("<input>:1:1:", "<input>:1:0:")


def _clean(source: str) -> str:
    """Remove lone halves of surrogate pairs, which are not characters."""
    return source.encode("utf-8", "replace").decode()
