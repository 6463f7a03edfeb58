"""The subresource ``/binding`` of pods, and functions for subresources that receive an object of another kind."""

from __future__ import annotations

from kubeloop.apiserver.handlers.scope import RequestScope, ask_admission
from kubeloop.apiserver.registry.decoding import decode_object, media_type_of
from kubeloop.apiserver.registry.object_meta import metadata_of, set_namespace, timestamp
from kubeloop.apiserver.registry.objects import PreconditionFailed, StoredObject
from kubeloop.apiserver.registry.options import WriteParameters, write_options
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.validation.formats import unsupported
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.responses import success
from kubeloop.merge.go_text import copy_tree
from kubeloop.meta.field_error import required
from kubeloop.meta.kinds import GroupResource, GroupVersionKind, GroupVersionResource
from kubeloop.serving.answer import Answer
from kubeloop.types import JSONObject

PODS = GroupVersionResource("", "v1", "pods")


async def decode_posted(scope: RequestScope, kind: GroupVersionKind, options: WriteParameters, *, also: tuple[str, ...] = ()) -> JSONObject:
    """Return the object in the body, in the namespace of the request.

    Args:
        scope: The request.
        kind: Expected kind.
        options: Options of the request.
        also: Other API versions of the kind.

    Raises:
        BadRequest, UnsupportedMediaType
    """
    media_type = media_type_of(scope.request.header("Content-Type"))
    decoded = decode_object(await scope.body(), media_type, scope.resource, kind, also=also)
    scope.accept_problems(decoded, options, kind.kind)
    set_namespace(metadata_of(decoded.obj), scope.namespace)
    return decoded.obj


async def admit(scope: RequestScope, obj: JSONObject, kind: GroupVersionKind, name: str, *, dry_run: bool) -> None:
    """Run admission for the creation of a Binding or Eviction, which admission may change.

    Args:
        scope: The request.
        obj: The Binding or Eviction.
        kind: Its kind.
        name: Name of the pod.
        dry_run: Nothing is stored.
    """
    await ask_admission(scope, obj, kind=kind, name=name, dry_run=dry_run)


def resource_of(scope: RequestScope, gvr: GroupVersionResource) -> ServedResource:
    """Return a resource of the registry. Raises NotFound if the server does not serve it."""
    result = scope.services.registry.get(gvr)
    if result is None:
        raise api_errors.no_such_resource()
    return result


async def pod_of(scope: RequestScope, resource: ServedResource, name: str) -> StoredObject:
    """Return the pod of a request. Raises NotFound."""
    result = await scope.services.objects.get(resource, scope.namespace, name)
    if result is None:
        raise api_errors.not_found(resource.gvr.group_resource, name)
    return result


def set_pod_condition(pod: JSONObject, condition: JSONObject, now: str) -> None:
    """Set a condition of a pod. Its lastTransitionTime changes only with its status (podutil.UpdatePodCondition)."""
    set_condition(pod, {**condition, "lastProbeTime": None}, now)


def set_condition(obj: JSONObject, condition: JSONObject, now: str) -> None:
    """Set a condition of an object. Its lastTransitionTime becomes ``now`` if the condition is new or its status changes."""
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
# Source: k8s.io/kubernetes pkg/registry/core/pod/storage (BindingREST).


BINDING = GroupVersionKind("", "v1", "Binding")


async def bind(scope: RequestScope) -> Answer:
    """Assign a pod to a node. A pod can be assigned only once."""
    options = write_options(scope.request, "CreateOptions")
    binding = await decode_posted(scope, BINDING, options)
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
        view = ", ".join(map(str, errors))
        raise api_errors.internal(f"[{view}]" if len(errors) > 1 else view)
    await admit(scope, binding, BINDING, name, dry_run=options.dry_run)
    if not name:
        raise api_errors.bad_request("Name parameter required.")
    await _assign(scope, name, target["name"], metadata_of(binding), dry_run=options.dry_run)
    return success(code=201)


async def _assign(scope: RequestScope, name: str, node: str, requested: JSONObject, *, dry_run: bool) -> None:
    objects, resource = scope.services.objects, resource_of(scope, PODS)
    while True:
        current = await pod_of(scope, resource, name)
        _check(current, name, requested)
        pod = copy_tree(current.obj)
        pod["spec"]["nodeName"] = node
        # The nomination by a scheduler is obsolete after the binding.
        pod.get("status", {}).pop("nominatedNodeName", None)
        for map_name in ("annotations", "labels"):
            if requested.get(map_name):
                pod["metadata"][map_name] = {**(pod["metadata"].get(map_name) or {}), **requested[map_name]}
        set_pod_condition(pod, {"type": "PodScheduled", "status": "True"}, timestamp(scope.services.clock.wall()))
        if dry_run:
            return
        try:
            await objects.write(resource, pod, expected=current.revision)
        except PreconditionFailed:
            continue
        return


def _check(current: StoredObject, name: str, requested: JSONObject) -> None:
    """Check that a binding can be applied. Raises Conflict if it refers to another pod, or the pod cannot be assigned to a node."""
    metadata, spec = current.obj["metadata"], current.obj["spec"]
    if (requested.get("uid") or metadata["uid"]) != metadata["uid"]:
        raise _mistaken(metadata, "UID", requested["uid"], metadata["uid"])
    version = str(current.revision)
    if (requested.get("resourceVersion") or version) != version:
        raise _mistaken(metadata, "ResourceVersion", requested["resourceVersion"], version)
    if metadata.get("deletionTimestamp"):
        raise _unbindable(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _unbindable(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _unbindable(name, f"pod {name} has non-empty .spec.schedulingGates")


def _mistaken(metadata: JSONObject, description: str, requested: str, actual: str) -> Exception:
    key = f"/registry/pods/{metadata['namespace']}/{metadata['name']}"
    reason = f"Precondition failed: {description} in precondition: {requested}, {description} in object meta: {actual}"
    error = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {reason}"
    return api_errors.conflict(PODS.group_resource, metadata["name"], error)


def _unbindable(name: str, reason: str) -> Exception:
    return api_errors.conflict(GroupResource("", "pods/binding"), name, reason)
