"""``/binding`` and ``/eviction`` of pods.

Source: k8s.io/kubernetes pkg/registry/core/pod/storage (BindingREST, EvictionREST); Kubernetes documentation, "API-initiated Eviction".
"""

from __future__ import annotations

import copy
from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import Answer, success
from kubeloop.apiserver.asking_admission import ask_admission
from kubeloop.apiserver.decoding import decode_object, media_type_of
from kubeloop.apiserver.exchange import Exchange
from kubeloop.apiserver.object_meta import metadata_of, set_namespace, timestamp
from kubeloop.apiserver.objects import StaleWrite, StoredObject
from kubeloop.apiserver.options import DeleteOptions, WriteOptions, unsupported, write_options
from kubeloop.apiserver.ownership import SERVER
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.storage import prefix_end
from kubeloop.meta.field_error import required
from kubeloop.meta.kinds import GroupResource, GroupVersionKind, GroupVersionResource
from kubeloop.meta.selectors import selector_from
from kubeloop.meta.status import StatusCause, StatusDetails

JSONObject = dict[str, Any]

BINDING = GroupVersionKind("", "v1", "Binding")
EVICTION = GroupVersionKind("policy", "v1", "Eviction")
PODS = GroupVersionResource("", "v1", "pods")
_BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")
_MOST_DISRUPTED = 2000


async def bind(exchange: Exchange) -> Answer:
    """Assign a pod to a node, once."""
    options = write_options(exchange.request, "CreateOptions")
    binding = await _decode(exchange, BINDING, options)
    name = metadata_of(binding).get("name") or ""
    if exchange.info.name and name != exchange.info.name:
        raise refusals.bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    errors = []
    if target.get("kind", "") not in ("", "Node"):
        errors.append(unsupported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        errors.append(required("target.name"))
    if errors:
        shown = ", ".join(map(str, errors))
        raise refusals.internal(f"[{shown}]" if len(errors) > 1 else shown)
    await _admit(exchange, binding, BINDING, name, dry_run=options.dry_run)
    await _assign(exchange, name, target["name"], metadata_of(binding), dry_run=options.dry_run)
    return success(code=201)


async def _assign(exchange: Exchange, name: str, node: str, given: JSONObject, *, dry_run: bool) -> None:
    objects, resource = exchange.parts.objects, _served(exchange, PODS)
    while True:
        current = await _pod(exchange, resource, name)
        if given.get("uid") and given["uid"] != current.obj["metadata"]["uid"]:
            raise _unbindable(
                name, f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {current.obj['metadata']['uid']}"
            )
        pod = copy.deepcopy(current.obj)
        spec = pod["spec"]
        if pod["metadata"].get("deletionTimestamp"):
            raise _unbindable(name, f"pod {name} is being deleted, cannot be assigned to a host")
        if spec.get("nodeName"):
            raise _unbindable(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
        if spec.get("schedulingGates"):
            raise _unbindable(name, f"pod {name} has non-empty .spec.schedulingGates")
        spec["nodeName"] = node
        for name_of_map in ("annotations", "labels"):
            if given.get(name_of_map):
                pod["metadata"][name_of_map] = {**(pod["metadata"].get(name_of_map) or {}), **given[name_of_map]}
        _set_condition(pod, {"type": "PodScheduled", "status": "True"}, timestamp(exchange.parts.clock.wall()))
        if dry_run:
            return
        try:
            await objects.write(resource, pod, expected=current.revision)
        except StaleWrite:
            continue
        return


def _unbindable(name: str, why: str) -> Exception:
    return refusals.conflict(GroupResource("", "pods/binding"), name, why)


async def evict(exchange: Exchange) -> Answer:
    """Delete a pod unless a disruption budget forbids it now."""
    write = write_options(exchange.request, "CreateOptions")
    eviction = await _decode(exchange, EVICTION, write)
    name = exchange.info.name
    if metadata_of(eviction).get("name") != name:
        raise refusals.bad_request("name in URL does not match name in Eviction object")
    given = eviction.get("deleteOptions") or {}
    preconditions = given.get("preconditions") or {}
    options = DeleteOptions(
        grace_period=given.get("gracePeriodSeconds"),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation_policy=given.get("propagationPolicy"),
        dry_run=write.dry_run or bool(given.get("dryRun")),
    )
    resource = _served(exchange, PODS)
    await _admit(exchange, eviction, EVICTION, name, dry_run=options.dry_run)
    pod = await _pod(exchange, resource, name)
    if not _ignores_budgets(pod.obj):
        await _take_from_budget(exchange, pod.obj, dry_run=options.dry_run)
        await _announce(exchange, resource, name, dry_run=options.dry_run)
    call = exchange.call(name=name, dry_run=options.dry_run)
    await exchange.parts.deleter.delete(call, options)
    return success(code=201)


async def _admit(exchange: Exchange, obj: JSONObject, kind: GroupVersionKind, name: str, *, dry_run: bool) -> None:
    """What is created is the Binding or Eviction, as far as admission is concerned. It may be changed."""
    set_namespace(metadata_of(obj), exchange.namespace)
    await ask_admission(exchange, obj, kind=kind, name=name, dry_run=dry_run)


def _ignores_budgets(pod: JSONObject) -> bool:
    """Pods that are not serving anybody may always go."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


async def _take_from_budget(exchange: Exchange, pod: JSONObject, *, dry_run: bool) -> None:
    resource = _served(exchange, _BUDGETS)
    objects = exchange.parts.objects
    while True:
        budgets = await _budgets_of(exchange, resource, pod)
        if not budgets:
            return
        if len(budgets) > 1:
            raise refusals.internal_error(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            )
        budget = copy.deepcopy(budgets[0].obj)
        _disrupt(budget, pod["metadata"]["name"], timestamp(exchange.parts.clock.wall()))
        if dry_run:
            return
        owners = exchange.parts.writer.owners
        owners.updated(owners.scope(resource, "status"), budgets[0].obj, budget, SERVER)
        try:
            await objects.write(resource, budget, expected=budgets[0].revision)
        except StaleWrite:
            continue
        return


def _disrupt(budget: JSONObject, pod: str, now: str) -> None:
    """Count one more disruption.

    Raises:
        TooManyRequests: none is allowed now.
    """
    metadata, status = budget["metadata"], budget.setdefault("status", {})
    name = metadata["name"]
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        raise _too_many(f"The disruption budget {name} is still being processed by the server.", retry=10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise refusals.forbidden(GroupResource("policy", "poddisruptionbudgets"), name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > _MOST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise refusals.forbidden(GroupResource("policy", "poddisruptionbudgets"), name, why)
    if allowed == 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _too_many(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently")
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
        _set_condition(budget, condition, now, probe=False)


def _too_many(message: str, retry: int = 0) -> Exception:
    details = StatusDetails(causes=[StatusCause(reason="DisruptionBudget", message=message)], retry_after_seconds=retry)
    return refusals.refusal(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", details)


async def _budgets_of(exchange: Exchange, resource: ServedResource, pod: JSONObject) -> list[StoredObject]:
    objects = exchange.parts.objects
    prefix = objects.prefix(resource, exchange.namespace)
    found = await objects.storage.range(prefix, prefix_end(prefix))
    labels = pod["metadata"].get("labels")
    budgets = [StoredObject(kv, objects.tree(resource, kv)) for kv in found.items]
    return [one for one in budgets if selector_from((one.obj.get("spec") or {}).get("selector")).matches(labels)]


async def _announce(exchange: Exchange, resource: ServedResource, name: str, *, dry_run: bool) -> None:
    """The pod's condition that tells why it goes."""
    while not dry_run:
        current = await _pod(exchange, resource, name)
        pod = copy.deepcopy(current.obj)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        _set_condition(pod, condition, timestamp(exchange.parts.clock.wall()))
        try:
            await exchange.parts.objects.write(resource, pod, expected=current.revision)
        except StaleWrite:
            continue
        return


def _set_condition(obj: JSONObject, condition: JSONObject, now: str, *, probe: bool = True) -> None:
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    before = next((one for one in conditions if one["type"] == condition["type"]), None)
    changed = before is None or before.get("status") != condition["status"]
    filled = {**condition, "lastTransitionTime": now if changed or before is None else before["lastTransitionTime"]}
    if probe:
        filled["lastProbeTime"] = None
    if before is None:
        conditions.append(filled)
    else:
        conditions[conditions.index(before)] = filled


async def _decode(exchange: Exchange, kind: GroupVersionKind, options: WriteOptions) -> JSONObject:
    media_type = media_type_of(exchange.request.header("Content-Type"))
    decoded = decode_object(await exchange.body(), media_type, exchange.resource, kind)
    exchange.accept_problems(decoded, options, kind.kind)
    return decoded.obj


def _served(exchange: Exchange, gvr: GroupVersionResource) -> ServedResource:
    found = exchange.parts.registry.get(gvr)
    if found is None:
        raise refusals.no_such_resource()
    return found


async def _pod(exchange: Exchange, resource: ServedResource, name: str) -> StoredObject:
    found = await exchange.parts.objects.get(resource, exchange.namespace, name)
    if found is None:
        raise refusals.not_found(resource.gvr.group_resource, name)
    return found
