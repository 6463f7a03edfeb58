"""A pod bears its node's zone and region, from when it is assigned. Source: plugin/pkg/admission/podtopologylabels."""

from __future__ import annotations

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.meta.kinds import GroupResource, GroupVersionResource

_PODS = GroupResource("", "pods")
_NODES = GroupVersionResource("", "v1", "nodes")
_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class TopologyLabels:
    """Copied onto new pods that name their node, and onto Bindings, whose labels the pod gets. What the client said is overwritten."""

    resources = frozenset({_PODS})

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or attributes.operation != "CREATE" or attributes.resource.gvr.group_resource != _PODS:
            return
        if attributes.subresource == "binding":
            target = obj.get("target") or {}
            name = target.get("name") if target.get("kind") == "Node" else None
        else:
            name = None if attributes.subresource else (obj.get("spec") or {}).get("nodeName")
        nodes = self._registry.get(_NODES)
        if not name or nodes is None:
            return
        found = await self._objects.get(nodes, "", name)
        given = {} if found is None else found.obj["metadata"].get("labels") or {}
        labels = {label: given[label] for label in _LABELS if label in given}
        if labels:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **labels}

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""
