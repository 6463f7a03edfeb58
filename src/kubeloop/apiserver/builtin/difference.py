"""A readable difference of two trees for messages that refuse a change; upstream prints Go structures here, with changing blanks."""

from __future__ import annotations

import json
from typing import Any


def difference(name: str, old: Any, new: Any) -> str:
    """Lines with ``-`` and ``+`` for each path whose value differs."""
    lines = [f"  {name}{{"]
    lines += [f"-   {path}: {_shown(before)},\n+   {path}: {_shown(after)}," for path, before, after in _changes("", old, new)]
    return "\n".join([*lines, "  }", ""])


_NOTHING: Any = object()


def _shown(value: Any) -> str:
    return "<unset>" if value is _NOTHING else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _changes(path: str, old: Any, new: Any) -> list[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in [*old, *(key for key in new if key not in old)]:
            before, after = old.get(key, _NOTHING), new.get(key, _NOTHING)
            if before is _NOTHING or after is _NOTHING or before != after:
                found += _changes(f"{path}.{key}" if path else key, before, after)
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [one for at in range(len(old)) if old[at] != new[at] for one in _changes(f"{path}[{at}]", old[at], new[at])]
    return [(path, old, new)]
