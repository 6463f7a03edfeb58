"""Regular expressions in Go's syntax, run so that no text can make one take exponential time.

A pattern in which at most one character or class repeats is run by Python's ``re``; any other by RE2, which comes with the parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from kubeloop.cel.faults import EvalError
from kubeloop.schema.regular import PatternError, compile_go

_REPEATS: Final = re.compile(r"(?<!\\)(?:\\\\)*[*+{]")
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")


@lru_cache(maxsize=1024)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text has a match of the pattern anywhere.

    Raises:
        EvalError: not in Go's syntax, in Go's words.
    """
    compiled = compiled_go(pattern)
    if len(_REPEATS.findall(pattern)) <= 1 and not _REPEATED_GROUP.search(pattern):
        return lambda text: compiled.search(text) is not None
    from cel_expr_python import cel

    types = {"text": cel.Type.STRING, "pattern": cel.Type.STRING}
    program = cel.NewEnv(variables=types).compile("text.matches(pattern)")

    def linear(text: str) -> bool:
        found = program.eval(data={"text": text, "pattern": pattern}).plain_value()
        # RE2 refuses the few patterns that need more memory than it may take.
        return found if isinstance(found, bool) else compiled.search(text) is not None

    return linear


def compiled_go(pattern: str) -> re.Pattern[str]:
    """
    Raises:
        EvalError: not in Go's syntax, in Go's words.
    """
    try:
        return compile_go(pattern)
    except PatternError as exc:
        raise EvalError(str(exc)) from None
