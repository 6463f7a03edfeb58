"""Hides the values of Secrets: they never reach a terminal, a pipe or a file; output shows only that they changed."""

from __future__ import annotations

from typing import Any

from kubeloop.types import JSONObject

MASK = "***"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Hidden:
    """A value that can be compared but not read: its text is always ``***``."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hidden) and bool(self._value == other._value)

    def __hash__(self) -> int:
        return hash(str(self._value))

    def __repr__(self) -> str:
        return MASK


def masked(tree: JSONObject) -> JSONObject:
    """Return the object with ``Hidden`` in place of a Secret's values and of the copy that ``kubectl apply`` stores in an annotation."""
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
    """Return a copy of a value for encoders, with ``***`` in place of each ``Hidden`` value."""
    if isinstance(value, Hidden):
        return MASK
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value
