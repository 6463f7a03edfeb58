"""NodeDeclaredFeatureValidator: a pod that is changed asks nothing of its node that the node does not say it can.

Source: plugin/pkg/admission/nodedeclaredfeatures; k8s.io/component-helpers nodedeclaredfeatures/features; KEP-5328.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.admission.chain import Attributes
from kubeloop.apiserver.admission.refusing import refused
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.meta.kinds import GroupResource, GroupVersionResource

JSONObject = dict[str, Any]

_PODS = GroupResource("", "pods")
_NODES = GroupVersionResource("", "v1", "nodes")


class DeclaredFeatures:
    """Asked about pods that have a node, where their spec changes; ``status.declaredFeatures`` of the node tells what it can."""

    resources = frozenset({_PODS})

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        obj, old = attributes.obj, attributes.old
        if attributes.subresource not in ("", "resize") or attributes.operation != "UPDATE" or obj is None or old is None:
            return
        name = obj["spec"].get("nodeName")
        if not name or obj["metadata"].get("generation") == old["metadata"].get("generation"):
            return
        wanted = list(_wanted(obj["spec"], old["spec"]))
        if not wanted:
            return
        nodes = self._registry.get(_NODES)
        found = await self._objects.get(nodes, "", name) if nodes is not None else None
        if found is None:
            raise refused(attributes, f'node "{name}" not found')
        declared = (found.obj.get("status") or {}).get("declaredFeatures") or ()
        lacking = [one for one in wanted if one not in declared]
        if lacking:
            raise refused(attributes, f'pod update requires features {", ".join(lacking)} which are not available on node "{name}"')


def _wanted(spec: JSONObject, old: JSONObject) -> Iterator[str]:
    """Names of features, in order."""
    if spec.get("resources") != old.get("resources"):
        yield "InPlacePodLevelResourcesVerticalScaling"
    for now, before in zip(spec.get("initContainers") or (), old.get("initContainers") or (), strict=False):
        if before.get("restartPolicy") != "Always" and now.get("resources") != before.get("resources"):
            yield "InPlacePodVerticalScalingInitContainers"
            return
