"""Membership: whether an informer that selects would be sent an object, judged from the object's document alone."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.codec.paths import parse_path
from kubeloop.meta import FieldSelector, Selector, parse_field_selector, parse_label_selector

#: What a server compares where the document has nothing: it prints the zero value of the Go field, which is "" for all other fields.
_ZERO = {
    "spec.hostNetwork": "false",
    "spec.unschedulable": "false",
    "status.replicas": "0",
}
#: Names that are no path into the document. Source: pkg/registry/*/strategy.go and pkg/apis/*/v1/conversion.go of Kubernetes.
_COMPUTED = frozenset({"source", "status.successful", "status.podIP", "status.podIPs"})


class Membership:
    """The selectors of one informer.

    Guarantees
        ``of`` answers for labels as the server does, and for fields too where it answers at all.
    """

    def __init__(self, labels: str | None, field_selector: str | None) -> None:
        """Selectors as ``Scope`` has them: canonical texts, None for everything."""
        self._labels: Selector | None = parse_label_selector(labels) if labels else None
        self._fields: FieldSelector | None = parse_field_selector(field_selector) if field_selector else None

    def of(self, document: bytes) -> bool | None:
        """Whether it is selected; None if only the server can tell: a field that is computed, or not a plain value of the document."""
        if self._labels is None and self._fields is None:
            return True
        tree: Any = msgspec.json.decode(document)
        if self._labels is not None and not self._labels.matches(_labels(tree)):
            return False
        return True if self._fields is None else _selected(self._fields, tree)


def _labels(tree: Any) -> dict[str, str]:
    labels = tree.get("metadata", {}).get("labels") or {}
    return {name: value or "" for name, value in labels.items()}


def _selected(selector: FieldSelector, tree: Any) -> bool | None:
    unknown = False
    for term in selector.terms:
        value = _text(tree, term.field)
        if value is None:
            unknown = True
        elif not term.matches({term.field: value}):
            return False  # whatever the fields that cannot be told
    return None if unknown else True


def _text(tree: Any, field: str) -> str | None:
    """What a server compares a field selector's value with; None if the document does not say it."""
    path = parse_path(field)
    # Fields of another version of the kind, as Event has them, are not in this document at all; that does not make them empty.
    if field in _COMPUTED or (path[0] not in tree and path[0] not in ("spec", "status")):
        return None
    value = tree
    for segment in path:
        if value is None:
            break
        if not isinstance(value, dict):
            return None
        value = value.get(segment)
    if value is None:
        return _ZERO.get(field, "")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None
