"""What is secret of an object is not shown: values of Secrets, wherever they stand in one, are starred out.

As kubectl diff does it: a value that differs says so without being seen.
"""

from __future__ import annotations

from typing import Any, Final

Tree = dict[str, Any]

_SAME: Final = "***"
#: Annotations that hold the object once more.
_COPIES: Final = ("kubectl.kubernetes.io/last-applied-configuration",)


def redacted(before: Tree | None, after: Tree | None) -> tuple[Tree | None, Tree | None]:
    """Both sides without secret values; other kinds as they are."""
    if (before or after or {}).get("kind") != "Secret":
        return before, after
    values: dict[str, tuple[Any, Any]] = {}
    for field in ("data", "stringData"):
        old, new = _field(before, field), _field(after, field)
        for name in old.keys() | new.keys():
            values[f"{field}.{name}"] = old.get(name), new.get(name)
    return _starred(before, values, 0), _starred(after, values, 1)


def _starred(tree: Tree | None, values: dict[str, tuple[Any, Any]], side: int) -> Tree | None:
    if tree is None:
        return None
    shown = dict(tree)
    for field in ("data", "stringData"):
        if isinstance(tree.get(field), dict):
            shown[field] = {name: _star(values[f"{field}.{name}"], side) for name in tree[field]}
    metadata = tree.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("annotations"), dict):
        annotations = {name: _SAME if name in _COPIES else value for name, value in metadata["annotations"].items()}
        shown["metadata"] = {**metadata, "annotations": annotations}
    return shown


def _star(pair: tuple[Any, Any], side: int) -> str:
    before, after = pair
    if before == after or before is None or after is None:
        return _SAME
    return f"{_SAME} ({'after' if side else 'before'})"


def _field(tree: Tree | None, name: str) -> Tree:
    value = (tree or {}).get(name)
    return value if isinstance(value, dict) else {}
