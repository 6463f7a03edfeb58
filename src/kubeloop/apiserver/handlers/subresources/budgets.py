"""Disruption budgets as evictions see them: which one guards a pod, and whether it allows one disruption more.

Source: k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go (checkAndDecrement); KEP-3017 for pods that are not ready.
"""

from __future__ import annotations

import copy

from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.handlers.subresources.pods import served, set_condition
from kubeloop.apiserver.ownership import SERVER
from kubeloop.apiserver.registry.object_meta import timestamp
from kubeloop.apiserver.registry.objects import PreconditionFailed, StoredObject
from kubeloop.apiserver.storage import prefix_end
from kubeloop.endpoints import api_errors
from kubeloop.meta.kinds import GroupResource, GroupVersionResource
from kubeloop.meta.selectors import selector_from
from kubeloop.meta.status import StatusCause, StatusDetails
from kubeloop.types import JSONObject

_BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")
#: As upstream names them where it forbids.
_FORBIDDEN = GroupResource("policy", "poddisruptionbudget")
_MOST_DISRUPTED = 2000
#: Seconds after which a client that came too early may ask again.
_RETRY = 10


async def budget_of(scope: RequestScope, pod: JSONObject) -> StoredObject | None:
    """The budget whose selector matches the pod.

    Raises:
        ApiError: there is more than one; 500, as upstream.
    """
    objects, resource = scope.services.objects, served(scope, _BUDGETS)
    prefix = objects.prefix(resource, scope.namespace)
    found = await objects.storage.range(prefix, prefix_end(prefix))
    budgets = [StoredObject(kv, objects.tree(resource, kv)) for kv in found.items]
    guarding = [one for one in budgets if _matches(one.obj, pod)]
    if len(guarding) > 1:
        raise api_errors.internal("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
    return guarding[0] if guarding else None


def _matches(budget: JSONObject, pod: JSONObject) -> bool:
    try:
        selector = selector_from((budget.get("spec") or {}).get("selector"))
    except ValueError:
        return False  # stored by a server that let it pass
    return selector.matches(pod["metadata"].get("labels"))


def is_ready(pod: JSONObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def may_lose_unready(budget: JSONObject) -> bool:
    """Whether pods that are not ready may go without being counted."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    wanted = status.get("desiredHealthy", 0)
    return bool(wanted > 0 and status.get("currentHealthy", 0) >= wanted)


async def take_from_budget(scope: RequestScope, budget: StoredObject, pod: str, *, dry_run: bool) -> None:
    """Count one more disruption, in competition with whoever else writes the budget.

    Raises:
        TooManyRequests: none is allowed now. Forbidden: the budget's status makes no sense.
    """
    objects, resource = scope.services.objects, served(scope, _BUDGETS)
    name = budget.obj["metadata"]["name"]
    while True:
        changed = copy.deepcopy(budget.obj)
        _disrupt(changed, pod, timestamp(scope.services.clock.wall()))
        if dry_run:
            return
        owners = scope.services.writer.owners
        owners.updated(owners.scope(resource, "status"), budget.obj, changed, SERVER)
        try:
            await objects.write(resource, changed, expected=budget.revision)
        except PreconditionFailed:
            current = await objects.get(resource, scope.namespace, name)
            if current is None:
                raise api_errors.not_found(resource.gvr.group_resource, name) from None
            budget = current
            continue
        return


def _disrupt(budget: JSONObject, pod: str, now: str) -> None:
    metadata, status = budget["metadata"], budget.setdefault("status", {})
    name = metadata["name"]
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        raise too_many(name)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise api_errors.forbidden(_FORBIDDEN, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > _MOST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise api_errors.forbidden(_FORBIDDEN, name, why)
    if allowed == 0:
        raise _refused(_why_none(name, status))
    status["disruptionsAllowed"] = allowed - 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: now}
    if allowed == 1:
        condition = {
            "type": "DisruptionAllowed",
            "status": "False",
            "observedGeneration": status.get("observedGeneration", 0),
            "reason": "InsufficientPods",
            "message": "",
        }
        set_condition(budget, condition, now)


def _why_none(name: str, status: JSONObject) -> str:
    conditions = status.get("conditions") or ()
    said: JSONObject = next((one for one in conditions if one.get("type") == "DisruptionAllowed" and one.get("status") == "False"), {})
    message, reason = said.get("message", ""), said.get("reason", "")
    if message and reason == "SyncFailed":
        # The numbers are not to be trusted then.
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
    needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    if has <= needs:
        return f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
    if message:
        return f"The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
    return f"The disruption budget {name} does not allow evicting pods currently"


def too_many(name: str) -> Exception:
    """The budget's controller has not caught up yet."""
    return _refused(f"The disruption budget {name} is still being processed by the server.", retry=_RETRY)


def _refused(message: str, retry: int = 0) -> Exception:
    details = StatusDetails(causes=[StatusCause(reason="DisruptionBudget", message=message)], retry_after_seconds=retry)
    return api_errors.refusal(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", details)
