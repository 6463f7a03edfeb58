"""Mutating plug-ins that set defaults: storage and ingress classes, tolerations of pods, taints of nodes, finalizers of volumes."""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.apiserver.admission.cached_lister import CachedList
from kubeloop.apiserver.admission.chain import Attributes
from kubeloop.meta.kinds import GroupResource
from kubeloop.types import JSONObject

# Default classes: DefaultStorageClass, DefaultIngressClass.
#
# Source: plugin/pkg/admission/storage/storageclass/setdefault, plugin/pkg/admission/network/defaultingressclass.


_INGRESS_CLASS = "kubernetes.io/ingress.class"
_OLD_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"


class DefaultStorageClass:
    """Plug-in DefaultStorageClass: sets the default class of a new claim that names none. ``classes`` lists all StorageClasses."""

    resources = frozenset({GroupResource("", "persistentvolumeclaims")})

    def __init__(self, classes: CachedList) -> None:
        self._classes = classes

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or attributes.subresource or attributes.operation != "CREATE":
            return
        spec = obj.setdefault("spec", {})
        if spec.get("storageClassName") is not None or _OLD_STORAGE_CLASS in (obj["metadata"].get("annotations") or {}):
            return
        prefixes = ("storageclass.kubernetes.io", "storageclass.beta.kubernetes.io")
        name = _newest(await self._classes.items(), [f"{prefix}/is-default-class" for prefix in prefixes])
        if name:
            spec["storageClassName"] = name

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""


class DefaultIngressClass:
    """Plug-in DefaultIngressClass: sets the default class of a new Ingress that names none. ``classes`` lists all IngressClasses."""

    resources = frozenset({GroupResource("networking.k8s.io", "ingresses")})

    def __init__(self, classes: CachedList) -> None:
        self._classes = classes

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or attributes.subresource or attributes.operation != "CREATE":
            return
        spec, annotations = obj.setdefault("spec", {}), obj["metadata"].get("annotations") or {}
        if spec.get("ingressClassName") is not None or _INGRESS_CLASS in annotations:
            return
        name = _newest(await self._classes.items(), ["ingressclass.kubernetes.io/is-default-class"])
        if name:
            spec["ingressClassName"] = name

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""


def _newest(classes: Iterable[JSONObject], annotations: list[str]) -> str:
    """Return the name of the newest default class, or an empty text if there is none. Of equally new classes, the first by name wins."""
    defaults = []
    for one in classes:
        one_annotations = one["metadata"].get("annotations") or {}
        if any(one_annotations.get(key) == "true" for key in annotations):
            defaults.append(one["metadata"])
    if not defaults:
        return ""
    newest = max(metadata["creationTimestamp"] for metadata in defaults)
    result: str = min(metadata["name"] for metadata in defaults if metadata["creationTimestamp"] == newest)
    return result


# Tolerations of new pods, taints of new nodes, finalizers of new volumes and claims.
#
# Source: plugin/pkg/admission/{defaulttolerationseconds,nodetaint,storage/storageobjectinuseprotection}.


_PODS = GroupResource("", "pods")
_NODES = GroupResource("", "nodes")
_PROTECTED = {
    GroupResource("", "persistentvolumes"): "kubernetes.io/pv-protection",
    GroupResource("", "persistentvolumeclaims"): "kubernetes.io/pvc-protection",
    GroupResource("storage.k8s.io", "volumeattributesclasses"): "kubernetes.io/vac-protection",
}


def _created(attributes: Attributes) -> bool:
    return attributes.operation == "CREATE" and not attributes.subresource and attributes.obj is not None


class DefaultTolerationSeconds:
    """Plug-in DefaultTolerationSeconds: pods stay for five minutes on a node that is not ready or not reachable, by default."""

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
        """Do nothing: this plug-in only mutates."""


def _tolerates(toleration: JSONObject, key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


class TaintNodesByCondition:
    """Plug-in TaintNodesByCondition: a new node gets the taint not-ready, so that no pod runs there before the node is ready."""

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
        """Do nothing: this plug-in only mutates."""


class StorageObjectInUseProtection:
    """Plug-in StorageObjectInUseProtection: adds the finalizer that protects volumes, claims and VolumeAttributesClasses in use."""

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
        """Do nothing: this plug-in only mutates."""
