"""Hides what secrets hold: their values never reach a terminal, a pipe or a file, only that they changed."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]

MASK = "***"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Hidden:
    """A value that can be compared but not read: any text made of it is ``***``."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hidden) and bool(self._value == other._value)

    def __hash__(self) -> int:
        return hash(str(self._value))

    def __repr__(self) -> str:
        return MASK


def masked(tree: JSON) -> JSON:
    """The same object; of a Secret the values, and the copy of them that ``kubectl apply`` leaves in an annotation, are ``Hidden``."""
    if (tree.get("apiVersion"), tree.get("kind")) != ("v1", "Secret"):
        return tree
    tree = dict(tree)
    for name in ("data", "stringData"):
        if name in tree:
            values = tree[name]
            tree[name] = {key: Hidden(value) for key, value in values.items()} if isinstance(values, dict) else Hidden(values)
    metadata = tree.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and isinstance(annotations, dict) and _LAST_APPLIED in annotations:
        hidden = {**annotations, _LAST_APPLIED: Hidden(annotations[_LAST_APPLIED])}
        tree["metadata"] = {**metadata, "annotations": hidden}
    return tree


def plain(value: Any) -> Any:
    """What an encoder may see: ``***`` in place of each hidden value."""
    if isinstance(value, Hidden):
        return MASK
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value
