"""matchLabelKeys and mismatchLabelKeys become expressions of the selector when a pod is created.

Source: mutatePodAffinity, mutateTopologySpreadConstraints.
"""

from __future__ import annotations

from kubeloop.apiserver.builtin.pods.options import JSONObject


def apply_label_keys(found: JSONObject) -> None:
    labels = found["metadata"].get("labels") or {}
    affinity = found["spec"].get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(kind) or {}
        for weighted in pods.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            _apply(weighted.get("podAffinityTerm") or {}, labels)
        for term in pods.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            _apply(term, labels)
    for constraint in found["spec"].get("topologySpreadConstraints") or ():
        _apply(constraint, labels)


def _apply(term: JSONObject, labels: dict[str, str]) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(name) or ():
            if key in labels:
                expressions = selector.setdefault("matchExpressions", [])
                expressions.append({"key": key, "operator": operator, "values": [labels[key]]})
