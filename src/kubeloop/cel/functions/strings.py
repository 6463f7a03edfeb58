"""Extended string functions: slicing, searching, replacing, formatting; and searching by regular expression.

Source: cel-go ext/strings (version 2), k8s.io/apiserver pkg/cel/library/regex. Positions count code points.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from kubeloop.cel.faults import EvalError
from kubeloop.cel.functions.formatting import format_text
from kubeloop.cel.overloads import function, member
from kubeloop.schema.go_regex import PatternError
from kubeloop.schema.patterns import GoPattern, go_pattern


def compiled(pattern: str) -> GoPattern:
    """Return a compiled regular expression in Go's syntax.

    Raises:
        EvalError: The pattern is not valid in Go's syntax; the message is Go's.
    """
    try:
        return go_pattern(pattern)
    except PatternError as exc:
        raise EvalError(str(exc)) from None


_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
#: Go's unicode.IsSpace.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


@member("charAt", "string, int -> string", "string_char_at_int")
def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvalError(f"index out of range: {index}")
    return text[index : index + 1]


@member("indexOf", "string, string -> int", "string_index_of_string")
@member("indexOf", "string, string, int -> int", "string_index_of_string_int")
def _index_of(text: str, part: str, start: int = 0) -> int:
    if part == "":
        return start
    if start < 0:
        raise EvalError(f"index out of range: {start}")
    return text.find(part, start)


@member("lastIndexOf", "string, string -> int", "string_last_index_of_string")
def _last_index_of(text: str, part: str) -> int:
    return len(text) if part == "" else text.rfind(part)


@member("lastIndexOf", "string, string, int -> int", "string_last_index_of_string_int")
def _last_index_of_before(text: str, part: str, last: int) -> int:
    if part == "":
        return last
    if last < 0:
        raise EvalError(f"index out of range: {last}")
    return text.rfind(part, 0, last + len(part)) if last < len(text) else -1


member("lowerAscii", "string -> string", "string_lower_ascii")(lambda text: text.translate(_LOWER))
member("upperAscii", "string -> string", "string_upper_ascii")(lambda text: text.translate(_UPPER))
member("trim", "string -> string", "string_trim")(lambda text: text.strip(_SPACE))
member("replace", "string, string, string -> string", "string_replace_string_string")(lambda text, old, new: text.replace(old, new))
member("replace", "string, string, string, int -> string", "string_replace_string_string_int")(
    lambda text, old, new, limit: text.replace(old, new, limit if limit >= 0 else -1)
)


@member("split", "string, string -> list(string)", "string_split_string")
@member("split", "string, string, int -> list(string)", "string_split_string_int")
def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    if limit < 0 or limit >= len(text):
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


@member("substring", "string, int -> string", "string_substring_int")
def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise EvalError(f"index out of range: {start}")
    return text[start:]


@member("substring", "string, int, int -> string", "string_substring_int_int")
def _substring_to(text: str, start: int, end: int) -> str:
    if start > end:
        raise EvalError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise EvalError(f"index out of range: {index}")
    return text[start:end]


@member("join", "list(string) -> string", "list_join")
@member("join", "list(string), string -> string", "list_join_string")
def _join(items: list[Any], separator: str = "") -> str:
    if not all(isinstance(item, str) for item in items):
        raise EvalError("no such overload")
    return separator.join(items)


member("format", "string, list(dyn) -> string", "string_format")(format_text)

_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'}


@function("strings.quote", "string -> string", "strings_quote")
def _quote(text: str) -> str:
    return f'"{"".join(_QUOTED.get(one, one) for one in text)}"'


def _found(text: str, pattern: str) -> Iterator[str]:
    try:
        return compiled(pattern).matches(text)
    except EvalError as exc:
        raise EvalError(f"Illegal regex: {exc}") from None


@member("find", "string, string -> string", "string_find_string")
def _find(text: str, pattern: str) -> str:
    return next(_found(text, pattern), "")


@member("findAll", "string, string -> list(string)", "string_find_all_string")
@member("findAll", "string, string, int -> list(string)", "string_find_all_string_int")
def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = _found(text, pattern)
    return list(found if limit < 0 else islice(found, limit))
