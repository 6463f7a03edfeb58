"""Differences as lines of styled spans; printers decide whether styles become colours. Control characters are escaped."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

import msgspec

from kubeloop.cli.watch_view.diff import ABSENT, FieldDifference
from kubeloop.codec.redact_secrets import Hidden, plain

#: Text and the name of its style ("" for none): "added", "removed", "path", "dim" ...
Span = tuple[str, str]
Line = list[Span]

#: Maximum length of a value in characters; the rest is counted.
WIDTH = 100
#: Maximum number of lines shown of a changed text.
TEXT_LINES = 8
#: Texts with more lines are not compared line by line, because it would take seconds.
COMPARED_LINES = 2000


def lines(change: FieldDifference, width: int = WIDTH) -> Iterator[Line]:
    """Format one difference: one line, or for a text of many lines its changed lines below."""
    path: Span = (f"{visible(change.path)}: ", "path")
    before, after = change.before, change.after
    if change.order:
        yield [path, ("order ", "dim"), (_names(before), "removed"), (" -> ", "dim"), (_names(after), "added")]
    elif before is ABSENT:
        yield [path, (f"+ {shown(after, width)}", "added")]
    elif after is ABSENT:
        yield [path, (f"- {shown(before, width)}", "removed")]
    elif isinstance(before, Hidden) and isinstance(after, Hidden):
        yield [path, ("*** changed", "changed")]
    elif isinstance(before, str) and isinstance(after, str) and ("\n" in before or "\n" in after):
        yield from _texts(path, before, after, width)
    else:
        yield [path, (shown(before, width), "removed"), (" -> ", "dim"), (shown(after, width), "added")]


def shown(value: Any, width: int = WIDTH) -> str:
    """Format a value on one line: plain text where that is unambiguous, everything else as JSON; cut off at ``width`` characters."""
    if isinstance(value, Hidden):
        return repr(value)
    if _is_condition(value):
        # State and reason: the relevant part of a condition among its timestamps.
        reason = ": ".join(str(value[name]) for name in ("reason", "message") if value.get(name))
        text = f"{value['status']} ({reason})" if reason else str(value["status"])
    elif isinstance(value, str) and value and value == value.strip() and value not in ("null", "true", "false"):
        text = value
    else:
        text = msgspec.json.encode(plain(value)).decode()
    text = visible(text)
    return text if len(text) <= width else f"{text[:width]}… ({len(text)} characters)"


def _is_condition(value: Any) -> bool:
    """Return whether a value looks like a condition.

    Source: k8s.io/apimachinery pkg/apis/meta/v1 (Condition), whose shape the conditions of older kinds share.
    """
    return isinstance(value, dict) and value.get("status") in ("True", "False", "Unknown") and isinstance(value.get("type"), str)


def visible(text: str) -> str:
    """Escape everything that a terminal would execute instead of showing it."""
    return text if text.isprintable() else "".join(one if one.isprintable() else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


def _names(names: list[str]) -> str:
    return visible(", ".join(names))


def _texts(path: Span, before: str, after: str, width: int) -> Iterator[Line]:
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > COMPARED_LINES:
        yield [path, (f"{len(old)} lines", "removed"), (" -> ", "dim"), (f"{len(new)} lines", "added")]
        return
    found: list[Line] = []
    removed = added = 0
    for tag, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            found += [[(f"  - {_cut(line, width)}", "removed")] for line in old[i:j]]
            found += [[(f"  + {_cut(line, width)}", "added")] for line in new[k:m]]
            removed, added = removed + j - i, added + m - k
    if not found:  # only line endings differ
        yield [path, (shown(before, width), "removed"), (" -> ", "dim"), (shown(after, width), "added")]
        return
    yield [path, (f"-{removed} +{added} lines", "changed")]
    yield from found[:TEXT_LINES]
    if len(found) > TEXT_LINES:
        yield [(f"  … {len(found) - TEXT_LINES} more", "dim")]


def _cut(line: str, width: int) -> str:
    line = visible(line)
    return line if len(line) <= width else f"{line[:width]}…"
