"""Computes a pod's usage of a quota. Source: pkg/quota/v1/evaluator/core/pods.go; k8s.io/component-helpers resource/helpers.go."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from kubeloop.meta.names import qualified_name
from kubeloop.meta.time import parse_time
from kubeloop.quota.amounts import ONE, Amounts, amounts_of, larger, plus
from kubeloop.types import JSONObject

_PLAIN = ("cpu", "memory", "ephemeral-storage")
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
POD_NAMES = frozenset({"count/pods", "pods", *_PLAIN, *(f"requests.{name}" for name in _PLAIN), *(f"limits.{name}" for name in _PLAIN)})
#: Resources that each container must specify where a quota limits them.
_MUST_SAY = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})


def is_pod_name(name: str) -> bool:
    """Return whether pods use the quota resource ``name``."""
    if name in POD_NAMES or name.startswith(("hugepages-", "requests.hugepages-")):
        return True
    if not name.startswith("requests."):
        return False
    return ("/" in name and "kubernetes.io/" not in name) or name.startswith(f"requests.{_DEVICE_CLASS}")


def unsaid(names: list[str], pod: JSONObject) -> str:
    """Return a message with the resources that containers must specify and do not; empty if they specify all."""
    spec = pod.get("spec") or {}
    if _has_pod_level(spec):
        return ""
    lacking: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        said = _usage(amounts_of(resources.get("requests")), amounts_of(resources.get("limits")))
        for name in _MUST_SAY.intersection(names).difference(said):
            lacking.setdefault(name, set()).add(container["name"])
    if not lacking:
        return ""
    return "must specify " + "; ".join(f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))


def pod_usage(pod: JSONObject, now: datetime) -> Amounts:
    """Return a pod's usage. A pod that has ended, or whose deletion grace period is over at ``now``, uses only ``count/pods``."""
    counted = {"count/pods": ONE}
    if not _is_alive(pod, now):
        return counted
    return plus(counted, _usage(_needs(pod, "requests"), _needs(pod, "limits")))


def pod_requests(pod: JSONObject) -> Amounts:
    """Return the requests of a whole pod: its pod-level requests if set, else the requests of its containers; plus overhead."""
    return _needs(pod, "requests")


def _is_alive(pod: JSONObject, now: datetime) -> bool:
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return False
    deleted, grace = pod["metadata"].get("deletionTimestamp"), pod["metadata"].get("deletionGracePeriodSeconds")
    return deleted is None or grace is None or now <= parse_time(deleted) + timedelta(seconds=grace)


def _usage(requests: Amounts, limits: Amounts) -> Amounts:
    result: Amounts = {"pods": ONE}
    for name in _PLAIN:
        if name in requests:
            result[name] = result[f"requests.{name}"] = requests[name]
        if name in limits:
            result[f"limits.{name}"] = limits[name]
    for name, amount in requests.items():
        if name.startswith("hugepages-"):
            result[name] = result[f"requests.{name}"] = amount
        elif _is_extended(name):
            result[f"requests.{name}"] = amount
    return result


def _is_extended(name: str) -> bool:
    if name.startswith(_DEVICE_CLASS):
        return True
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.") and not qualified_name(f"requests.{name}")


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _has_pod_level(spec: JSONObject) -> bool:
    resources = spec.get("resources") or {}
    return any(_is_pod_level(name) for part in ("requests", "limits") for name in resources.get(part) or ())


def _needs(pod: JSONObject, part: str) -> Amounts:
    """Return ``requests`` or ``limits`` (``part``) of a pod: pod-level amounts if set, else the containers' amounts; plus overhead."""
    spec = pod.get("spec") or {}
    found = _of_containers(pod, part)
    for name, amount in amounts_of((spec.get("resources") or {}).get(part)).items():
        if _is_pod_level(name):
            found[name] = amount
    overhead = amounts_of(spec.get("overhead"))
    if part == "limits":
        overhead = {name: amount for name, amount in overhead.items() if found.get(name)}
    return plus(found, overhead)


def _of_containers(pod: JSONObject, part: str) -> Amounts:
    """Return the amounts that a pod's containers need at the same time.

    Init containers run one after the other, but sidecars keep running beside all later containers.
    """
    spec = pod.get("spec") or {}
    total: Amounts = {}
    for container in spec.get("containers") or ():
        total = plus(total, _effective(pod, container, part))
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            need = _effective(pod, container, part)
            total, sidecars = plus(total, need), plus(sidecars, need)
            most = larger(most, sidecars)
        else:
            most = larger(most, plus(amounts_of((container.get("resources") or {}).get(part)), sidecars))
    return larger(total, most)


def _effective(pod: JSONObject, container: JSONObject, part: str) -> Amounts:
    """Return a container's amounts; during a resize the larger of actual, allocated and requested amounts."""
    wanted = amounts_of((container.get("resources") or {}).get(part))
    status = next((one for one in _statuses(pod) if one.get("name") == container["name"]), None)
    if status is None or status.get("resources") is None:
        return wanted
    actual = amounts_of(status["resources"].get(part))
    promised = amounts_of(status.get("allocatedResources")) if part == "requests" else {}
    if _is_infeasible(pod):
        return larger(actual, promised)
    return larger(wanted, actual, promised)


def _statuses(pod: JSONObject) -> Iterator[JSONObject]:
    status = pod.get("status") or {}
    yield from status.get("containerStatuses") or ()
    yield from status.get("initContainerStatuses") or ()


def _is_infeasible(pod: JSONObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((one.get("reason") == "Infeasible" for one in conditions if one.get("type") == "PodResizePending"), False)
