"""The node authorizer: it allows a kubelet to use the objects that pods on its node refer to.

It decides for users ``system:node:NAME`` in the group ``system:nodes``.

Source: k8s.io/kubernetes plugin/pkg/auth/authorizer/node/node_authorizer.go.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from kubeloop.apiserver.authorization.rbac_rules import RoleRules
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.resource_controller import follow_objects
from kubeloop.apiserver.storage.watch_cache import ROOT, WatchCache
from kubeloop.endpoints.access import NO_OPINION, Access, Decision, Rules, User
from kubeloop.meta.selectors import FieldOperator
from kubeloop.types import JSONObject

# References of pods and volumes to other objects. Source: k8s.io/kubernetes pkg/api/v1/{pod,persistentvolume}/util.go.


class NamedResource(NamedTuple):
    """An object that a pod or volume refers to. ``resource`` is the plural name."""

    resource: str
    namespace: str
    name: str


#: Types of volumes with a secretRef.
_WITH_SECRET = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
#: Types whose secretRef without a namespace means the namespace of the claim.
_BESIDE_CLAIM = ("cephfs", "flexVolume", "rbd", "scaleIO", "iscsi")
_MIRROR = "kubernetes.io/config.mirror"


def pod_dependencies(pod: JSONObject) -> set[NamedResource]:
    """Return the objects that the node of ``pod`` must read; an empty set for a mirror pod, which the node itself created."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if _MIRROR in (metadata.get("annotations") or {}):
        return set()
    names = [
        ("serviceaccounts", spec.get("serviceAccountName")),
        *(("secrets", one.get("name")) for one in spec.get("imagePullSecrets") or ()),
        *(
            result
            for kind in ("initContainers", "containers", "ephemeralContainers")
            for one in spec.get(kind) or ()
            for result in _env(one)
        ),
        *(result for volume in spec.get("volumes") or () for result in _volume(metadata["name"], volume)),
        *(("resourceclaims", name) for name in _claims(spec, pod.get("status") or {})),
    ]
    return {NamedResource(resource, metadata["namespace"], name) for resource, name in names if name}


def _env(container: JSONObject) -> Iterator[tuple[str, str | None]]:
    for source in container.get("envFrom") or ():
        yield "secrets", (source.get("secretRef") or {}).get("name")
        yield "configmaps", (source.get("configMapRef") or {}).get("name")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        yield "secrets", (source.get("secretKeyRef") or {}).get("name")
        yield "configmaps", (source.get("configMapKeyRef") or {}).get("name")


def _volume(pod: str, volume: JSONObject) -> Iterator[tuple[str, str | None]]:
    yield "secrets", (volume.get("secret") or {}).get("secretName")
    yield "secrets", (volume.get("azureFile") or {}).get("secretName")
    yield "secrets", ((volume.get("csi") or {}).get("nodePublishSecretRef") or {}).get("name")
    for kind in _WITH_SECRET:
        yield "secrets", ((volume.get(kind) or {}).get("secretRef") or {}).get("name")
    yield "configmaps", (volume.get("configMap") or {}).get("name")
    for source in (volume.get("projected") or {}).get("sources") or ():
        yield "secrets", (source.get("secret") or {}).get("name")
        yield "configmaps", (source.get("configMap") or {}).get("name")
    yield "persistentvolumeclaims", (volume.get("persistentVolumeClaim") or {}).get("claimName")
    if "ephemeral" in volume:
        yield "persistentvolumeclaims", f"{pod}-{volume['name']}"


def _claims(spec: JSONObject, status: JSONObject) -> Iterator[str | None]:
    made = {one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or ()}
    for claim in spec.get("resourceClaims") or ():
        yield claim.get("resourceClaimName") or made.get(claim["name"])
    yield (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")


def volume_dependencies(volume: JSONObject) -> tuple[NamedResource | None, set[NamedResource]]:
    """Return the claim that a persistent volume is bound to, and the secrets that a node needs to mount it."""
    spec = volume.get("spec") or {}
    claim = spec.get("claimRef")
    if not claim:
        return None, set()
    beside = claim.get("namespace", "")
    result = set()
    azure = spec.get("azureFile") or {}
    result.add((azure.get("secretNamespace") or beside, azure.get("secretName")))
    for kind in _WITH_SECRET:
        secret = (spec.get(kind) or {}).get("secretRef") or {}
        result.add((secret.get("namespace") or (beside if kind in _BESIDE_CLAIM else ""), secret.get("name")))
    for kind in ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"):
        secret = (spec.get("csi") or {}).get(kind) or {}
        result.add((secret.get("namespace", ""), secret.get("name")))
    secrets = {NamedResource("secrets", namespace, name) for namespace, name in result if name}
    return NamedResource("persistentvolumeclaims", beside, claim.get("name", "")), secrets


# The graph of nodes and the objects that they need. Source: k8s.io/kubernetes plugin/pkg/auth/authorizer/node/graph.go.


class NodeGraph:
    """A graph that says which nodes need which objects.

    Each ``put_`` method takes the namespace, name and object; None means that the object was deleted.
    """

    def __init__(self) -> None:
        #: Object -> node -> number of pods on the node that need the object.
        self._needed: dict[NamedResource, Counter[str]] = {}
        self._pods: dict[tuple[str, str], tuple[str, set[NamedResource]]] = {}
        self._volumes: dict[str, tuple[NamedResource, set[NamedResource]]] = {}
        self._volumes_by_secret: dict[NamedResource, set[str]] = {}
        #: Object -> the one node that owns it.
        self._owned: dict[NamedResource, str] = {}

    def put_pod(self, namespace: str, name: str, pod: JSONObject | None) -> None:
        """Store or remove a pod."""
        node, needs = self._pods.pop((namespace, name), ("", set()))
        for one in needs:
            counts = self._needed[one]
            counts[node] -= 1
            if not counts[node]:
                del counts[node]
            if not counts:
                del self._needed[one]
        node = "" if pod is None else (pod.get("spec") or {}).get("nodeName") or ""
        if pod is not None and node:
            needs = pod_dependencies(pod) | {NamedResource("pods", namespace, name)}
            self._pods[namespace, name] = node, needs
            for one in needs:
                self._needed.setdefault(one, Counter())[node] += 1

    def put_volume(self, _: str, name: str, volume: JSONObject | None) -> None:
        """Store or remove a PersistentVolume."""
        for secret in self._volumes.pop(name, (None, set()))[1]:
            self._volumes_by_secret[secret].discard(name)
            if not self._volumes_by_secret[secret]:
                del self._volumes_by_secret[secret]
        claim, secrets = (None, set()) if volume is None else volume_dependencies(volume)
        if claim is not None:
            self._volumes[name] = claim, secrets
            for secret in secrets:
                self._volumes_by_secret.setdefault(secret, set()).add(name)

    def put_attachment(self, _: str, name: str, attachment: JSONObject | None) -> None:
        """Store or remove a VolumeAttachment."""
        self._own("volumeattachments", name, attachment)

    def put_slice(self, _: str, name: str, slice_: JSONObject | None) -> None:
        """Store or remove a ResourceSlice."""
        self._own("resourceslices", name, slice_)

    def _own(self, resource: str, name: str, obj: JSONObject | None) -> None:
        node = "" if obj is None else (obj.get("spec") or {}).get("nodeName") or ""
        reference = NamedResource(resource, "", name)
        if node:
            self._owned[reference] = node
        else:
            self._owned.pop(reference, None)

    def relates(self, node: str, to: NamedResource) -> bool:
        """Return whether the node owns the object or has a pod that needs it."""
        if node in self._needed.get(to, ()) or self._owned.get(to) == node:
            return True
        if to.resource == "persistentvolumes":
            return self._uses(node, to.name)
        return to.resource == "secrets" and any(self._uses(node, volume) for volume in self._volumes_by_secret.get(to, ()))

    def _uses(self, node: str, volume: str) -> bool:
        result = self._volumes.get(volume)
        return result is not None and node in self._needed.get(result[0], ())


_GROUP, _PREFIX = "system:nodes", "system:node:"
_LEASES = "kube-node-lease"
_ALLOWED = Decision(True)
_OWN = ("get", "create", "update", "patch", "delete")


def node_identity(user: User) -> str | None:
    """Return the node of a user, or None if the user is not a node."""
    return user.name.removeprefix(_PREFIX) if user.name.startswith(_PREFIX) and _GROUP in user.groups else None


class NodeAuthorizer:
    """Allows a node to use the objects that its pods need. It starts to watch pods and volumes at the first request of a node.

    Guarantees
        After ``prepare``, a decision takes into account all writes whose response was sent earlier.
    """

    def __init__(self, objects: Objects, cache: WatchCache) -> None:
        self._objects = objects
        self._cache = cache
        self._graph: NodeGraph | None = None
        self._starting = asyncio.Lock()

    async def prepare(self, user: User) -> None:
        if node_identity(user) is None:
            return
        async with self._starting:
            if self._graph is None:
                graph = NodeGraph()
                for resource, put in (
                    ("core/pods", graph.put_pod),
                    ("core/persistentvolumes", graph.put_volume),
                    ("storage.k8s.io/volumeattachments", graph.put_attachment),
                    ("resource.k8s.io/resourceslices", graph.put_slice),
                ):
                    await follow_objects(f"{ROOT}{resource}/", put, self._objects, self._cache, wait=False)
                self._graph = graph
        await self._cache.wait_until(await self._objects.storage.revision())

    def rules(self, user: User, namespace: str) -> Rules:
        if node_identity(user) is None:
            return Rules()
        return Rules(incomplete=True, error="node authorizer does not support user rule resolution")

    def authorize(self, access: Access) -> Decision:
        node = node_identity(access.user)
        if node is None:
            return NO_OPINION
        if not node:
            return _no(f'unknown node for user "{access.user.name}"')
        subdivided = _SUBDIVIDED.get((access.group, access.resource)) if access.is_resource else None
        if subdivided is not None:
            return subdivided(self, node, access)
        return _ALLOWED if _node_rules().allow(access) else NO_OPINION

    def related(self, node: str, access: Access) -> Decision:
        """Allow any verb on a named object that is related to the node."""
        if not access.name:
            return _no("No Object name found")
        to = NamedResource(access.resource, access.namespace, access.name)
        if self._graph is not None and self._graph.relates(node, to):
            return _ALLOWED
        return _unrelated(node)

    def get(self, node: str, access: Access) -> Decision:
        """Allow get of related objects."""
        if access.verb != "get":
            return _no("can only get individual resources of this type")
        return _no("cannot get subresource") if access.subresource else self.related(node, access)

    def read(self, node: str, access: Access) -> Decision:
        """Allow get, list and watch of related objects."""
        if access.verb not in ("get", "list", "watch"):
            return _no("can only read resources of this type")
        if access.subresource:
            return _no("cannot read subresource")
        return self.related(node, access) if access.namespace else _no("can only read namespaced object of this type")

    def claim(self, node: str, access: Access) -> Decision:
        """Decide about a PersistentVolumeClaim."""
        if access.subresource != "status":
            return self.get(node, access)
        return self.related(node, access) if access.verb in ("update", "patch") else _no("can only get/update/patch this type")

    def account(self, node: str, access: Access) -> Decision:
        """Decide about a ServiceAccount or its token."""
        if access.verb == "get" and not access.subresource:
            return self.read(node, access)
        if access.verb != "create" or not access.name:
            return _no("can only create tokens for individual service accounts")
        return self.related(node, access) if access.subresource == "token" else _no("can only create token subresource of serviceaccount")

    def lease(self, node: str, access: Access) -> Decision:
        """Decide about the Lease of the node."""
        if access.verb not in _OWN:
            return _no("can only get, create, update, patch, or delete a node lease")
        if access.namespace != _LEASES:
            return _no(f'can only access leases in the "{_LEASES}" system namespace')
        # The admission plug-in NodeRestriction checks the name of a new Lease.
        if access.verb != "create" and access.name != node:
            return _no("can only access node lease with the same name as the requesting node")
        return _ALLOWED

    def csi_node(self, node: str, access: Access) -> Decision:
        """Decide about the CSINode of the node."""
        if access.verb not in _OWN:
            return _no("can only get, create, update, patch, or delete a CSINode")
        if access.subresource:
            return _no("cannot authorize CSINode subresources")
        if access.verb != "create" and access.name != node:
            return _no("can only access CSINode with the same name as the requesting node")
        return _ALLOWED

    def resource_slice(self, node: str, access: Access) -> Decision:
        """Decide about ResourceSlices of the node."""
        if access.subresource:
            return _no("cannot authorize ResourceSlice subresources")
        match access.verb:
            case "create":
                return _ALLOWED
            case "get" | "update" | "patch" | "delete":
                return self.related(node, access)
            case "watch" | "list" | "deletecollection":
                reason = "can only list/watch/deletecollection resourceslices with nodeName field selector"
                return _ALLOWED if _selects(access, node) else _no(reason)
        verbs = "get, watch, list, create, update, patch, delete, deletecollection"
        return _no(f"only the following verbs are allowed for a ResourceSlice: {verbs}")

    def node(self, node: str, access: Access) -> Decision:
        """Decide about a Node."""
        match access.subresource, access.verb:
            case ("", "create" | "update" | "patch") | ("status", "update" | "patch"):
                return _ALLOWED
            case "", "get" | "list" | "watch":
                if access.name == node:
                    return _ALLOWED
                description = f"'{access.name}'" if access.name else "all nodes"
                return _no(f"node '{node}' cannot read {description}, only its own Node object")
        return NO_OPINION

    def pod(self, node: str, access: Access) -> Decision:
        """Decide about a pod."""
        match access.subresource, access.verb:
            case "", "get":
                return self.get(node, access)
            case "", "list" | "watch":
                if _selects(access, node):
                    return _ALLOWED
                return self.related(node, access) if access.name else _no("can only list/watch pods with spec.nodeName field selector")
            case ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
                return _ALLOWED
        return NO_OPINION


_Subdivided = Callable[[NodeAuthorizer, str, Access], Decision]

#: (group, resource) -> decision, for resources of which a node may use only related objects.
_SUBDIVIDED: dict[tuple[str, str], _Subdivided] = {
    ("", "secrets"): NodeAuthorizer.read,
    ("", "configmaps"): NodeAuthorizer.read,
    ("", "persistentvolumeclaims"): NodeAuthorizer.claim,
    ("", "persistentvolumes"): NodeAuthorizer.get,
    ("", "serviceaccounts"): NodeAuthorizer.account,
    ("", "nodes"): NodeAuthorizer.node,
    ("", "pods"): NodeAuthorizer.pod,
    ("resource.k8s.io", "resourceclaims"): NodeAuthorizer.get,
    ("resource.k8s.io", "resourceslices"): NodeAuthorizer.resource_slice,
    ("storage.k8s.io", "volumeattachments"): NodeAuthorizer.get,
    ("storage.k8s.io", "csinodes"): NodeAuthorizer.csi_node,
    ("coordination.k8s.io", "leases"): NodeAuthorizer.lease,
    ("certificates.k8s.io", "podcertificaterequests"): lambda *_: NO_OPINION,  # its feature is off by default
}


def _selects(access: Access, node: str) -> bool:
    return any(one.field == "spec.nodeName" and one.operator is FieldOperator.EQUALS and one.value == node for one in access.fields)


def _no(reason: str) -> Decision:
    return Decision(False, reason=reason)


def _unrelated(node: str) -> Decision:
    return _no(f"no relationship found between node '{node}' and this object")


@cache
def _node_rules() -> RoleRules:
    """Return the rules that all nodes have: those of the default role system:node, even if the stored role differs."""
    from kubeloop.apiserver.builtin.bootstrap.objects import default_roles

    return RoleRules(next(obj["rules"] for resource, obj in default_roles() if obj["metadata"]["name"] == "system:node"))
