"""What new objects bear until somebody takes it away: tolerations of pods, taints of nodes, finalizers of volumes and claims.

Source: plugin/pkg/admission/{defaulttolerationseconds,nodetaint,storage/storageobjectinuseprotection}.
"""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver.admission.chain import Attributes
from kubeloop.meta.kinds import GroupResource

JSONObject = dict[str, Any]

_PODS = GroupResource("", "pods")
_NODES = GroupResource("", "nodes")
_PROTECTED = {
    GroupResource("", "persistentvolumes"): "kubernetes.io/pv-protection",
    GroupResource("", "persistentvolumeclaims"): "kubernetes.io/pvc-protection",
    GroupResource("storage.k8s.io", "volumeattributesclasses"): "kubernetes.io/vac-protection",
}


def _created(attributes: Attributes) -> bool:
    return attributes.operation == "CREATE" and not attributes.subresource and attributes.obj is not None


class DefaultTolerations:
    """Pods stay five minutes on a node that is not ready or out of reach, unless they say otherwise."""

    resources = frozenset({_PODS})

    async def mutate(self, attributes: Attributes) -> None:
        if attributes.obj is None or attributes.subresource or attributes.operation not in ("CREATE", "UPDATE"):
            return
        spec = attributes.obj["spec"]
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
            if not any(_tolerates(one, key) for one in spec.get("tolerations") or ()):
                default = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                spec["tolerations"] = [*(spec.get("tolerations") or []), default]

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""


def _tolerates(toleration: JSONObject, key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


class NodeTaints:
    """A new node takes no pods until somebody says that it is ready: TaintNodesByCondition."""

    resources = frozenset({_NODES})

    async def mutate(self, attributes: Attributes) -> None:
        if not _created(attributes):
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

    resources = frozenset(_PROTECTED)

    async def mutate(self, attributes: Attributes) -> None:
        if not _created(attributes):
            return
        finalizer = _PROTECTED[attributes.resource.gvr.group_resource]
        assert attributes.obj is not None
        metadata = attributes.obj["metadata"]
        if finalizer not in (metadata.get("finalizers") or ()):
            metadata["finalizers"] = [*(metadata.get("finalizers") or []), finalizer]

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""
