"""How far a rollout is, in kubectl's words: of Deployments, StatefulSets and DaemonSets.

Source: kubectl rollout status (pkg/polymorphichelpers/rollout_status.go).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kubeloop.client.waits.trees import Tree, below, condition_of, number
from kubeloop.meta import WaitFailed


class Rollout(NamedTuple):
    """``text`` is the line that kubectl prints."""

    text: str
    done: bool


def rollout_of(tree: Tree) -> Rollout:
    """Where the rollout of an object stands.

    Raises:
        WaitFailed: it exceeded its progress deadline. ValueError: its kind has no rollouts, or its update strategy none to watch.
    """
    kind = str(tree.get("kind", ""))
    read = _KINDS.get(kind)
    if read is None:
        raise ValueError(f"a {kind} has no rollout to wait for; {', '.join(_KINDS)} have")
    return read(tree, str(below(tree, "metadata").get("name", "")))


def has_rollout(tree: Tree) -> bool:
    """Whether ``rollout_of`` can say something: the kind has rollouts, and they do not wait for somebody to delete pods."""
    kind = tree.get("kind")
    return kind in _KINDS and (kind == "Deployment" or _strategy(tree) == "RollingUpdate")


def _observed(tree: Tree) -> bool:
    return number(below(tree, "metadata"), "generation") <= number(below(tree, "status"), "observedGeneration")


def _strategy(tree: Tree) -> str:
    return str(below(tree, "spec", "updateStrategy").get("type") or "RollingUpdate")


def _deployment(tree: Tree, name: str) -> Rollout:
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


def _daemon_set(tree: Tree, name: str) -> Rollout:
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


def _stateful_set(tree: Tree, _: str) -> Rollout:
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


def _only_rolling(tree: Tree) -> None:
    if _strategy(tree) != "RollingUpdate":
        raise ValueError("rollout status is only available for RollingUpdate strategy type")


_KINDS: dict[str, Callable[[Tree, str], Rollout]] = {
    "Deployment": _deployment,
    "DaemonSet": _daemon_set,
    "StatefulSet": _stateful_set,
}
