"""Objects that a connection depends on, as they are stored now."""

from __future__ import annotations

from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.request import api_errors
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.types import JSONObject

PODS = GroupVersionResource("", "v1", "pods")


async def find(scope: RequestScope, gvr: GroupVersionResource, namespace: str, name: str) -> JSONObject | None:
    """The object, not to be changed; None if there is none."""
    resource = scope.services.registry.get(gvr)
    found = await scope.services.objects.get(resource, namespace, name) if resource is not None else None
    return found.obj if found is not None else None


async def pod_of(scope: RequestScope, name: str) -> JSONObject:
    """Raises NotFound."""
    found = await find(scope, PODS, scope.namespace, name)
    if found is None:
        raise api_errors.not_found(PODS.group_resource, name)
    return found


def container_of(pod: JSONObject, wanted: str) -> str:
    """The container that is meant: ``wanted``, or the only one.

    Raises:
        BadRequest: there is no such container, or several to choose from.
    """
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    containers = spec.get("containers") or []
    known = [one["name"] for kind in ("initContainers", "containers", "ephemeralContainers") for one in spec.get(kind) or []]
    if wanted:
        if wanted not in known:
            raise api_errors.bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(containers) == 1:
        return str(containers[0]["name"])
    if not containers:
        raise api_errors.bad_request(f"a container name must be specified for pod {name}")
    raise api_errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(known)}]")
