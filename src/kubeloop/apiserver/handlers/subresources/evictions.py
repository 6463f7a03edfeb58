"""The subresource ``/eviction`` of pods: a deletion that disruption budgets may reject temporarily.

Source: k8s.io/kubernetes pkg/registry/core/pod/storage (EvictionREST); Kubernetes documentation, "API-initiated Eviction".
"""

from __future__ import annotations

from dataclasses import replace

from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.handlers.subresources.pods import PODS, admit, decode_posted, pod_of, resource_of, set_condition, set_pod_condition
from kubeloop.apiserver.ownership import SERVER
from kubeloop.apiserver.registry.object_meta import metadata_of, timestamp
from kubeloop.apiserver.registry.objects import PreconditionFailed, StoredObject
from kubeloop.apiserver.registry.options import DeleteParameters, check_delete_options, write_options
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage import prefix_end
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.responses import success
from kubeloop.merge.go_text import copy_tree
from kubeloop.meta.errors import Conflict
from kubeloop.meta.field_error import invalid
from kubeloop.meta.kinds import GroupResource, GroupVersionKind, GroupVersionResource
from kubeloop.meta.selectors import selector_from
from kubeloop.meta.status import StatusCause, StatusDetails
from kubeloop.serving.answer import Answer
from kubeloop.types import JSONObject

# Disruption budgets: the budget that matches a pod, and whether it allows one more disruption.
# Source: k8s.io/kubernetes pkg/registry/core/pod/storage/eviction.go (checkAndDecrement); KEP-3017 for pods that are not ready.


_BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")
#: Name of the resource in upstream's Forbidden errors.
_FORBIDDEN = GroupResource("policy", "poddisruptionbudget")
_MOST_DISRUPTED = 2000
#: Retry-After in seconds.
_RETRY = 10


async def budget_of(scope: RequestScope, pod: JSONObject) -> StoredObject | None:
    """Return the disruption budget that matches a pod, or None.

    Raises:
        ApiError: Several budgets match; 500 as upstream.
    """
    objects, resource = scope.services.objects, resource_of(scope, _BUDGETS)
    prefix = objects.prefix(resource, scope.namespace)
    result = await objects.storage.range(prefix, prefix_end(prefix))
    budgets = [StoredObject(kv, objects.tree(resource, kv)) for kv in result.items]
    guarding = [one for one in budgets if _matches(one.obj, pod)]
    if len(guarding) > 1:
        raise api_errors.internal("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
    return guarding[0] if guarding else None


def _matches(budget: JSONObject, pod: JSONObject) -> bool:
    try:
        selector = selector_from((budget.get("spec") or {}).get("selector"))
    except ValueError:
        return False  # an older server stored an invalid selector
    return selector.matches(pod["metadata"].get("labels"))


def is_ready(pod: JSONObject) -> bool:
    """Return whether the condition Ready of a pod is true."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def may_lose_unready(budget: JSONObject) -> bool:
    """Return whether pods that are not ready may be evicted without counting as disruption."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


async def take_from_budget(scope: RequestScope, budget: StoredObject, pod: str, *, dry_run: bool) -> None:
    """Count one more disruption in the status of a budget, with retries after concurrent writes.

    Args:
        scope: The request.
        budget: The budget.
        pod: Name of the pod.
        dry_run: Only check the budget.

    Raises:
        TooManyRequests: The budget allows no disruption now.
        Forbidden: The status of the budget is inconsistent.
        NotFound: The budget was deleted.
    """
    objects, resource = scope.services.objects, resource_of(scope, _BUDGETS)
    name = budget.obj["metadata"]["name"]
    while True:
        changed = copy_tree(budget.obj)
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
        raise budget_outdated(name)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise api_errors.forbidden(_FORBIDDEN, name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > _MOST_DISRUPTED:
        reason = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise api_errors.forbidden(_FORBIDDEN, name, reason)
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
    reported: JSONObject = next((one for one in conditions if one.get("type") == "DisruptionAllowed" and one.get("status") == "False"), {})
    message, reason = reported.get("message", ""), reported.get("reason", "")
    if message and reason == "SyncFailed":
        # The status is outdated then.
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
    needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    if has <= needs:
        return f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
    if message:
        return f"The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
    return f"The disruption budget {name} does not allow evicting pods currently"


def budget_outdated(name: str) -> Exception:
    """Return the error for a budget that the disruption controller has not processed yet."""
    return _refused(f"The disruption budget {name} is still being processed by the server.", retry=_RETRY)


def _refused(message: str, retry: int = 0) -> Exception:
    details = StatusDetails(causes=[StatusCause(reason="DisruptionBudget", message=message)], retry_after_seconds=retry)
    return api_errors.refusal(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", details)


EVICTION = GroupVersionKind("policy", "v1", "Eviction")
_ALSO = ("policy/v1beta1",)
_ENDED = ("Succeeded", "Failed")


async def evict(scope: RequestScope) -> Answer:
    """Delete a pod unless a disruption budget forbids it now."""
    write = write_options(scope.request, "CreateOptions")
    eviction = await decode_posted(scope, EVICTION, write, also=_ALSO)
    name = scope.info.name
    if metadata_of(eviction).get("name") != name:
        raise api_errors.bad_request("name in URL does not match name in Eviction object")
    requested = eviction.get("deleteOptions") or {}
    if requested.get("ignoreStoreReadErrorWithClusterBreakingPotential"):
        reason = "can not be set for pod eviction, try after removing the option"
        error = invalid("deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential", True, reason)
        raise api_errors.invalid(EVICTION.group_kind, name, [error])
    dry_run = _dry_run(requested.get("dryRun") or [], scope.request.query.get("dryRun", []))
    preconditions = requested.get("preconditions") or {}
    options = DeleteParameters(
        grace_period=requested.get("gracePeriodSeconds"),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        orphan_dependents=requested.get("orphanDependents"),
        propagation_policy=requested.get("propagationPolicy"),
        dry_run=bool(dry_run),
    )
    await admit(scope, eviction, EVICTION, name, dry_run=options.dry_run)
    await _Eviction(scope, name, options, dry_run).run()
    return success(code=201)


def _dry_run(of_body: list[str], of_request: list[str]) -> list[str]:
    """Return the dryRun values of body and query, which as upstream must be equal."""
    if of_body and of_request and of_body != of_request:
        view = (f"[{' '.join(one)}]" for one in (of_request, of_body))
        raise api_errors.internal(f"Non-matching dry-run options in request and content: {' and '.join(view)}")
    return of_body or of_request


class _Eviction:
    """The eviction of one pod."""

    def __init__(self, scope: RequestScope, name: str, options: DeleteParameters, dry_run: list[str]) -> None:
        self._scope = scope
        self._resource: ServedResource = resource_of(scope, PODS)
        self._name = name
        self._options = options
        self._dry_run = dry_run

    async def run(self) -> None:
        """Delete the pod within its disruption budget."""
        requested = self._options
        while True:
            pod = await pod_of(self._scope, self._resource, self._name)
            metadata = pod.obj["metadata"]
            if not _ignores_budgets(pod.obj):
                return await self._with_budget(pod.obj)
            if requested.resource_version is not None or _has_gone(pod.obj):
                return await self._delete(requested)
            try:
                # A pod that has become ready meanwhile counts against the budget.
                return await self._delete(replace(requested, resource_version=metadata["resourceVersion"]))
            except Conflict:
                again = await pod_of(self._scope, self._resource, self._name)
                if again.obj["metadata"]["resourceVersion"] == metadata["resourceVersion"]:
                    raise  # it was not a concurrent write

    async def _with_budget(self, pod: JSONObject) -> None:
        requested = self._options
        budget = await budget_of(self._scope, pod)
        if budget is None:
            return await self._delete(requested)
        if is_ready(pod) or not may_lose_unready(budget.obj):
            await take_from_budget(self._scope, budget, self._name, dry_run=requested.dry_run)
            return await self._delete(requested)
        try:
            # The pod does not count against the budget only while it is not ready.
            await self._delete(replace(requested, resource_version=pod["metadata"]["resourceVersion"]))
        except Conflict:
            if requested.resource_version is None:
                raise budget_outdated(budget.obj["metadata"]["name"]) from None
            raise
        return None

    async def _delete(self, options: DeleteParameters) -> None:
        if not options.dry_run:
            version = await self._announce(options)
            if options.resource_version is not None:
                options = replace(options, resource_version=version)
        check_delete_options(options, self._dry_run)
        deleter = self._scope.services.deleter
        # Admission has checked the eviction and does not check the deletion again.
        await deleter.delete(self._scope.write(name=self._name, dry_run=options.dry_run), options, admit=False)

    async def _announce(self, options: DeleteParameters) -> str:
        """Set the condition DisruptionTarget of the pod. Returns the new version of the pod.

        Raises:
            Conflict: The preconditions in ``options`` do not match the pod.
        """
        scope = self._scope
        while True:
            current = await pod_of(scope, self._resource, self._name)
            scope.services.deleter.check_preconditions(scope.write(name=self._name), options, current)
            pod = copy_tree(current.obj)
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            }
            set_pod_condition(pod, condition, timestamp(scope.services.clock.wall()))
            if pod == current.obj:
                return str(current.revision)
            try:
                stored = await scope.services.objects.write(self._resource, pod, expected=current.revision)
            except PreconditionFailed:
                continue
            return str(stored.revision)


def _ignores_budgets(pod: JSONObject) -> bool:
    """Return whether a pod may always be evicted, because it is not running."""
    return (pod.get("status") or {}).get("phase") == "Pending" or _has_gone(pod)


def _has_gone(pod: JSONObject) -> bool:
    return (pod.get("status") or {}).get("phase") in _ENDED or bool(pod["metadata"].get("deletionTimestamp"))
