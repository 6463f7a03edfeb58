"""Sets the defaults of built-in kinds and drops gated fields: functions by Go type, called for every value of that type.

As in upstream's generated defaulters, the rule for probes applies to pods and to all pod templates.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from kubeloop.apiserver.builtin.defaults_core import CORE, Rule, absent, missing
from kubeloop.apiserver.builtin.defaults_others import OTHERS
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema.strict_types import wire_types
from kubeloop.types import JSONObject

# Fields behind feature gates that are off in Kubernetes 1.36: written values are dropped without a warning.
#
# Source: pkg/features/kube_features.go, the ``dropDisabledFields`` of pkg/api/pod and of the strategies.


#: Go type -> fields that are always dropped.
_OFF = {
    "v1.VolumeProjection": ("clusterTrustBundle", "podCertificate"),  # ClusterTrustBundleProjection, PodCertificateRequest
    "v1.LeaseSpec": ("strategy", "preferredHolder"),  # CoordinatedLeaderElection
    "v1.PodSpec": ("schedulingGroup",),  # GenericWorkload
    "v1.DeviceAttribute": ("bools", "ints", "strings", "versions"),  # DRAListTypeAttributes
    "v1.Device": ("nodeAllocatableResourceMappings",),  # DRANodeAllocatableResources
    "v1.JobSpec": ("scheduling",),  # WorkloadWithJob
    "v1.CSIDriverSpec": ("preventPodSchedulingIfMissing",),  # VolumeLimitScaling
    "v1.PodStatus": ("nodeAllocatableResourceClaimStatuses",),  # DRANodeAllocatableResources
    "v1.VolumeMountStatus": ("volumeStatus",),  # ImageVolumeWithDigest
    "v1.NodeSpec": ("configSource",),  # DynamicKubeletConfig, which is gone
    "v1.NodeStatus": ("config",),
}


def _drop(names: tuple[str, ...], value: dict[str, Any]) -> None:
    for name in names:
        value.pop(name, None)


def _drop_stop_signal(container: dict[str, Any]) -> None:
    """Drop the field of the feature gate ContainerStopSignals, and a lifecycle that has no other field."""
    lifecycle = container.get("lifecycle")
    if lifecycle and lifecycle.pop("stopSignal", None) is not None and not lifecycle:
        del container["lifecycle"]


GATED: dict[str, Callable[[Any], None]] = {
    **{kind: partial(_drop, names) for kind, names in _OFF.items()},
    **dict.fromkeys(("v1.Container", "v1.EphemeralContainer", "v1.EphemeralContainerCommon"), _drop_stop_signal),
}


# Defaults of apps and batch. Source: pkg/apis/apps/v1/defaults.go, pkg/apis/batch/v1/defaults.go.


def _deployment(deployment: JSONObject) -> None:
    spec = deployment["spec"]
    missing(replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)(spec)
    strategy = spec.setdefault("strategy", {})
    strategy["type"] = strategy.get("type") or "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        absent(maxUnavailable="25%", maxSurge="25%")(_rolling(strategy))


def _rolling(strategy: JSONObject) -> JSONObject:
    if strategy.get("rollingUpdate") is None:
        strategy["rollingUpdate"] = {}
    rolling: JSONObject = strategy["rollingUpdate"]
    return rolling


def _replica_set(value: JSONObject) -> None:
    value["spec"].setdefault("replicas", 1)


def _daemon_set(value: JSONObject) -> None:
    spec = value["spec"]
    missing(revisionHistoryLimit=10)(spec)
    strategy = spec.setdefault("updateStrategy", {})
    strategy["type"] = strategy.get("type") or "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        absent(maxUnavailable=1, maxSurge=0)(_rolling(strategy))
    # Upstream has a field for the number and writes it as this annotation: conversion of apps/v1 DaemonSet.
    value["metadata"].setdefault("annotations", {}).setdefault("deprecated.daemonset.template.generation", "0")


def _stateful_set(value: JSONObject) -> None:
    spec = value["spec"]
    missing(podManagementPolicy="OrderedReady", replicas=1, revisionHistoryLimit=10)(spec)
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        _rolling(strategy)
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        strategy["rollingUpdate"].setdefault("partition", 0)
    missing(whenDeleted="Retain", whenScaled="Retain")(spec.setdefault("persistentVolumeClaimRetentionPolicy", {}))
    for claim in spec.get("volumeClaimTemplates") or ():
        claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"


def _job(job: JSONObject) -> None:
    _job_spec(job["spec"])
    labels = ((job["spec"].get("template") or {}).get("metadata") or {}).get("labels")
    if labels and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = dict(labels)


def _job_spec(spec: JSONObject) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1)
    replacement = "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed"
    absent(completionMode="NonIndexed", suspend=False, podReplacementPolicy=replacement, manualSelector=False)(spec)


def _cron_job(cron: JSONObject) -> None:
    spec = cron["spec"]
    missing(concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)(spec)


WORKLOADS: dict[str, Rule] = {
    "apps/v1/Deployment": _deployment,
    "apps/v1/ReplicaSet": _replica_set,
    "apps/v1/DaemonSet": _daemon_set,
    "apps/v1/StatefulSet": _stateful_set,
    "batch/v1/Job": _job,
    "batch/v1/CronJob": _cron_job,
    "v1.PodFailurePolicyOnPodConditionsPattern": missing(status="True"),
}


Visit = Callable[[Any], None]

#: Go type (such as ``v1.Probe``) -> function that sets the defaults of such a value.
_RULES: dict[str, Visit] = {**CORE, **WORKLOADS, **OTHERS}


def apply_defaults(obj: JSONObject, gvk: GroupVersionKind) -> None:
    """Set the defaults of an object of a built-in kind, in place.

    Requires
        ``obj`` is the result of ``schema.strict.conform``.
    """
    visit = _visitor_of_kind(gvk)
    if visit is not None:
        visit(obj)


def drop_gated(obj: JSONObject, gvk: GroupVersionKind) -> None:
    """Drop the fields behind closed feature gates, in place."""
    visit = _dropper_of_kind(gvk)
    if visit is not None:
        visit(obj)


@cache
def _visitor_of_kind(gvk: GroupVersionKind) -> Visit | None:
    index = wire_types().kind(gvk)
    if index is None:
        return None
    below = _visitor(index, ())
    rule = _RULES.get("/".join(gvk))
    return _sequence(rule, below)


@cache
def _dropper_of_kind(gvk: GroupVersionKind) -> Visit | None:
    index = wire_types().kind(gvk)
    return None if index is None else _visitor(index, (), gates=True)


def _sequence(first: Visit | None, second: Visit | None) -> Visit | None:
    if first is None or second is None:
        return first or second

    def visit(value: Any) -> None:
        first(value)
        second(value)

    return visit


@cache
def _visitor(index: int, above: tuple[int, ...], *, gates: bool = False) -> Visit | None:
    """Return a function that applies all rules at and below a type, or None if there are none. Recursive types have no rules inside.

    ``gates`` selects the rules of ``GATED`` instead of those for defaults.
    """
    if index in above:
        return None
    kind, path = wire_types().type(index), (*above, index)
    rule = (GATED if gates else _RULES).get(kind.name)
    if kind.category == "pointer":
        return _visitor(kind.element, path, gates=gates)
    if kind.category == "slice":
        return _each(_visitor(kind.element, path, gates=gates))
    if kind.category == "map":
        return _sequence(rule, _values(_visitor(kind.element, path, gates=gates)))
    if kind.category != "struct":
        return None
    fields = [(one.name, visit) for one in kind.fields if (visit := _visitor(one.type, path, gates=gates)) is not None]
    return _sequence(rule, _fields(fields))


def _each(visit: Visit | None) -> Visit | None:
    if visit is None:
        return None

    def each(values: Any) -> None:
        for value in values:
            visit(value)

    return each


def _values(visit: Visit | None) -> Visit | None:
    if visit is None:
        return None

    def each(values: Any) -> None:
        for value in values.values():
            visit(value)

    return each


def _fields(fields: list[tuple[str, Visit]]) -> Visit | None:
    if not fields:
        return None

    def each(obj: Any) -> None:
        for name, visit in fields:
            value = obj.get(name)
            if value is not None:
                visit(value)

    return each
