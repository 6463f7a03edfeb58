"""Table responses (meta.k8s.io/v1 Table) for any resource. Source: Kubernetes API concepts "Receiving resources as Tables"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kubeloop.endpoints.encoding import in_declared_order, sorted_keys
from kubeloop.endpoints.tables.core import CORE
from kubeloop.endpoints.tables.groups import GROUPS
from kubeloop.endpoints.tables.layout import PLAIN, Layout, TableColumn
from kubeloop.endpoints.tables.workloads import AUTOSCALING, PODS, WORKLOADS
from kubeloop.meta.kinds import GroupResource
from kubeloop.types import JSONObject

# PartialObjectMetadata: an object of any kind, reduced to its metadata. Source: meta.k8s.io/v1.


API_VERSION = "meta.k8s.io/v1"

#: Annotations for values that have no field in a version. Upstream adds them when it encodes an object in the version, which it does not
#: do for metadata alone.
_MADE_BY_VERSION = {
    ("apps/v1", "DaemonSet"): {"deprecated.daemonset.template.generation"},
    ("autoscaling/v1", "HorizontalPodAutoscaler"): {
        f"autoscaling.alpha.kubernetes.io/{name}" for name in ("metrics", "current-metrics", "conditions", "behavior")
    },
}


def partial_object(obj: JSONObject) -> JSONObject:
    """Return an object as PartialObjectMetadata, with fields in the order of the Go type. Values are not copied."""
    metadata, made = obj["metadata"], _MADE_BY_VERSION.get((obj.get("apiVersion", ""), obj.get("kind", "")))
    if made and (annotations := metadata.get("annotations")):
        metadata = {name: value for name, value in metadata.items() if name != "annotations"}
        if others := {name: value for name, value in annotations.items() if name not in made}:
            metadata["annotations"] = others
    return {"kind": "PartialObjectMetadata", "apiVersion": API_VERSION, "metadata": in_declared_order(metadata)}


def partial_list(objects: Iterable[JSONObject], metadata: JSONObject) -> JSONObject:
    """Return a PartialObjectMetadataList with the list's ``metadata``. Without objects, ``items`` is null, as Go encodes a nil slice."""
    items = [partial_object(obj) for obj in objects]
    list_metadata = {name: value for name, value in metadata.items() if value not in ("", None)}
    return {"kind": "PartialObjectMetadataList", "apiVersion": API_VERSION, "metadata": list_metadata, "items": items or None}


#: Values of the query parameter ``includeObject``; empty means Metadata.
INCLUDE_OBJECT: Final = ("", "None", "Metadata", "Object")

#: Annotation of the bookmark that ends a watch's initial events. Its object is sent also to a client that asks for no objects.
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

#: Subresources for which upstream has no tables, besides create-only resources.
_WITHOUT_TABLES: Final = frozenset(
    {
        ("certificatesigningrequests", "approval"),
        ("resourceclaims", "status"),
        ("apiservices", "status"),
        ("namespaces", "finalize"),
        ("pods", "ephemeralcontainers"),
        ("pods", "resize"),
        ("pods", "eviction"),
        ("pods", "binding"),
    }
)


def has_tables(resource: str, subresource: str, verbs: Sequence[str]) -> bool:
    """Return whether an API server returns a built-in resource as Tables. It does so for all custom resources.

    Args:
        resource: The name of the resource in paths, such as ``pods``.
        subresource: The subresource. Empty: the resource itself.
        verbs: The verbs of the resource, as discovery lists them.
    """
    return (resource, subresource) not in _WITHOUT_TABLES and tuple(verbs) != ("create",)


#: TableColumn definitions and rows.
_Parts = tuple[list[JSONObject], list[JSONObject] | None]

_LAYOUTS: Final[dict[str, Layout]] = {"pods": PODS, **CORE, **WORKLOADS, **AUTOSCALING, **GROUPS}


def table(
    resource: GroupResource,
    objects: Iterable[JSONObject],
    metadata: JSONObject,
    *,
    now: float,
    columns: Sequence[TableColumn] | None = None,
    include: str = "",
    headers: bool = True,
) -> JSONObject:
    """Return a Table with a row for each object. The rows refer to the objects, which are neither copied nor changed.

    Args:
        resource: The resource of the objects; built-in resources have the columns of a kube-apiserver.
        objects: The JSON trees of the objects.
        metadata: The metadata of the list, or of the only object.
        now: Seconds since the epoch, for ages.
        columns: The columns of a custom resource. None: the resource is built in.
        include: The part of the object that a row contains, one of ``INCLUDE_OBJECT``.
        headers: Whether the Table has column definitions. In a watch only the first event has them.
    """
    if columns is None:
        definitions, rows = _builtin(resource, objects, now, include)
    else:
        definitions, rows = _custom(columns, objects, now, include)
    list_metadata = {name: metadata[name] for name in ("resourceVersion", "continue", "remainingItemCount") if metadata.get(name)}
    return {
        "kind": "Table",
        "apiVersion": API_VERSION,
        "metadata": list_metadata,
        "columnDefinitions": definitions if headers else None,
        "rows": rows,
    }


def _builtin(resource: GroupResource, objects: Iterable[JSONObject], now: float, include: str) -> _Parts:
    layout = _LAYOUTS.get(str(resource), PLAIN)
    if layout.order is not None:
        objects = sorted(objects, key=layout.order)
    rows = [_row(layout.cells(obj, now), obj, include, layout.conditions(obj)) for obj in objects]
    # As upstream: Go's nil slice where the default columns meet no object.
    return [header.definition() for header in layout.headers], None if layout is PLAIN and not rows else rows


def _custom(columns: Sequence[TableColumn], objects: Iterable[JSONObject], now: float, include: str) -> _Parts:
    rows = [_row([column.value(obj, now) for column in columns], obj, include, None) for obj in objects]
    if include == "Object":
        for row in rows:
            row["object"] = sorted_keys(row["object"])
    return [column.definition() for column in columns], rows


def _row(cells: list[Any], obj: JSONObject, include: str, conditions: list[JSONObject] | None) -> JSONObject:
    row: JSONObject = {"cells": cells}
    if conditions:
        row["conditions"] = conditions
    if include == "None" and (obj["metadata"].get("annotations") or {}).get(_INITIAL_EVENTS_END) != "true":
        row["object"] = None
    else:
        row["object"] = obj if include == "Object" else partial_object(obj)
    return row
