"""PodResizeValidator: a pod that is resized still fits its node. Source: plugin/pkg/admission/podresize."""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.admission.chain import Attributes
from kubeloop.apiserver.admission.refusing import refused
from kubeloop.apiserver.builtin.quantities import added, aggregate, is_pod_level
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.meta.kinds import GroupResource, GroupVersionResource
from kubeloop.meta.quantity import Quantity
from kubeloop.meta.status import StatusCause

JSONObject = dict[str, Any]

_PODS = GroupResource("", "pods")
_NODES = GroupVersionResource("", "v1", "nodes")


class PodResize:
    """Asked about pods that have a node, where their spec changes."""

    resources = frozenset({_PODS})

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        obj, old = attributes.obj, attributes.old
        if attributes.subresource != "resize" or attributes.operation != "UPDATE" or obj is None or old is None:
            return
        name = obj["spec"].get("nodeName")
        if not name or obj["metadata"].get("generation") == old["metadata"].get("generation"):
            return
        nodes = self._registry.get(_NODES)
        found = await self._objects.get(nodes, "", name) if nodes is not None else None
        if found is None:
            raise refused(attributes, f'node "{name}" not found')
        system = (found.obj["metadata"].get("labels") or {}).get("kubernetes.io/os", "linux")
        if system != "linux":
            why = f'pod resize is only supported on linux nodes, node "{name}" is "{system}"'
            raise refusals.forbidden(_PODS, attributes.name, why, [StatusCause(reason="UnsupportedPlatform")])
        lacking = _lacking(obj["spec"], (found.obj.get("status") or {}).get("allocatable") or {})
        if lacking:
            why = f"node didn't have enough allocatable resources: {lacking}"
            raise refusals.forbidden(_PODS, attributes.name, why, [StatusCause(reason="NodeCapacity")])


def _lacking(spec: JSONObject, allocatable: dict[str, str]) -> str:
    whole = (spec.get("resources") or {}).get("requests") or {}
    needs = {**aggregate(spec, "requests"), **{name: text for name, text in whole.items() if is_pod_level(name)}}
    needs = added(needs, spec.get("overhead") or {})
    told = []
    for name in ("cpu", "memory"):
        need, there = Quantity(needs.get(name, "0")), Quantity(allocatable.get(name, "0"))
        if need > there:
            shown = (need.milli_value(), there.milli_value()) if name == "cpu" else (need.value(), there.value())
            told.append(f"{name}, requested: {shown[0]}, allocatable: {shown[1]}")
    return "; ".join(told)
