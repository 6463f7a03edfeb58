"""NamespaceLifecycle: no content where there is no namespace, or where it ends. Source: k8s.io/apiserver plugin/namespace/lifecycle."""

from __future__ import annotations

from kubeloop.apiserver.admission.chain import Attributes
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.endpoints import api_errors
from kubeloop.meta.kinds import GroupResource, GroupVersionResource
from kubeloop.meta.status import StatusCause

NAMESPACES = GroupResource("", "namespaces")
_REVIEWS = GroupResource("authorization.k8s.io", "localsubjectaccessreviews")
_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle:
    """Rejects objects in namespaces that do not exist, new ones in namespaces that terminate, and the deletion of system namespaces."""

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        is_namespace = attributes.resource.gvr.group_resource == NAMESPACES
        if attributes.operation == "DELETE":
            if is_namespace and attributes.name in _IMMORTAL:
                raise api_errors.forbidden(NAMESPACES, attributes.name, "this namespace may not be deleted")
            return
        if is_namespace or not attributes.namespace or attributes.operation not in ("CREATE", "UPDATE"):
            return
        if attributes.resource.gvr.group_resource == _REVIEWS:
            return  # access reviews may name any namespace
        namespaces = self._registry.get(GroupVersionResource("", "v1", "namespaces"))
        if namespaces is None:
            return
        found = await self._objects.get(namespaces, "", attributes.namespace)
        if found is None:
            raise api_errors.not_found(NAMESPACES, attributes.namespace)
        if attributes.operation == "CREATE" and (found.obj.get("status") or {}).get("phase") == "Terminating":
            raise self._terminating(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""

    @staticmethod
    def _terminating(attributes: Attributes) -> Exception:
        namespace = attributes.namespace
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        message = f"namespace {namespace} is being terminated"
        cause = StatusCause(reason="NamespaceTerminating", message=message, field="metadata.namespace")
        metadata = (attributes.obj or {}).get("metadata", {})
        # Upstream has not generated a name by now.
        name = attributes.name or metadata.get("generateName") or metadata.get("name") or "Unknown"
        return api_errors.forbidden(attributes.resource.gvr.group_resource, name, why, [cause])
