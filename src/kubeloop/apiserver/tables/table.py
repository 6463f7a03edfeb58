"""Table answers (meta.k8s.io/v1 Table) for any resource. Source: Kubernetes API concepts "Receiving resources as Tables"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kubeloop.apiserver.encoding import sorted_keys
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.tables.autoscaling import AUTOSCALING
from kubeloop.apiserver.tables.core import CORE
from kubeloop.apiserver.tables.groups import GROUPS
from kubeloop.apiserver.tables.layout import PLAIN, Layout
from kubeloop.apiserver.tables.partial import API_VERSION, partial_object
from kubeloop.apiserver.tables.pods import PODS
from kubeloop.apiserver.tables.workloads import WORKLOADS

JSONObject = dict[str, Any]

#: Values of the query parameter ``includeObject``; empty means Metadata.
INCLUDE_OBJECT: Final = ("", "None", "Metadata", "Object")

#: By which a watch says that all that was there has been sent, also to who wants no objects.
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

#: What upstream serves without a converter to tables, besides all that can only be created.
_NEVER: Final = frozenset(
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


def has_tables(resource: ServedResource, subresource: str) -> bool:
    """Whether clients may ask for tables of it."""
    if resource.custom:
        return True
    return (resource.gvr.resource, subresource) not in _NEVER and resource.verbs != ("create",)


#: Column definitions and rows.
_Parts = tuple[list[JSONObject], list[JSONObject] | None]

_LAYOUTS: Final[dict[str, Layout]] = {"pods": PODS, **CORE, **WORKLOADS, **AUTOSCALING, **GROUPS}


def table(
    resource: ServedResource,
    objects: Iterable[JSONObject],
    metadata: JSONObject,
    *,
    now: float,
    include: str = "",
    headers: bool = True,
) -> JSONObject:
    """Rows for ``objects``, which stay as they are and are shared by the answer.

    ``metadata`` is that of the list, or of the one object; ``now`` in seconds since the epoch; ``include`` one of ``INCLUDE_OBJECT``.
    ``headers`` False leaves the column definitions out, as a watch does after its first event.
    """
    definitions, rows = (_custom if resource.custom else _builtin)(resource, objects, now, include)
    kept = {name: metadata[name] for name in ("resourceVersion", "continue", "remainingItemCount") if metadata.get(name)}
    return {
        "kind": "Table",
        "apiVersion": API_VERSION,
        "metadata": kept,
        "columnDefinitions": definitions if headers else None,
        "rows": rows,
    }


def _builtin(resource: ServedResource, objects: Iterable[JSONObject], now: float, include: str) -> _Parts:
    layout = _LAYOUTS.get(str(resource.gvr.group_resource), PLAIN)
    if layout.order is not None:
        objects = sorted(objects, key=layout.order)
    rows = [_row(layout.cells(obj, now), obj, include, layout.conditions(obj)) for obj in objects]
    # As upstream: Go's nil slice where the default columns meet no object.
    return [header.definition() for header in layout.headers], None if layout is PLAIN and not rows else rows


def _custom(resource: ServedResource, objects: Iterable[JSONObject], now: float, include: str) -> _Parts:
    definitions = [
        {"name": one.name, "type": one.type, "format": one.format, "description": one.description, "priority": one.priority}
        for one in resource.columns
    ]
    rows = [_row([column.value(obj, now) for column in resource.columns], obj, include, None) for obj in objects]
    if include == "Object":
        for row in rows:
            row["object"] = sorted_keys(row["object"])
    return definitions, rows


def _row(cells: list[Any], obj: JSONObject, include: str, conditions: list[JSONObject] | None) -> JSONObject:
    row: JSONObject = {"cells": cells}
    if conditions:
        row["conditions"] = conditions
    if include == "None" and (obj["metadata"].get("annotations") or {}).get(_INITIAL_EVENTS_END) != "true":
        row["object"] = None
    else:
        row["object"] = obj if include == "Object" else partial_object(obj)
    return row
