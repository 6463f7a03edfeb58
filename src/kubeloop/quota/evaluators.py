"""Evaluators: which quota resources each kind uses, and how much.

Source: pkg/quota/v1/evaluator/core, k8s.io/apiserver pkg/quota/v1/generic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.quantity import Quantity
from kubeloop.quota.amounts import ONE, ZERO, Amounts, larger, plus
from kubeloop.quota.pods import is_pod_name, pod_usage, unsaid
from kubeloop.quota.scopes import QuotaScope, claim_meets, is_terminating, pod_meets, scopes_of
from kubeloop.types import JSONObject

_CLASS_SUFFIX = ".storageclass.storage.k8s.io/"
_CLAIM_NAMES = ("persistentvolumeclaims", "requests.storage")
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEVICES = ".deviceclass.resource.k8s.io/devices"
#: The number of devices that a claim for all devices of a class counts as: upstream's limit of devices in an allocation.
_MOST_DEVICES = 32


def count_name(resource: GroupResource) -> str:
    """Return ``count/deployments.apps``: the resource name by which a quota limits the number of objects."""
    return f"count/{resource}"


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Computes how much of each quota resource an object of one kind uses. ``usage`` takes the object and the present time."""

    resource: GroupResource
    #: Whether the kind uses the quota resource of this name.
    is_used: Callable[[str], bool]
    usage: Callable[[JSONObject, datetime], Amounts]
    #: Whether an update of this subresource may change the usage (takes ``old`` and ``new``).
    update_changes_usage: Callable[[str, JSONObject, JSONObject], bool] = lambda _subresource, _old, _new: False
    #: Whether a scope of a quota selects the object.
    meets: Callable[[QuotaScope, JSONObject], bool] = lambda _scope, _obj: False
    #: A message if the object lacks fields that it must set because a quota limits these resources; otherwise an empty text.
    unsaid: Callable[[list[str], JSONObject], str] = lambda _names, _obj: ""

    def names(self, hard: Iterable[str]) -> list[str]:
        """Return the names in ``hard`` (``spec.hard`` of a quota) that this kind uses, sorted."""
        return sorted(name for name in hard if self.is_used(name))

    def counts(self, quota: JSONObject, obj: JSONObject) -> bool:
        """Return whether all scopes of ``quota`` select ``obj``."""
        return all(self.meets(scope, obj) for scope in scopes_of(quota))


def evaluator_of(resource: GroupResource) -> Evaluator:
    """Return the evaluator of a kind; a kind without special rules is counted by the number of its objects."""
    return EVALUATED.get(resource) or _counted(resource)


def _counted(resource: GroupResource, alias: str = "") -> Evaluator:
    used = dict.fromkeys(filter(None, (count_name(resource), alias)), ONE)
    return Evaluator(resource, used.__contains__, lambda _obj, _now: dict(used))


def _pod_update_counts(subresource: str, old: JSONObject, new: JSONObject) -> bool:
    return subresource == "resize" or (not subresource and is_terminating(old) != is_terminating(new))


def _service_usage(service: JSONObject, _now: datetime) -> Amounts:
    spec = service.get("spec") or {}
    ports, kind = spec.get("ports") or [], spec.get("type")
    balanced = kind == "LoadBalancer"
    if balanced and spec.get("allocateLoadBalancerNodePorts") is False:
        ports = [port for port in ports if port.get("nodePort")]
    elif kind not in ("NodePort", "LoadBalancer"):
        ports = []
    return {
        "count/services": ONE,
        "services": ONE,
        "services.loadbalancers": ONE if balanced else ZERO,
        "services.nodeports": Quantity(len(ports)),
    }


_SERVICE_NAMES = frozenset({"count/services", "services", "services.nodeports", "services.loadbalancers"})


def _is_claim_name(name: str) -> bool:
    return name == "count/persistentvolumeclaims" or name in _CLAIM_NAMES or any(name.endswith(_CLASS_SUFFIX + one) for one in _CLAIM_NAMES)


def _claim_usage(claim: JSONObject, _now: datetime) -> Amounts:
    result: Amounts = {"persistentvolumeclaims": ONE, "count/persistentvolumeclaims": ONE}
    spec = claim.get("spec") or {}
    named = (claim["metadata"].get("annotations") or {}).get(_OLD_CLASS)
    by_class = named if named is not None else spec.get("storageClassName") or ""
    if by_class:
        result[f"{by_class}{_CLASS_SUFFIX}persistentvolumeclaims"] = ONE
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if asked is None:
        return result
    size = Quantity(asked)
    promised = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage")
    if promised is not None:
        size = max(size, Quantity(promised))
    size = Quantity(size.value(), size.format)
    result["requests.storage"] = size
    if by_class:
        result[f"{by_class}{_CLASS_SUFFIX}requests.storage"] = size
    return result


def _is_device_name(name: str) -> bool:
    return name == "count/resourceclaims.resource.k8s.io" or name.endswith(_DEVICES)


def _device_usage(claim: JSONObject, _now: datetime) -> Amounts:
    found: Amounts = {"count/resourceclaims.resource.k8s.io": ONE}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        if request.get("firstAvailable"):
            found = plus(found, larger(*(_devices(one) for one in request["firstAvailable"])))
        elif request.get("exactly") is not None:
            found = plus(found, _devices(request["exactly"]))
    return found


def _devices(request: JSONObject) -> Amounts:
    mode = request.get("allocationMode")
    number = request.get("count", 0) if mode == "ExactCount" else _MOST_DEVICES if mode == "All" else 0
    return {f"{request.get('deviceClassName', '')}{_DEVICES}": Quantity(number)}


def _always_main(subresource: str, _old: JSONObject, _new: JSONObject) -> bool:
    return not subresource


#: Kinds that use more than the number of objects, or have an older name for that number.
EVALUATED: dict[GroupResource, Evaluator] = {
    one.resource: one
    for one in (
        Evaluator(GroupResource("", "pods"), is_pod_name, pod_usage, _pod_update_counts, pod_meets, unsaid),
        Evaluator(GroupResource("", "services"), _SERVICE_NAMES.__contains__, _service_usage, _always_main),
        Evaluator(
            GroupResource("", "persistentvolumeclaims"),
            _is_claim_name,
            _claim_usage,
            lambda subresource, _old, _new: subresource in ("", "status"),
            claim_meets,
        ),
        Evaluator(GroupResource("resource.k8s.io", "resourceclaims"), _is_device_name, _device_usage, _always_main),
        *(_counted(GroupResource("", name), name) for name in ("configmaps", "resourcequotas", "replicationcontrollers", "secrets")),
    )
}
