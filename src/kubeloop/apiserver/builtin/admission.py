"""The plug-ins of admission that a default server runs for built-in kinds, in upstream's order.

Not among them: those that need policies, quotas, limit ranges or default storage classes.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.apiserver.admission import Attributes, Plugin
from kubeloop.apiserver.builtin.certificates.subject_restriction import SubjectRestriction
from kubeloop.apiserver.builtin.claim_expansion import ClaimExpansion
from kubeloop.apiserver.builtin.devices.admin_access import AdminAccess
from kubeloop.apiserver.builtin.pods.admission import DefaultTolerations, Priority, ServiceAccounts
from kubeloop.apiserver.builtin.pods.runtime_class_admission import RuntimeClasses
from kubeloop.apiserver.builtin.pods.topology_labels import TopologyLabels
from kubeloop.apiserver.builtin.services.addresses import ServiceAddresses
from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.meta.kinds import GroupResource, GroupVersionResource

_PROTECTED = {
    GroupResource("", "persistentvolumes"): "kubernetes.io/pv-protection",
    GroupResource("", "persistentvolumeclaims"): "kubernetes.io/pvc-protection",
    GroupResource("storage.k8s.io", "volumeattributesclasses"): "kubernetes.io/vac-protection",
}
_INGRESSES = GroupResource("networking.k8s.io", "ingresses")
_CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"
_NODES = GroupResource("", "nodes")


def _created(attributes: Attributes) -> bool:
    return attributes.operation == "CREATE" and not attributes.subresource and attributes.obj is not None


class NodeTaints:
    """A new node takes no pods until somebody says that it is ready: TaintNodesByCondition."""

    async def mutate(self, attributes: Attributes) -> None:
        if not _created(attributes) or attributes.resource.gvr.group_resource != _NODES:
            return
        assert attributes.obj is not None
        spec = attributes.obj.setdefault("spec", {})
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        known = [(one.get("key"), one.get("effect")) for one in spec.get("taints") or ()]
        if (taint["key"], taint["effect"]) not in known:
            spec["taints"] = [*(spec.get("taints") or []), taint]

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""


class StorageProtection:
    """Volumes and claims in use are not deleted: a finalizer that a controller removes (StorageObjectInUseProtection)."""

    async def mutate(self, attributes: Attributes) -> None:
        finalizer = _PROTECTED.get(attributes.resource.gvr.group_resource)
        if finalizer is None or not _created(attributes):
            return
        assert attributes.obj is not None
        metadata = attributes.obj["metadata"]
        if finalizer not in (metadata.get("finalizers") or ()):
            metadata["finalizers"] = [*(metadata.get("finalizers") or []), finalizer]

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""


class DefaultIngressClass:
    """An ingress that names no class gets the default one: the newest, of equally new ones the first by name."""

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        if not _created(attributes) or attributes.resource.gvr.group_resource != _INGRESSES:
            return
        assert attributes.obj is not None
        spec, annotations = attributes.obj.setdefault("spec", {}), attributes.obj["metadata"].get("annotations") or {}
        if spec.get("ingressClassName") is not None or _CLASS_ANNOTATION in annotations:
            return
        classes = self._registry.get(GroupVersionResource(_INGRESSES.group, "v1", "ingressclasses"))
        found = [] if classes is None else await self._objects.all(classes)
        defaults = [one["metadata"] for one in found if (one["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"]
        if defaults:
            newest = max(metadata["creationTimestamp"] for metadata in defaults)
            spec["ingressClassName"] = min(metadata["name"] for metadata in defaults if metadata["creationTimestamp"] == newest)

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""


def builtin_plugins(
    registry: Registry,
    objects: Objects,
    *,
    default_account_may_lack: bool = False,
    webhooks: Sequence[Plugin] = (),
    ranges: ServiceRanges | None = None,
) -> list[Plugin]:
    """What comes after the namespace lifecycle. ``ServiceAddresses`` is no plug-in upstream: it comes when all have spoken."""
    return [
        ServiceAccounts(registry, objects, default_may_lack=default_account_may_lack),
        NodeTaints(),
        Priority(registry, objects),
        DefaultTolerations(),
        StorageProtection(),
        ClaimExpansion(registry, objects),
        RuntimeClasses(registry, objects),
        SubjectRestriction(),
        DefaultIngressClass(registry, objects),
        TopologyLabels(registry, objects),
        AdminAccess(registry, objects),
        *webhooks,
        ServiceAddresses(registry, objects, ranges or ServiceRanges()),
    ]
