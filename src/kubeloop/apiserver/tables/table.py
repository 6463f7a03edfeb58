"""Table answers (meta.k8s.io/v1 Table) for any resource. Source: Kubernetes API concepts "Receiving resources as Tables"."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from kubeloop.apiserver.registry.object_meta import in_declared_order
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.request.encoding import sorted_keys
from kubeloop.apiserver.tables.core import CORE
from kubeloop.apiserver.tables.groups import GROUPS
from kubeloop.apiserver.tables.layout import PLAIN, Layout, age_of, layout, name_of, part
from kubeloop.apiserver.tables.pods import PODS
from kubeloop.apiserver.tables.workloads import WORKLOADS
from kubeloop.types import JSONObject

# PartialObjectMetadata: an object of any kind with nothing but its metadata. Source: meta.k8s.io/v1.


API_VERSION = "meta.k8s.io/v1"

#: Annotations by which a version tells what it has no fields for. Upstream makes them while it encodes the version, and takes the metadata
#: alone before that: so they are not in it.
_MADE_BY_VERSION = {
    ("apps/v1", "DaemonSet"): {"deprecated.daemonset.template.generation"},
    ("autoscaling/v1", "HorizontalPodAutoscaler"): {
        f"autoscaling.alpha.kubernetes.io/{name}" for name in ("metrics", "current-metrics", "conditions", "behavior")
    },
}


def partial_object(obj: JSONObject) -> JSONObject:
    """The metadata of ``obj``, in the order in which its Go type declares it. Its values are shared."""
    metadata, made = obj["metadata"], _MADE_BY_VERSION.get((obj.get("apiVersion", ""), obj.get("kind", "")))
    if made and (annotations := metadata.get("annotations")):
        metadata = {name: value for name, value in metadata.items() if name != "annotations"}
        if kept := {name: value for name, value in annotations.items() if name not in made}:
            metadata["annotations"] = kept
    return {"kind": "PartialObjectMetadata", "apiVersion": API_VERSION, "metadata": in_declared_order(metadata)}


def partial_list(objects: Iterable[JSONObject], metadata: JSONObject) -> JSONObject:
    """``metadata`` is the list's. Without objects ``items`` is null, as Go's nil slice is."""
    items = [partial_object(obj) for obj in objects]
    kept = {name: value for name, value in metadata.items() if value not in ("", None)}
    return {"kind": "PartialObjectMetadataList", "apiVersion": API_VERSION, "metadata": kept, "items": items or None}


# The Table of horizontal pod autoscalers: current and wanted values of their metrics.
#
# Source: kubernetes pkg/printers/internalversion formatHPAMetrics.


_FIELDS: Final = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_V1: Final = "autoscaling.alpha.kubernetes.io/"
_UNKNOWN: Final = "<unknown>"


def _cells(obj: JSONObject, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    target, least = part(spec, "scaleTargetRef"), spec.get("minReplicas")
    return [
        name_of(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(*_of_either_version(obj)),
        "<unset>" if least is None else str(least),
        spec.get("maxReplicas") or 0,
        status.get("currentReplicas") or 0,
        age_of(obj, now),
    ]


def _of_either_version(obj: JSONObject) -> tuple[list[JSONObject], list[JSONObject]]:
    """Wanted and current metrics; autoscaling/v1 has a field for CPU, and annotations for all others."""
    spec, status = part(obj, "spec"), part(obj, "status")
    annotations = obj["metadata"].get("annotations") or {}
    return (
        spec.get("metrics") or _of_v1(spec.get("targetCPUUtilizationPercentage"), "target", annotations.get(f"{_V1}metrics")),
        status.get("currentMetrics")
        or _of_v1(status.get("currentCPUUtilizationPercentage"), "current", annotations.get(f"{_V1}current-metrics")),
    )


def _of_v1(percentage: int | None, below: str, annotation: str | None) -> list[JSONObject]:
    found: list[JSONObject] = []
    if percentage is not None:
        found.append({"type": "Resource", "resource": {"name": "cpu", below: {"averageUtilization": percentage}}})
    try:
        others = json.loads(annotation or "[]")
    except ValueError:
        return found
    for other in others if isinstance(others, list) else []:
        field = _FIELDS.get(other.get("type", ""), "")
        source = dict(part(other, field))
        source[below] = {
            name: source.get(f"{below}{name[:1].upper()}{name[1:]}") for name in ("averageValue", "averageUtilization", "value")
        }
        source[below] = {name: value for name, value in source[below].items() if value is not None}
        found.append({"type": other.get("type", ""), field: source})
    return found


def _metrics(wanted: list[JSONObject], current: list[JSONObject]) -> str:
    if not wanted:
        return "<none>"
    texts = [_metric(one, current[at] if at < len(current) else {}) for at, one in enumerate(wanted)]
    shown = ", ".join(texts[:2])
    return f"{shown} + {len(texts) - 2} more..." if len(texts) > 2 else shown


def _metric(wanted: JSONObject, current: JSONObject) -> str:
    field = _FIELDS.get(wanted.get("type", ""))
    if field is None:
        return "<unknown type>"
    source, target = part(wanted, field), part(wanted, field, "target")
    now = part(current, field, "current")
    if field in ("resource", "containerResource"):
        name = source.get("name", "")
        if target.get("averageValue") is not None:
            return f"{name}: {now.get('averageValue', _UNKNOWN)}/{target['averageValue']}"
        used, limit = now.get("averageUtilization"), target.get("averageUtilization")
        shown = _UNKNOWN if used is None else f"{used}%"
        return f"{name}: {shown}/{'<auto>' if limit is None else f'{limit}%'}"
    if field == "pods":
        return f"{now.get('averageValue', _UNKNOWN)}/{target.get('averageValue', '0')}"
    if target.get("averageValue") is not None:
        return f"{now.get('averageValue', _UNKNOWN)}/{target['averageValue']} (avg)"
    return f"{now.get('value', _UNKNOWN)}/{target.get('value', '0')}"


AUTOSCALING: Final[dict[str, Layout]] = {
    "horizontalpodautoscalers.autoscaling": layout("Name | Reference | Targets | MinPods | MaxPods | Replicas | Age", _cells),
}


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
