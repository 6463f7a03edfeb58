"""Defaults of apps and batch. Source: pkg/apis/apps/v1/defaults.go, pkg/apis/batch/v1/defaults.go."""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver.builtin.defaults_core import Rule, absent, missing

JSONObject = dict[str, Any]


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


def _replica_set(found: JSONObject) -> None:
    found["spec"].setdefault("replicas", 1)


def _daemon_set(found: JSONObject) -> None:
    spec = found["spec"]
    missing(revisionHistoryLimit=10)(spec)
    strategy = spec.setdefault("updateStrategy", {})
    strategy["type"] = strategy.get("type") or "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        absent(maxUnavailable=1, maxSurge=0)(_rolling(strategy))
    # Upstream keeps the number in a field of its own and writes it as this annotation: conversion of apps/v1 DaemonSet.
    found["metadata"].setdefault("annotations", {}).setdefault("deprecated.daemonset.template.generation", "0")


def _stateful_set(found: JSONObject) -> None:
    spec = found["spec"]
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
