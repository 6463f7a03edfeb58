"""What "ready" means, kind by kind: an object that does what it was made for. Kinds that are not known here say it by their conditions.

Source: each kind's API reference; for kinds that are not known, the conventions of sigs.k8s.io/cli-utils pkg/kstatus.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.client.waits.rollouts import has_rollout, rollout_of
from kubeloop.client.waits.trees import Tree, below, describe_condition, is_outdated, number, status_of
from kubeloop.meta import WaitFailed


def is_ready(tree: Tree) -> bool:
    """Whether the object is ready.

    Raises:
        WaitFailed: it failed, and nothing but a change of it can help.
    """
    return not what_is_missing(tree)


def what_is_missing(tree: Tree) -> str:
    """What keeps an object from being ready, for a person; "" if nothing does.

    Raises:
        WaitFailed: as ``is_ready``.
    """
    if below(tree, "metadata").get("deletionTimestamp"):
        return "it is being deleted"
    if has_rollout(tree):
        rollout = rollout_of(tree)
        return "" if rollout.done else rollout.text
    return _KINDS.get(str(tree.get("kind", "")), _by_conditions)(tree)


def _by_conditions(tree: Tree) -> str:
    if is_outdated(tree):
        return "its controller has not seen the newest spec"
    for name in ("Ready", "Available"):
        if below(tree, "status") and (state := status_of(tree, name)):
            return "" if state == "True" else describe_condition(tree, name)
    return ""


def _condition(name: str) -> Callable[[Tree], str]:
    return lambda tree: "" if status_of(tree, name) == "True" else describe_condition(tree, name)


def _phase(*good: str, failed: str = "") -> Callable[[Tree], str]:
    def missing(tree: Tree) -> str:
        phase = below(tree, "status").get("phase")
        if failed and phase == failed:
            raise WaitFailed(f"{_named(tree)} is {failed}: {below(tree, 'status').get('message') or 'it gave no reason'}")
        return "" if phase in good else f"its phase is {phase or 'not known yet'}"

    return missing


def _pod(tree: Tree) -> str:
    status = below(tree, "status")
    if status.get("phase") == "Failed":
        raise WaitFailed(f"{_named(tree)} failed: {status.get('message') or status.get('reason') or 'see the states of its containers'}")
    return "" if status.get("phase") == "Succeeded" else _condition("Ready")(tree)


def _job(tree: Tree) -> str:
    if status_of(tree, "Failed") == "True":
        raise WaitFailed(f"{_named(tree)} failed: {describe_condition(tree, 'Failed')}")
    return _condition("Complete")(tree)


def _replicas(tree: Tree) -> str:
    if is_outdated(tree):
        return "its controller has not seen the newest spec"
    wanted, ready = number(below(tree, "spec"), "replicas", 1), number(below(tree, "status"), "readyReplicas")
    return "" if ready >= wanted else f"{ready} of {wanted} replicas are ready"


def _daemons(tree: Tree) -> str:
    if is_outdated(tree):
        return "its controller has not seen the newest spec"
    status = below(tree, "status")
    wanted, ready = number(status, "desiredNumberScheduled"), number(status, "numberReady")
    return "" if ready >= wanted else f"{ready} of {wanted} pods are ready"


def _service(tree: Tree) -> str:
    waits = below(tree, "spec").get("type") == "LoadBalancer" and not below(tree, "status", "loadBalancer").get("ingress")
    return "its load balancer has no address yet" if waits else ""


def _definition(tree: Tree) -> str:
    if status_of(tree, "NamesAccepted") == "False":
        raise WaitFailed(f"{_named(tree)}: {describe_condition(tree, 'NamesAccepted')}")
    return _condition("Established")(tree)


def _signing_request(tree: Tree) -> str:
    for name in ("Denied", "Failed"):
        if status_of(tree, name) == "True":
            raise WaitFailed(f"{_named(tree)}: {describe_condition(tree, name)}")
    if below(tree, "status").get("certificate"):
        return ""
    return "its signer has issued no certificate yet" if status_of(tree, "Approved") == "True" else "nobody has approved it yet"


def _named(tree: Tree) -> str:
    return f'{tree.get("kind")} "{below(tree, "metadata").get("name")}"'


_KINDS: dict[str, Callable[[Tree], str]] = {
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
