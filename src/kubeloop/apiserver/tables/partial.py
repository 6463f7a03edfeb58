"""PartialObjectMetadata: an object of any kind with nothing but its metadata. Source: meta.k8s.io/v1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

JSONObject = dict[str, Any]

API_VERSION = "meta.k8s.io/v1"


def partial_object(obj: JSONObject) -> JSONObject:
    """Shares the metadata of ``obj``."""
    return {"kind": "PartialObjectMetadata", "apiVersion": API_VERSION, "metadata": obj["metadata"]}


def partial_list(objects: Iterable[JSONObject], metadata: JSONObject) -> JSONObject:
    """``metadata`` is the list's. Without objects ``items`` is null, as Go's nil slice is."""
    items = [partial_object(obj) for obj in objects]
    kept = {name: value for name, value in metadata.items() if value not in ("", None)}
    return {"kind": "PartialObjectMetadataList", "apiVersion": API_VERSION, "metadata": kept, "items": items or None}
