"""Regular expressions of users, in a subset that PCRE and Python read alike and that has no character of NGINX's syntax.

An accepted expression has no quote, backslash, brace, semicolon or control character. Escapes become character classes: ``\\d`` is
``[0-9]``. A dollar sign stands only at an end, where it is an anchor and never the beginning of a variable.
"""

from __future__ import annotations

import re

from examples.ingress_nginx.annotations.values import InvalidValue

MAX_EXPRESSION = 512
#: Repetitions without a bound in one expression: each multiplies the time of a match by the length of the text.
MAX_REPETITIONS = 8

_COUNT = re.compile(r"\{[0-9]{1,2}(?:,[0-9]{1,2})?\}")
_LITERAL = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _-/:=,@%&~!<>")
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": " "}
_ESCAPED = frozenset(".*+?|()[]^/-_:=,@%&~! ")
_IN_CLASS = _LITERAL - frozenset("&~<>") | frozenset(".*+?()|")


def expression(value: str, *, counts: bool = False) -> str:
    """Return an equal regular expression in the subset.

    Args:
        value: The expression.
        counts: Allow ``{2}`` and ``{2,5}`` behind a single element, as paths of Ingresses have them. The result then has braces.

    Raises:
        InvalidValue: It is not in the subset.
    """
    if not value or len(value) > MAX_EXPRESSION:
        raise InvalidValue(f"is not a regular expression of 1 to {MAX_EXPRESSION} characters")
    result = _Scanner(value, counts=counts).scan()
    try:
        re.compile(result)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidValue("is not a regular expression; check its parentheses, brackets and repetitions") from error
    return result


class _Scanner:
    """Copies an expression element by element, and refuses elements outside of the subset."""

    def __init__(self, text: str, *, counts: bool) -> None:
        self._text = text
        self._counts = counts
        self._place = 0
        self._copy: list[str] = []
        self._repetitions = 0
        #: For each open group, the number of repetitions in front of it.
        self._groups: list[int] = []

    def scan(self) -> str:
        while character := self._take():
            match character:
                case "\\":
                    self._escape()
                case "[":
                    self._class()
                case "(":
                    self._open()
                case ")":
                    self._close()
                case "*" | "+":
                    self._repetitions += 1
                    self._copy.append(character)
                case "$":
                    if self._peek() not in ("", ")", "|"):
                        raise InvalidValue("has a $ that is not at the end of an alternative; variables are not replaced")
                    self._copy.append(character)
                case "^" | "." | "?" | "|":
                    self._copy.append(character)
                case "{" if self._counts:
                    self._count()
                case "{" | "}":
                    raise InvalidValue("has a brace; write repetitions out, such as [0-9][0-9] for [0-9]{2}")
                case _ if character in _LITERAL:
                    self._copy.append(character)
                case _:
                    raise InvalidValue("has a character that regular expressions here do not have, such as a quote, # or ;")
        if self._repetitions > MAX_REPETITIONS:
            raise InvalidValue(f"has more than {MAX_REPETITIONS} repetitions * or +")
        return "".join(self._copy)

    def _count(self) -> None:
        found = _COUNT.match(self._text, self._place - 1)
        before = self._copy[-1] if self._copy else ""
        if found is None or before in ("", "(", "(?:", ")", "|", "*", "+", "?", "^") or before.startswith("{"):
            raise InvalidValue("has a brace that is no count such as {2} or {2,5}, of at most 99, behind a character or a class")
        self._place = found.end()
        self._copy.append(found[0])

    def _take(self) -> str:
        character = self._peek()
        self._place += 1
        return character

    def _peek(self) -> str:
        return self._text[self._place : self._place + 1]

    def _escape(self) -> None:
        escaped = self._take()
        if escaped in _CLASSES:
            self._copy.append(f"[{_CLASSES[escaped]}]")
        elif escaped == "^":
            raise InvalidValue("has an escaped ^; leave it out")
        elif escaped and escaped in _ESCAPED:
            self._copy.append(f"[{escaped}]" if escaped not in "[]" else _refuse_escape())
        else:
            _refuse_escape()

    def _class(self) -> None:
        self._copy.append("[")
        if self._peek() == "^":
            self._copy.append(self._take())
        start = self._place
        while (character := self._take()) != "]":
            if character == "\\":
                escaped = self._take()
                # An escaped hyphen would begin a range without its backslash.
                literal = escaped if escaped and escaped in _IN_CLASS and escaped != "-" and not escaped.isalnum() else ""
                self._copy.append(_CLASSES.get(escaped) or literal or _refuse_escape())
            elif character and character in _IN_CLASS and not self._text.startswith(("--", "||"), self._place - 1):
                self._copy.append(character)
            else:
                raise InvalidValue("has a class in brackets with a character that classes here do not have, or without an end")
        if self._place - 1 == start:
            raise InvalidValue("has an empty class []")
        self._copy.append("]")

    def _open(self) -> None:
        self._groups.append(self._repetitions)
        self._copy.append("(")
        if self._peek() == "?":
            if not self._text.startswith("?:", self._place):
                raise InvalidValue("has a group that begins with (? and is not (?:; only plain groups are supported")
            self._copy.append("?:")
            self._place += 2

    def _close(self) -> None:
        if not self._groups:
            raise InvalidValue("has a ) without a (")
        self._copy.append(")")
        # (a+)+ takes exponential time, and a worker of NGINX serves other hosts as well.
        if self._groups.pop() < self._repetitions and self._peek() in ("*", "+"):
            raise InvalidValue("repeats a group that has a repetition, such as (a+)+, which can take unlimited time")


def _refuse_escape() -> str:
    raise InvalidValue(r"has an escape other than \d, \w, \s and escaped punctuation")
