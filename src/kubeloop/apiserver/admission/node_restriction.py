"""NodeRestriction: a kubelet may only change its own Node and the pods that run there.

Source: plugin/pkg/admission/noderestriction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubeloop.apiserver.admission.chain import Attributes, new_forbidden
from kubeloop.apiserver.admission.node_rules import (
    certificate_request_error,
    equal_claims,
    forbidden_labels,
    is_within_claim_status,
    mirror_pod_error,
)
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import Access, Authorizer, User
from kubeloop.meta.kinds import GroupResource, GroupVersionResource
from kubeloop.types import JSONObject

_PREFIX = "system:node:"
_PODS = GroupResource("", "pods")
_LEASES = "kube-node-lease"
_STATUS_OF_OWN = "update pod status for pods with spec.nodeName set to itself"
_Rule = Callable[[Attributes, str], Awaitable[str]]


class NodeRestriction:
    """Plug-in NodeRestriction: applies to users of the group system:nodes with a name system:node:NAME."""

    def __init__(self, registry: Registry, objects: Objects, authorizer: Authorizer) -> None:
        self._registry = registry
        self._objects = objects
        self._authorizer = authorizer
        self._rules: dict[GroupResource, _Rule] = {
            _PODS: self._pod,
            GroupResource("", "nodes"): self._node,
            GroupResource("", "persistentvolumeclaims"): self._claim,
            GroupResource("", "serviceaccounts"): self._token,
            GroupResource("coordination.k8s.io", "leases"): self._lease,
            GroupResource("storage.k8s.io", "csinodes"): self._csi_node,
            GroupResource("resource.k8s.io", "resourceslices"): self._slice,
            GroupResource("certificates.k8s.io", "certificatesigningrequests"): self._request,
        }
        self.resources = frozenset(self._rules)

    async def mutate(self, attributes: Attributes) -> None:
        node = _node_of(attributes.user)
        if node is None or attributes.operation not in ("CREATE", "UPDATE", "DELETE"):
            return
        if not node:
            raise new_forbidden(attributes, f'could not determine node from user "{attributes.user.name}"', unnamed=True)
        error = await self._rules[attributes.resource.gvr.group_resource](attributes, node)
        if error:
            raise new_forbidden(attributes, error, unnamed=True)

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing. ``mutate`` has checked the write, before other plug-ins could change it."""

    async def _pod(self, attributes: Attributes, node: str) -> str:
        operation, subresource = attributes.operation, attributes.subresource
        if subresource == "status":
            return self._pod_status(attributes, node)
        if subresource == "eviction":
            if operation != "CREATE":
                return f"unexpected operation {operation}"
            pod = await self._existing_pod(attributes, attributes.name)
            return "" if _runs_on(pod, node) else f"node {node} can only evict pods with spec.nodeName set to itself"
        if subresource:
            return f"unexpected pod subresource \"{subresource}\", only 'status' and 'eviction' are allowed"
        if operation == "CREATE":
            return await self._mirror(attributes, node)
        if operation != "DELETE":
            return f'unexpected operation "{operation}", node "{node}" can only create and delete mirror pods'
        pod = await self._existing_pod(attributes, attributes.name)
        return "" if _runs_on(pod, node) else f'node "{node}" can only delete pods with spec.nodeName set to itself'

    async def _mirror(self, attributes: Attributes, node: str) -> str:
        assert attributes.obj is not None
        value = await self._get("nodes", "", node)
        if value is None and not mirror_pod_error(attributes.obj, node, None):
            raise api_errors.not_found(GroupResource("", "node"), node)
        return mirror_pod_error(attributes.obj, node, value)

    @staticmethod
    def _pod_status(attributes: Attributes, node: str) -> str:
        obj, old = attributes.obj, attributes.old
        if attributes.operation != "UPDATE" or obj is None or old is None:
            return f'unexpected operation "{attributes.operation}"'
        if not _runs_on(old, node):
            return f'node "{node}" can only {_STATUS_OF_OWN}'
        if (obj["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {}):
            return f'node "{node}" cannot update labels through pod status'
        now, before = obj.get("status") or {}, old.get("status") or {}
        if not equal_claims(now.get("resourceClaimStatuses"), before.get("resourceClaimStatuses")):
            return f'node "{node}" cannot update resource claim statues'
        if now.get("extendedResourceClaimStatus") != before.get("extendedResourceClaimStatus"):
            return f'node "{node}" cannot update extended resource claim status'
        return ""

    async def _node(self, attributes: Attributes, node: str) -> str:
        obj, old = attributes.obj, attributes.old
        if attributes.name != node:
            return f'node "{node}" is not allowed to modify node "{attributes.name}"'
        if obj is None:
            return ""
        spec, metadata = obj.get("spec") or {}, obj["metadata"]
        if attributes.operation == "CREATE" or old is None:
            if spec.get("configSource") is not None:
                return f'node "{node}" is not allowed to create pods with a non-nil configSource'
            labels = forbidden_labels(metadata.get("labels"), None)
            return f'node "{node}" is not allowed to set the following labels: {", ".join(labels)}' if labels else ""
        before = old.get("spec") or {}
        if spec.get("configSource") is not None and spec["configSource"] != before.get("configSource"):
            return f'node "{node}" is not allowed to update configSource to a new non-nil configSource'
        if (spec.get("taints") or []) != (before.get("taints") or []):
            return f'node "{node}" is not allowed to modify taints'
        if (metadata.get("ownerReferences") or []) != (old["metadata"].get("ownerReferences") or []):
            return f'node "{node}" is not allowed to modify ownerReferences'
        labels = forbidden_labels(metadata.get("labels"), old["metadata"].get("labels"))
        return f"is not allowed to modify labels: {', '.join(labels)}" if labels else ""

    async def _claim(self, attributes: Attributes, node: str) -> str:
        if attributes.subresource != "status":
            return "may only update PVC status"
        if attributes.operation != "UPDATE" or attributes.obj is None or attributes.old is None:
            return f'unexpected operation "{attributes.operation}"'
        if is_within_claim_status(attributes.obj, attributes.old):
            return ""
        return f'node "{node}" is not allowed to update fields other than status.quantity and status.conditions'

    async def _token(self, attributes: Attributes, node: str) -> str:
        if attributes.operation != "CREATE" or attributes.subresource != "token" or attributes.obj is None:
            return ""
        spec = attributes.obj.get("spec") or {}
        bound = spec.get("boundObjectRef") or {}
        if bound.get("apiVersion") != "v1" or bound.get("kind") != "Pod" or not bound.get("name"):
            return "node requested token not bound to a pod"
        if not bound.get("uid"):
            return "node requested token with a pod binding without a uid"
        pod = await self._existing_pod(attributes, bound["name"])
        uid = bound["uid"]
        if uid != pod["metadata"]["uid"]:
            why = "does not match the UID in record. The object might have been deleted and then recreated"
            return f"the UID in the bound object reference ({uid}) {why}"
        if not _runs_on(pod, node):
            return "node requested token bound to a pod scheduled on a different node"
        return await self._audience(attributes, pod, spec.get("audiences") or [])

    async def _audience(self, attributes: Attributes, pod: JSONObject, audiences: list[str]) -> str:
        """Return why a kubelet may not request a token for these audiences, or an empty text if it may. Source: KEP-4935."""
        if len(audiences) > 1:
            return "node may only request 0 or 1 audiences"
        audience = audiences[0] if audiences else ""
        if await self._mounts(pod, audience):
            return ""
        user = attributes.user
        await self._authorizer.prepare(user)
        verb = "request-serviceaccounts-token-audience"
        access = Access(user, verb, "", "v1", audience, namespace=attributes.namespace, name=attributes.name)
        if self._authorizer.authorize(access).allowed:
            return ""
        why = f"{user.name} is not authorized to request tokens for this audience"
        return f'audience "{audience}" not found in pod spec volume, {why}'

    async def _mounts(self, pod: JSONObject, audience: str) -> bool:
        for volume in pod["spec"].get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                token = source.get("serviceAccountToken")
                if token is not None and token.get("audience", "") == audience:
                    return True
            driver = await self._driver(pod, volume)
            value = await self._get("csidrivers", "", driver, "storage.k8s.io") if driver else None
            requests = ((value or {}).get("spec") or {}).get("tokenRequests") or ()
            if any(one.get("audience", "") == audience for one in requests):
                return True
        return False

    async def _driver(self, pod: JSONObject, volume: JSONObject) -> str:
        """Return the name of the CSI driver that a volume of a pod uses through its claim, or an empty text if there is none."""
        if volume.get("csi") is not None:
            return str(volume["csi"].get("driver", ""))
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        if volume.get("ephemeral") is not None:
            claim = f"{pod['metadata']['name']}-{volume['name']}"
        value = await self._get("persistentvolumeclaims", pod["metadata"]["namespace"], claim) if claim else None
        name = ((value or {}).get("spec") or {}).get("volumeName")
        bound = await self._get("persistentvolumes", "", name) if name else None
        return str((((bound or {}).get("spec") or {}).get("csi") or {}).get("driver", ""))

    async def _lease(self, attributes: Attributes, node: str) -> str:
        if attributes.namespace != _LEASES:
            return f'can only access leases in the "{_LEASES}" system namespace'
        return "" if _name(attributes) == node else "can only access node lease with the same name as the requesting node"

    async def _csi_node(self, attributes: Attributes, node: str) -> str:
        return "" if _name(attributes) == node else "can only access CSINode with the same name as the requesting node"

    async def _slice(self, attributes: Attributes, node: str) -> str:
        about = {"CREATE": attributes.obj, "DELETE": attributes.old}.get(attributes.operation)
        if about is None or (about.get("spec") or {}).get("nodeName") == node:
            return ""
        return f"can only {attributes.operation.lower()} ResourceSlice with the same NodeName as the requesting node"

    async def _request(self, attributes: Attributes, node: str) -> str:
        return certificate_request_error(attributes.obj, node) if attributes.operation == "CREATE" and attributes.obj is not None else ""

    async def _existing_pod(self, attributes: Attributes, name: str) -> JSONObject:
        result = await self._get("pods", attributes.namespace, name)
        if result is None:
            raise api_errors.not_found(GroupResource("", "pod"), name)
        return result

    async def _get(self, resource: str, namespace: str, name: str, group: str = "") -> JSONObject | None:
        served = self._registry.get(GroupVersionResource(group, "v1", resource))
        stored = await self._objects.get(served, namespace, name) if served is not None else None
        return None if stored is None else stored.obj


def _node_of(user: User) -> str | None:
    """Return the node name of a kubelet user; None for any other user."""
    is_node = user.name.startswith(_PREFIX) and "system:nodes" in user.groups
    return user.name.removeprefix(_PREFIX) if is_node else None


def _runs_on(pod: JSONObject, node: str) -> bool:
    return bool((pod.get("spec") or {}).get("nodeName") == node)


def _name(attributes: Attributes) -> str:
    if attributes.operation == "CREATE" and attributes.obj is not None:
        return str(attributes.obj["metadata"].get("name", ""))
    return attributes.name
