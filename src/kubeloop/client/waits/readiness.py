"""Readiness of objects, kind by kind, and the progress of rollouts in kubectl's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kubeloop.client.waits.trees import below, condition_of, describe_condition, is_outdated, number, status_of
from kubeloop.meta import WaitFailed
from kubeloop.types import JSONObject

# The progress of rollouts of Deployments, StatefulSets and DaemonSets, in kubectl's words.
#
# Source: kubectl rollout status (pkg/polymorphichelpers/rollout_status.go).


class Rollout(NamedTuple):
    """The progress of a rollout. ``text`` is the line that kubectl prints."""

    text: str
    done: bool


def rollout_of(tree: JSONObject) -> Rollout:
    """Return the progress of an object's rollout.

    Raises:
        WaitFailed: The rollout exceeded its progress deadline. ValueError: the kind, or its update strategy, has no rollouts.
    """
    kind = str(tree.get("kind", ""))
    read = _ROLLOUT_KINDS.get(kind)
    if read is None:
        raise ValueError(f"a {kind} has no rollout to wait for; {', '.join(_ROLLOUT_KINDS)} have")
    return read(tree, str(below(tree, "metadata").get("name", "")))


def has_rollout(tree: JSONObject) -> bool:
    """Return whether ``rollout_of`` supports the object: its kind has rollouts, and they do not wait for a user who deletes pods."""
    kind = tree.get("kind")
    return kind in _ROLLOUT_KINDS and (kind == "Deployment" or _strategy(tree) == "RollingUpdate")


def _observed(tree: JSONObject) -> bool:
    return number(below(tree, "metadata"), "generation") <= number(below(tree, "status"), "observedGeneration")


def _strategy(tree: JSONObject) -> str:
    return str(below(tree, "spec", "updateStrategy").get("type") or "RollingUpdate")


def _deployment(tree: JSONObject, name: str) -> Rollout:
    if not _observed(tree):
        return Rollout("Waiting for deployment spec update to be observed...", False)
    status = below(tree, "status")
    progressing = condition_of(tree, "Progressing")
    if progressing is not None and progressing.get("reason") == "ProgressDeadlineExceeded":
        raise WaitFailed(f'deployment "{name}" exceeded its progress deadline')
    wanted = number(below(tree, "spec"), "replicas", -1)
    updated, there, available = (number(status, field) for field in ("updatedReplicas", "replicas", "availableReplicas"))
    waiting = f'Waiting for deployment "{name}" rollout to finish: '
    if updated < wanted:
        return Rollout(f"{waiting}{updated} out of {wanted} new replicas have been updated...", False)
    if there > updated:
        return Rollout(f"{waiting}{there - updated} old replicas are pending termination...", False)
    if available < updated:
        return Rollout(f"{waiting}{available} of {updated} updated replicas are available...", False)
    return Rollout(f'deployment "{name}" successfully rolled out', True)


def _daemon_set(tree: JSONObject, name: str) -> Rollout:
    _only_rolling(tree)
    if not _observed(tree):
        return Rollout("Waiting for daemon set spec update to be observed...", False)
    status = below(tree, "status")
    wanted, updated, available = (
        number(status, field) for field in ("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable")
    )
    waiting = f'Waiting for daemon set "{name}" rollout to finish: '
    if updated < wanted:
        return Rollout(f"{waiting}{updated} out of {wanted} new pods have been updated...", False)
    if available < wanted:
        return Rollout(f"{waiting}{available} of {wanted} updated pods are available...", False)
    return Rollout(f'daemon set "{name}" successfully rolled out', True)


def _stateful_set(tree: JSONObject, _: str) -> Rollout:
    _only_rolling(tree)
    spec, status = below(tree, "spec"), below(tree, "status")
    if not number(status, "observedGeneration") or not _observed(tree):
        return Rollout("Waiting for statefulset spec update to be observed...", False)
    wanted = number(spec, "replicas", -1)
    ready, updated = number(status, "readyReplicas"), number(status, "updatedReplicas")
    if ready < wanted:
        return Rollout(f"Waiting for {wanted - ready} pods to be ready...", False)
    if isinstance(below(spec, "updateStrategy").get("rollingUpdate"), dict):
        partition = number(below(spec, "updateStrategy", "rollingUpdate"), "partition", -1)
        if wanted >= 0 and partition >= 0 and updated < wanted - partition:
            text = f"Waiting for partitioned roll out to finish: {updated} out of {wanted - partition} new pods have been updated..."
            return Rollout(text, False)
        return Rollout(f"partitioned roll out complete: {updated} new pods have been updated...", True)
    revision = status.get("updateRevision")
    if revision != status.get("currentRevision"):
        return Rollout(f"waiting for statefulset rolling update to complete {updated} pods at revision {revision}...", False)
    current = number(status, "currentReplicas")
    return Rollout(f"statefulset rolling update complete {current} pods at revision {status.get('currentRevision') or ''}...", True)


def _only_rolling(tree: JSONObject) -> None:
    if _strategy(tree) != "RollingUpdate":
        raise ValueError("rollout status is only available for RollingUpdate strategy type")


_ROLLOUT_KINDS: dict[str, Callable[[JSONObject, str], Rollout]] = {
    "Deployment": _deployment,
    "DaemonSet": _daemon_set,
    "StatefulSet": _stateful_set,
}


def is_ready(tree: JSONObject) -> bool:
    """Return whether the object is ready.

    Raises:
        WaitFailed: The object has failed and cannot become ready without a change.
    """
    return not missing_for_readiness(tree)


def missing_for_readiness(tree: JSONObject) -> str:
    """Return the reason why an object is not ready, as text, or an empty text if it is ready.

    Raises:
        WaitFailed: See ``is_ready``.
    """
    if below(tree, "metadata").get("deletionTimestamp"):
        return "it is being deleted"
    if has_rollout(tree):
        rollout = rollout_of(tree)
        return "" if rollout.done else rollout.text
    return _READINESS_KINDS.get(str(tree.get("kind", "")), _by_conditions)(tree)


def _by_conditions(tree: JSONObject) -> str:
    if is_outdated(tree):
        return "its controller has not seen the newest spec"
    for name in ("Ready", "Available"):
        if below(tree, "status") and (state := status_of(tree, name)):
            return "" if state == "True" else describe_condition(tree, name)
    return ""


def _condition(name: str) -> Callable[[JSONObject], str]:
    return lambda tree: "" if status_of(tree, name) == "True" else describe_condition(tree, name)


def _phase(*good: str, failed: str = "") -> Callable[[JSONObject], str]:
    def missing(tree: JSONObject) -> str:
        phase = below(tree, "status").get("phase")
        if failed and phase == failed:
            raise WaitFailed(f"{_named(tree)} is {failed}: {below(tree, 'status').get('message') or 'it gave no reason'}")
        return "" if phase in good else f"its phase is {phase or 'not known yet'}"

    return missing


def _pod(tree: JSONObject) -> str:
    status = below(tree, "status")
    if status.get("phase") == "Failed":
        raise WaitFailed(f"{_named(tree)} failed: {status.get('message') or status.get('reason') or 'see the states of its containers'}")
    return "" if status.get("phase") == "Succeeded" else _condition("Ready")(tree)


def _job(tree: JSONObject) -> str:
    if status_of(tree, "Failed") == "True":
        raise WaitFailed(f"{_named(tree)} failed: {describe_condition(tree, 'Failed')}")
    return _condition("Complete")(tree)


def _replicas(tree: JSONObject) -> str:
    if is_outdated(tree):
        return "its controller has not seen the newest spec"
    wanted, ready = number(below(tree, "spec"), "replicas", 1), number(below(tree, "status"), "readyReplicas")
    return "" if ready >= wanted else f"{ready} of {wanted} replicas are ready"


def _daemons(tree: JSONObject) -> str:
    if is_outdated(tree):
        return "its controller has not seen the newest spec"
    status = below(tree, "status")
    wanted, ready = number(status, "desiredNumberScheduled"), number(status, "numberReady")
    return "" if ready >= wanted else f"{ready} of {wanted} pods are ready"


def _service(tree: JSONObject) -> str:
    waits = below(tree, "spec").get("type") == "LoadBalancer" and not below(tree, "status", "loadBalancer").get("ingress")
    return "its load balancer has no address yet" if waits else ""


def _definition(tree: JSONObject) -> str:
    if status_of(tree, "NamesAccepted") == "False":
        raise WaitFailed(f"{_named(tree)}: {describe_condition(tree, 'NamesAccepted')}")
    return _condition("Established")(tree)


def _signing_request(tree: JSONObject) -> str:
    for name in ("Denied", "Failed"):
        if status_of(tree, name) == "True":
            raise WaitFailed(f"{_named(tree)}: {describe_condition(tree, name)}")
    if below(tree, "status").get("certificate"):
        return ""
    return "its signer has issued no certificate yet" if status_of(tree, "Approved") == "True" else "it is not approved yet"


def _named(tree: JSONObject) -> str:
    return f'{tree.get("kind")} "{below(tree, "metadata").get("name")}"'


_READINESS_KINDS: dict[str, Callable[[JSONObject], str]] = {
    "Pod": _pod,
    "Job": _job,
    "StatefulSet": _replicas,
    "ReplicaSet": _replicas,
    "ReplicationController": _replicas,
    "DaemonSet": _daemons,
    "Service": _service,
    "Node": _condition("Ready"),
    "Namespace": _phase("Active"),
    "PersistentVolume": _phase("Available", "Bound", failed="Failed"),
    "PersistentVolumeClaim": _phase("Bound", failed="Lost"),
    "CustomResourceDefinition": _definition,
    "APIService": _condition("Available"),
    "CertificateSigningRequest": _signing_request,
}
