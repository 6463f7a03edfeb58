"""Pod templates: comparison, and the short hash in the name of a ReplicaSet.

Templates are JSON trees, not typed structs, so that unknown fields reach the pods.
"""

from __future__ import annotations

import copy
from typing import Any

from kubeloop.controlplane.template_dump import dump_template
from kubeloop.types import JSONObject

HASH_LABEL = "pod-template-hash"
#: No vowels, and no digits that look like letters, so that no words appear (k8s.io/apimachinery pkg/util/rand).
_SAFE = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: JSONObject, collision_count: int | None = None) -> str:
    """Return the hash of a template that upstream's controllers compute, too, so that either takes over the other's ReplicaSets.

    Args:
        template: A pod template as an API server returns it, defaults included.
        collision_count: That of the owner's status; None and 0 are different.
    """
    data = dump_template(template).encode()
    if collision_count is not None:
        data += (collision_count & 0xFFFFFFFF).to_bytes(8, "little")
    digest = 0x811C9DC5
    for byte in data:
        digest = (digest ^ byte) * 0x01000193 & 0xFFFFFFFF
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(digest))


def same_template(left: JSONObject, right: JSONObject) -> bool:
    """Whether two templates, as a server returns them, make the same pods; the hash label is ignored."""
    return bool(_bare(left) == _bare(right))


def with_hash(template: JSONObject, value: str) -> JSONObject:
    """Return a copy with the hash label."""
    labelled = copy.deepcopy(template)
    metadata = labelled.get("metadata") or {}
    metadata["labels"] = {**(metadata.get("labels") or {}), HASH_LABEL: value}
    labelled["metadata"] = metadata
    return labelled


def _bare(template: JSONObject) -> JSONObject:
    metadata = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != HASH_LABEL}
    metadata["labels"] = labels
    bare: JSONObject = _without_nulls({**template, "metadata": metadata})
    return bare


def _without_nulls(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_nulls(value) for key, value in node.items() if value is not None}
    if isinstance(node, list):
        return [_without_nulls(value) for value in node]
    return node
