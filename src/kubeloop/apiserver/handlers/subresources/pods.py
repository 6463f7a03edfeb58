"""What ``/binding`` and ``/eviction`` of pods share: objects of another kind are posted to them, and a pod's conditions change."""

from __future__ import annotations

import copy

from kubeloop.apiserver.handlers.scope import RequestScope, ask_admission
from kubeloop.apiserver.registry.decoding import decode_object, media_type_of
from kubeloop.apiserver.registry.object_meta import metadata_of, set_namespace, timestamp
from kubeloop.apiserver.registry.objects import PreconditionFailed, StoredObject
from kubeloop.apiserver.registry.options import WriteOptions, write_options
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.validation.formats import unsupported
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.responses import success
from kubeloop.meta.field_error import required
from kubeloop.meta.kinds import GroupResource, GroupVersionKind, GroupVersionResource
from kubeloop.serving.answer import Answer
from kubeloop.types import JSONObject

PODS = GroupVersionResource("", "v1", "pods")


async def posted(scope: RequestScope, kind: GroupVersionKind, options: WriteOptions, *, also: tuple[str, ...] = ()) -> JSONObject:
    """The object of ``kind`` in the body, in the request's namespace. ``also``: other versions in which it may come.

    Raises:
        BadRequest, UnsupportedMediaType
    """
    media_type = media_type_of(scope.request.header("Content-Type"))
    decoded = decode_object(await scope.body(), media_type, scope.resource, kind, also=also)
    scope.accept_problems(decoded, options, kind.kind)
    set_namespace(metadata_of(decoded.obj), scope.namespace)
    return decoded.obj


async def admit(scope: RequestScope, obj: JSONObject, kind: GroupVersionKind, name: str, *, dry_run: bool) -> None:
    """What is created is the Binding or Eviction, as far as admission is concerned. It may be changed."""
    await ask_admission(scope, obj, kind=kind, name=name, dry_run=dry_run)


def served(scope: RequestScope, gvr: GroupVersionResource) -> ServedResource:
    found = scope.services.registry.get(gvr)
    if found is None:
        raise api_errors.no_such_resource()
    return found


async def pod_of(scope: RequestScope, resource: ServedResource, name: str) -> StoredObject:
    """Raises NotFound."""
    found = await scope.services.objects.get(resource, scope.namespace, name)
    if found is None:
        raise api_errors.not_found(resource.gvr.group_resource, name)
    return found


def set_pod_condition(pod: JSONObject, condition: JSONObject, now: str) -> None:
    """As podutil.UpdatePodCondition: the time changes with the status alone."""
    set_condition(pod, {**condition, "lastProbeTime": None}, now)


def set_condition(obj: JSONObject, condition: JSONObject, now: str) -> None:
    """Put ``condition`` in the place of the one of its type; ``now`` is its time, unless its status was the same before."""
    status = obj.setdefault("status", {})
    conditions = status.get("conditions")
    if conditions is None:
        conditions = status["conditions"] = []
    before = next((one for one in conditions if one["type"] == condition["type"]), None)
    if before is None:
        conditions.append({**condition, "lastTransitionTime": now})
        return
    same = before.get("status") == condition["status"]
    conditions[conditions.index(before)] = {**condition, "lastTransitionTime": before.get("lastTransitionTime") if same else now}


# ``/binding`` of pods, and ``bindings``: a scheduler assigns a pod to a node.
#
# Source: k8s.io/kubernetes pkg/registry/core/pod/storage (BindingREST).


BINDING = GroupVersionKind("", "v1", "Binding")


async def bind(scope: RequestScope) -> Answer:
    """Assign a pod to a node, once."""
    options = write_options(scope.request, "CreateOptions")
    binding = await posted(scope, BINDING, options)
    name = metadata_of(binding).get("name") or ""
    if scope.info.name and name != scope.info.name:
        raise api_errors.bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    errors = []
    if target.get("kind", "") not in ("", "Node"):
        errors.append(unsupported("target.kind", target["kind"], ["Node", "<empty>"]))
    if not target.get("name"):
        errors.append(required("target.name"))
    if errors:
        shown = ", ".join(map(str, errors))
        raise api_errors.internal(f"[{shown}]" if len(errors) > 1 else shown)
    await admit(scope, binding, BINDING, name, dry_run=options.dry_run)
    if not name:
        raise api_errors.bad_request("Name parameter required.")
    await _assign(scope, name, target["name"], metadata_of(binding), dry_run=options.dry_run)
    return success(code=201)


async def _assign(scope: RequestScope, name: str, node: str, given: JSONObject, *, dry_run: bool) -> None:
    objects, resource = scope.services.objects, served(scope, PODS)
    while True:
        current = await pod_of(scope, resource, name)
        _check(current, name, given)
        pod = copy.deepcopy(current.obj)
        pod["spec"]["nodeName"] = node
        # What a scheduler that did not bind it hoped for tells nobody anything now.
        pod.get("status", {}).pop("nominatedNodeName", None)
        for map_name in ("annotations", "labels"):
            if given.get(map_name):
                pod["metadata"][map_name] = {**(pod["metadata"].get(map_name) or {}), **given[map_name]}
        set_pod_condition(pod, {"type": "PodScheduled", "status": "True"}, timestamp(scope.services.clock.wall()))
        if dry_run:
            return
        try:
            await objects.write(resource, pod, expected=current.revision)
        except PreconditionFailed:
            continue
        return


def _check(current: StoredObject, name: str, given: JSONObject) -> None:
    """Raises Conflict where the pod is another than the binding means, or is not to be assigned."""
    metadata, spec = current.obj["metadata"], current.obj["spec"]
    if (given.get("uid") or metadata["uid"]) != metadata["uid"]:
        raise _mistaken(metadata, "UID", given["uid"], metadata["uid"])
    version = str(current.revision)
    if (given.get("resourceVersion") or version) != version:
        raise _mistaken(metadata, "ResourceVersion", given["resourceVersion"], version)
    if metadata.get("deletionTimestamp"):
        raise _unbindable(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _unbindable(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _unbindable(name, f"pod {name} has non-empty .spec.schedulingGates")


def _mistaken(metadata: JSONObject, what: str, given: str, own: str) -> Exception:
    where = f"/registry/pods/{metadata['namespace']}/{metadata['name']}"
    why = f"Precondition failed: {what} in precondition: {given}, {what} in object meta: {own}"
    fault = f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    return api_errors.conflict(PODS.group_resource, metadata["name"], fault)


def _unbindable(name: str, why: str) -> Exception:
    return api_errors.conflict(GroupResource("", "pods/binding"), name, why)
