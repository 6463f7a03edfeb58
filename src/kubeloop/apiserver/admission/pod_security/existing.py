"""What is told when a namespace gets a stricter level than its pods keep to: which pods, by what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.apiserver.admission.pod_security.evaluation import findings
from kubeloop.apiserver.admission.pod_security.findings import JSONObject, Pod
from kubeloop.apiserver.admission.pod_security.levels import Level

#: Pods of a namespace that are looked at, as upstream's.
MOST_PODS = 3000


def warnings_about(namespace: str, level: Level, pods: Iterable[JSONObject]) -> list[str]:
    """Empty when all keep to ``level``. Source: k8s.io/pod-security-admission admission/admission.go, EvaluatePodsInNamespace."""
    ordered = _prioritized(pods)
    by_reason: dict[str, list[str]] = {}
    for pod in ordered[:MOST_PODS]:
        reason = ", ".join(one.reason for one in findings(level, Pod(pod["metadata"], pod["spec"])))
        if reason:
            by_reason.setdefault(reason, []).append(pod["metadata"]["name"])
    told = []
    if len(ordered) > MOST_PODS:
        told.append(f"new PodSecurity enforce level only checked against the first {MOST_PODS} of {len(ordered)} existing pods")
    if by_reason:
        told.append(f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{level}"')
    return told + sorted(_about(names, reason) for reason, names in by_reason.items())


def _prioritized(pods: Iterable[JSONObject]) -> list[JSONObject]:
    """One pod of each controller before their twins: these are most likely alike."""
    first: list[JSONObject] = []
    twins: list[JSONObject] = []
    met: set[str] = set()
    for pod in pods:
        owner = next((one["uid"] for one in pod["metadata"].get("ownerReferences") or () if one.get("controller")), None)
        (twins if owner in met else first).append(pod)
        if owner is not None:
            met.add(owner)
    return first + twins


def _about(names: list[str], reason: str) -> str:
    others = len(names) - 1
    more = "" if not others else f" (and {others} other pod{'s' if others > 1 else ''})"
    return f"{min(names)}{more}: {reason}"
