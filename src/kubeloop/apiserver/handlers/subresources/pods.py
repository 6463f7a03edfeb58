"""What ``/binding`` and ``/eviction`` of pods share: objects of another kind are posted to them, and a pod's conditions change."""

from __future__ import annotations

from kubeloop.apiserver.handlers.connect_admission import ask_admission
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.registry.decoding import decode_object, media_type_of
from kubeloop.apiserver.registry.object_meta import metadata_of, set_namespace
from kubeloop.apiserver.registry.objects import StoredObject
from kubeloop.apiserver.registry.options import WriteOptions
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.request import api_errors
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource
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
