"""PartialObjectMetadata: an object of any kind with nothing but its metadata. Source: meta.k8s.io/v1."""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.apiserver.registry.object_meta import in_declared_order
from kubeloop.types import JSONObject

API_VERSION = "meta.k8s.io/v1"

#: Annotations by which a version tells what it has no fields for. Upstream makes them while it encodes the version, and takes the metadata
#: alone before that: so they are not in it.
_MADE_BY_VERSION = {
    ("apps/v1", "DaemonSet"): {"deprecated.daemonset.template.generation"},
    ("autoscaling/v1", "HorizontalPodAutoscaler"): {
        f"autoscaling.alpha.kubernetes.io/{name}" for name in ("metrics", "current-metrics", "conditions", "behavior")
    },
}


def partial_object(obj: JSONObject) -> JSONObject:
    """The metadata of ``obj``, in the order in which its Go type declares it. Its values are shared."""
    metadata, made = obj["metadata"], _MADE_BY_VERSION.get((obj.get("apiVersion", ""), obj.get("kind", "")))
    if made and (annotations := metadata.get("annotations")):
        metadata = {name: value for name, value in metadata.items() if name != "annotations"}
        if kept := {name: value for name, value in annotations.items() if name not in made}:
            metadata["annotations"] = kept
    return {"kind": "PartialObjectMetadata", "apiVersion": API_VERSION, "metadata": in_declared_order(metadata)}


def partial_list(objects: Iterable[JSONObject], metadata: JSONObject) -> JSONObject:
    """``metadata`` is the list's. Without objects ``items`` is null, as Go's nil slice is."""
    items = [partial_object(obj) for obj in objects]
    kept = {name: value for name, value in metadata.items() if value not in ("", None)}
    return {"kind": "PartialObjectMetadataList", "apiVersion": API_VERSION, "metadata": kept, "items": items or None}
