"""How far the expansion of a volume has come. Source: ValidatePersistentVolumeClaimStatusUpdate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.quantities import is_native, quantity
from kubeloop.apiserver.validation.formats import each, one_of, unsupported
from kubeloop.meta.field_error import FieldError, invalid
from kubeloop.meta.names import qualified_name

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]

_STAGES = ("ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending")


def claim_status(status: JSONObject) -> Errors:
    for name, amount in (status.get("capacity") or {}).items():
        yield from _amount(f"status.capacity[{name}]", amount)
    path = "status.allocatedResourceStatuses"
    for name, stage in (status.get("allocatedResourceStatuses") or {}).items():
        yield from _resource(path, name)
        if stage not in _STAGES:
            yield unsupported(path, name, sorted(_STAGES))
    path = "status.allocatedResources"
    for name, amount in (status.get("allocatedResources") or {}).items():
        faults = list(_resource(path, name))
        yield from faults or _amount(f"{path}[{name}]", amount)


def _resource(path: str, name: str) -> Errors:
    faults = list(each(path, name, qualified_name(name)))
    yield from faults
    if not faults and is_native(name):
        yield from one_of(path, name, ("storage",))


def _amount(path: str, text: str) -> Errors:
    whole = quantity(text).value()
    if whole < 0:
        yield invalid(path, whole, "must be a valid resource quantity")
