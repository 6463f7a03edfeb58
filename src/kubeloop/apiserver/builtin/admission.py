"""The plug-ins of admission that a default server runs for built-in kinds, in upstream's order.

Not among them: those that need webhooks, policies, quotas, limit ranges or default classes.
"""

from __future__ import annotations

from kubeloop.apiserver.admission import Attributes, Plugin
from kubeloop.apiserver.builtin.pods.admission import DefaultTolerations, Priority, ServiceAccounts
from kubeloop.apiserver.builtin.services.addresses import ServiceAddresses
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.meta.kinds import GroupResource

_PROTECTED = {
    GroupResource("", "persistentvolumes"): "kubernetes.io/pv-protection",
    GroupResource("", "persistentvolumeclaims"): "kubernetes.io/pvc-protection",
}
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


def builtin_plugins(registry: Registry, objects: Objects, *, default_account_may_lack: bool = False) -> list[Plugin]:
    """What comes after the namespace lifecycle. ``ServiceAddresses`` is no plug-in upstream but happens at the same moment."""
    return [
        ServiceAccounts(registry, objects, default_may_lack=default_account_may_lack),
        NodeTaints(),
        Priority(registry, objects),
        DefaultTolerations(),
        StorageProtection(),
        ServiceAddresses(registry, objects),
    ]
