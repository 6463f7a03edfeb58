"""Scopes of a quota: select the counted pods and claims. Source: pkg/quota/v1/evaluator/core (podMatchesScopeFunc, pvcMatchesScopeFunc)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from kubeloop.meta.quantity import Quantity
from kubeloop.types import JSONObject


class QuotaScope(NamedTuple):
    """One scope of a ResourceQuota: a condition for counting an object. ``operator`` is Exists, DoesNotExist, In or NotIn."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


def scopes_of(quota: JSONObject) -> list[QuotaScope]:
    """Return the scopes of ``quota``. It counts the objects that meet all of them."""
    spec = quota.get("spec") or {}
    selected = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return [
        *(QuotaScope(name) for name in spec.get("scopes") or ()),
        *(QuotaScope(one.get("scopeName", ""), one.get("operator", ""), tuple(one.get("values") or ())) for one in selected),
    ]


def pod_meets(scope: QuotaScope, pod: JSONObject) -> bool:
    spec = pod.get("spec") or {}
    match scope.name:
        case "Terminating":
            return is_terminating(pod)
        case "NotTerminating":
            return not is_terminating(pod)
        case "BestEffort":
            return is_best_effort(spec)
        case "NotBestEffort":
            return not is_best_effort(spec)
        case "PriorityClass":
            name = spec.get("priorityClassName")
            return _selects(scope, {name} if name else set())
        case "CrossNamespacePodAffinity":
            return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _affinity_terms(spec))
    return False


def claim_meets(scope: QuotaScope, claim: JSONObject) -> bool:
    if scope.name != "VolumeAttributesClass":
        return False
    status = claim.get("status") or {}
    names = {
        (claim.get("spec") or {}).get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    }
    return _selects(scope, {name for name in names if name})


def is_terminating(pod: JSONObject) -> bool:
    """Return whether the pod has a deadline (activeDeadlineSeconds)."""
    deadline = (pod.get("spec") or {}).get("activeDeadlineSeconds")
    return deadline is not None and deadline >= 0


def is_best_effort(spec: JSONObject) -> bool:
    """Return whether a pod sets no requests or limits of cpu or memory: at pod level if ``resources`` is set, else in its containers."""
    whole = spec.get("resources")
    parts = [whole] if whole is not None else [one.get("resources") or {} for one in _containers(spec)]
    asked = ((part.get(kind) or {}).get(name) for part in parts for kind in ("requests", "limits") for name in ("cpu", "memory"))
    return not any(text is not None and Quantity(text) > 0 for text in asked)


def _containers(spec: JSONObject) -> Iterator[JSONObject]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _selects(scope: QuotaScope, names: Collection[str]) -> bool:
    """Return whether a scope selects an object that has the values ``names`` for it; one selected value suffices."""
    match scope.operator:
        case "Exists":
            return bool(names)
        case "DoesNotExist":
            return not names
        case "In":
            return any(name in scope.values for name in names)
        case "NotIn":
            return not names or any(name not in scope.values for name in names)
    return False


def _affinity_terms(spec: JSONObject) -> Iterator[JSONObject]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        found = affinity.get(kind) or {}
        yield from found.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in found.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}
