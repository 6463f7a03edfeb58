"""Writes the statuses of GatewayClasses, Gateways and routes where they differ from the present ones. For the leader only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from examples.ingress_nginx.gateway.objects import CONTROLLER_NAME
from examples.ingress_nginx.gateway.reports import ConditionState, GatewayClassReport, GatewayReport, Report, RouteReport
from examples.ingress_nginx.gateway.types import (
    Gateway,
    GatewayClass,
    GatewayClassStatus,
    GatewayStatus,
    GRPCRoute,
    GRPCRouteStatus,
    HTTPRoute,
    HTTPRouteStatus,
)
from kubeloop.client import Client
from kubeloop.controller import StatusWriter
from kubeloop.meta import Conflict, KubeloopError, Model, NotFound, Resource, replace

_logger = logging.getLogger(__name__)

#: Types of conditions that this controller writes; other types in a status are preserved.
_OWN_TYPES = frozenset(
    ("Accepted", "Programmed", "ResolvedRefs", "SupportedVersion", "Conflicted", "OverlappingTLSConfig", "PartiallyInvalid")
)
_STATUS_TYPES: dict[type[Resource], type[Model]] = {
    Gateway: GatewayStatus,
    GatewayClass: GatewayClassStatus,
    HTTPRoute: HTTPRouteStatus,
    GRPCRoute: GRPCRouteStatus,
}
#: A status, or a part of it, as JSON.
Document = dict[str, Any]


class GatewayStatuses:
    """Writes statuses through the status subresource.

    An object that changed since it was read is skipped: its new state reaches the cache, and the next build has its status.

    Args:
        client: Client of the cluster.
        controller_name: Name of this controller in the statuses of routes.
        parallel: Number of requests at a time.
    """

    def __init__(self, client: Client, *, controller_name: str = CONTROLLER_NAME, parallel: int = 10) -> None:
        self._writer = StatusWriter(client)
        self._controller_name = controller_name
        self._parallel = parallel

    async def write(self, reports: Iterable[Report]) -> int:
        """Write the statuses that differ. Return the number of statuses that could not be written, so that the caller tries again."""
        now = datetime.now(UTC)
        changed = [obj for report in reports if (obj := changed_object(report, self._controller_name, now)) is not None]
        slots = asyncio.Semaphore(self._parallel)
        failures = 0

        async def write(obj: Gateway | GatewayClass | HTTPRoute | GRPCRoute) -> None:
            nonlocal failures
            async with slots:
                try:
                    await self._writer.write(obj)
                except NotFound:
                    _logger.debug("%s %s was deleted before its status was written", obj.kind, obj.object_key())
                except Conflict:
                    failures += 1
                    _logger.debug("%s %s changed before its status was written", obj.kind, obj.object_key())
                except KubeloopError as error:
                    failures += 1
                    _logger.warning("the status of %s %s is not written: %s", obj.kind, obj.object_key(), error)

        async with asyncio.TaskGroup() as tasks:
            for obj in changed:
                tasks.create_task(write(obj))
        return failures


def changed_object(report: Report, controller_name: str, now: datetime) -> Gateway | GatewayClass | HTTPRoute | GRPCRoute | None:
    """Return the object with the status of a report, or None if it has that status already."""
    obj = report.object
    present = obj.to_dict().get("status") or {}
    # Typed values are compared: documents may or may not have the default values of fields.
    status = _STATUS_TYPES[type(obj)].from_dict(status_document(report, present, controller_name, now))
    return None if status == obj.status else replace(obj, status=status)


def status_document(report: Report, present: Document, controller_name: str, now: datetime) -> Document:
    """Return the status of a report as JSON.

    Args:
        report: The report.
        present: The present status. Conditions of other types, and other controllers' entries, are preserved.
        controller_name: Name of this controller in the statuses of routes.
        now: Time of conditions that change.
    """
    generation = report.object.metadata.generation or 0
    if isinstance(report, RouteReport):
        return {**present, "parents": _parents(report, present.get("parents", []), controller_name, now)}
    conditions = merged_conditions(present.get("conditions", []), report.conditions, generation, now)
    if isinstance(report, GatewayClassReport):
        features = {"supportedFeatures": [{"name": name} for name in sorted(report.features)]} if report.features else {}
        return {**_without(present, "supportedFeatures"), "conditions": conditions, **features}
    return {
        **_without(present, "addresses", "listeners"),
        "conditions": conditions,
        **({"addresses": [{"type": kind, "value": value} for kind, value in report.addresses]} if report.addresses else {}),
        **({"listeners": _listeners(report, present.get("listeners", []), now)} if report.listeners else {}),
    }


def merged_conditions(present: Iterable[Document], states: Sequence[ConditionState], generation: int, now: datetime) -> list[Document]:
    """Merge conditions into the present ones: their order stays, and the time changes with the status only.

    Args:
        present: The present conditions.
        states: The conditions that this controller sets. Its other conditions are removed.
        generation: Generation of the object that was read.
        now: Time of conditions that change.
    """
    rest = {state.type: state for state in states}
    result = []
    for condition in present:
        state = rest.pop(condition["type"], None)
        if state is not None:
            result.append(_condition(state, condition, generation, now))
        elif condition["type"] not in _OWN_TYPES:
            result.append(condition)
    return result + [_condition(state, None, generation, now) for state in rest.values()]


def _condition(state: ConditionState, present: Document | None, generation: int, now: datetime) -> Document:
    status = "True" if state.holds else "False"
    same = present is not None and present["status"] == status
    time = present["lastTransitionTime"] if same and present is not None else now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": state.type,
        "status": status,
        "reason": state.reason,
        "message": state.message[:32768],
        "observedGeneration": generation,
        "lastTransitionTime": time,
    }


def _listeners(report: GatewayReport, present: Sequence[Document], now: datetime) -> list[Document]:
    known = {entry["name"]: entry.get("conditions", []) for entry in present}
    generation = report.object.metadata.generation or 0
    return [
        {
            "name": listener.name,
            "attachedRoutes": listener.attached_routes,
            "supportedKinds": [{"group": group, "kind": kind} for group, kind in listener.kinds],
            "conditions": merged_conditions(known.get(listener.name, []), listener.conditions, generation, now),
        }
        for listener in report.listeners
    ]


def _parents(report: RouteReport, present: Sequence[Document], controller_name: str, now: datetime) -> list[Document]:
    own = [entry for entry in present if entry.get("controllerName") == controller_name]
    foreign = [entry for entry in present if entry.get("controllerName") != controller_name]
    generation = report.object.metadata.generation or 0
    entries = []
    for parent in report.parents:
        reference = report.object.spec.parent_refs[parent.index].to_dict()
        before: list[Document] = next((entry["conditions"] for entry in own if entry["parentRef"] == reference), [])
        entries.append(
            {
                "parentRef": reference,
                "controllerName": controller_name,
                "conditions": merged_conditions(before, parent.conditions, generation, now),
            }
        )
    return [*foreign, *entries]


def _without(document: Document, *names: str) -> Document:
    return {name: value for name, value in document.items() if name not in names}
