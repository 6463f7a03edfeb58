"""Syntax errors in cel-go's words, where the library ``cel-expr-python`` is installed, which has its grammar from the same source.

Nothing else depends on it: usual mistakes read the same without it, of a text with several some may go unmentioned.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from kubeloop.cel.unexpected import NO_IDENTIFIER

_AROUND: Final = re.compile(r"\A(?:INVALID_ARGUMENT|CANCELLED): | {1,2}\[(?:INVALID_ARGUMENT|CANCELLED)\]\Z")
#: Where cel-go prints an unknown line as -1, the library prints it as an unsigned number.
_UNKNOWN_LINE: Final = "<input>:4294967295:"
#: Where the two word a fault differently.
_WORDS: Final = (
    (re.compile(r"(?<=\n)ERROR: <input>:-1:0: <<nil>> parsetree\Z"), ""),
    (re.compile(r"(?:all|exists|exists_one|existsOne)\(\) variable name must be a simple identifier"), "argument must be a simple name"),
    (re.compile(r"(?:map|filter)\(\) variable name must be a simple identifier"), "argument is not an identifier"),
    (re.compile(r"has\(\) argument must be a field selection"), "invalid argument to has() macro"),
    (re.compile(r"'\\u003F'"), "'?'"),
    (re.compile(r"no viable alternative at input '.(true|false|null)'"), r"mismatched input '\1' expecting IDENTIFIER"),
)
#: Behind ``.?`` stands no name: cel-go mentions it twice.
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
    """What cel-go says of a text that is no expression; empty where that cannot be known."""
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
        return ""  # it ends at 32 levels, so what it says is not about the text
    if not source:
        text = text.replace("<input>:1:1:", "<input>:1:0:")  # where cel-go sees the end of nothing
    for theirs, ours in _WORDS:
        text = theirs.sub(ours, text)
    return _NO_FIELD.sub(rf"\1\nERROR: \2 {NO_IDENTIFIER}\3", text).rstrip("\n")
