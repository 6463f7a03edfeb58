"""Classes that objects get which name none: DefaultStorageClass, DefaultIngressClass.

Source: plugin/pkg/admission/storage/storageclass/setdefault, plugin/pkg/admission/network/defaultingressclass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeloop.apiserver.admission.chain import Attributes
from kubeloop.apiserver.admission.kept import Kept
from kubeloop.meta.kinds import GroupResource

JSONObject = dict[str, Any]

_INGRESS_CLASS = "kubernetes.io/ingress.class"
_OLD_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"


class DefaultStorageClass:
    """``classes``: all StorageClasses. Claims get the default one also when they are updated."""

    resources = frozenset({GroupResource("", "persistentvolumeclaims")})

    def __init__(self, classes: Kept) -> None:
        self._classes = classes

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or attributes.subresource or attributes.operation != "CREATE":
            return
        spec = obj.setdefault("spec", {})
        if spec.get("storageClassName") is not None or _OLD_STORAGE_CLASS in (obj["metadata"].get("annotations") or {}):
            return
        prefixes = ("storageclass.kubernetes.io", "storageclass.beta.kubernetes.io")
        name = _newest(await self._classes.of(), [f"{prefix}/is-default-class" for prefix in prefixes])
        if name:
            spec["storageClassName"] = name

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""


class DefaultIngressClass:
    """``classes``: all IngressClasses."""

    resources = frozenset({GroupResource("networking.k8s.io", "ingresses")})

    def __init__(self, classes: Kept) -> None:
        self._classes = classes

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or attributes.subresource or attributes.operation != "CREATE":
            return
        spec, annotations = obj.setdefault("spec", {}), obj["metadata"].get("annotations") or {}
        if spec.get("ingressClassName") is not None or _INGRESS_CLASS in annotations:
            return
        name = _newest(await self._classes.of(), ["ingressclass.kubernetes.io/is-default-class"])
        if name:
            spec["ingressClassName"] = name

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""


def _newest(classes: Iterable[JSONObject], annotations: list[str]) -> str:
    """The name of the newest class that says that it is the default, of equally new ones the first by name; empty: there is none."""
    defaults = []
    for one in classes:
        said = one["metadata"].get("annotations") or {}
        if any(said.get(key) == "true" for key in annotations):
            defaults.append(one["metadata"])
    if not defaults:
        return ""
    newest = max(metadata["creationTimestamp"] for metadata in defaults)
    found: str = min(metadata["name"] for metadata in defaults if metadata["creationTimestamp"] == newest)
    return found
