"""What a pod's RuntimeClass brings: overhead, node selector, tolerations.

Source: plugin/pkg/admission/runtimeclass, pkg/util/tolerations.
"""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupResource, GroupVersionResource
from kubeloop.meta.quantity import Quantity

JSONObject = dict[str, Any]

_PODS = GroupResource("", "pods")
_CLASSES = GroupVersionResource("node.k8s.io", "v1", "runtimeclasses")
_DIFFERENT = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_WITHOUT = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


class RuntimeClasses:
    """A new pod whose class does not exist, or that contradicts its class, is refused."""

    resources = frozenset({_PODS})

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        if not _is_new_pod(attributes):
            return
        assert attributes.obj is not None
        spec = attributes.obj["spec"]
        found = await self._class(attributes, spec)
        overhead, scheduling = found.get("overhead"), found.get("scheduling")
        if overhead is not None:
            fixed = overhead.get("podFixed") or {}
            if spec.get("overhead") and not _equal(fixed, spec["overhead"]):
                raise _refused(attributes, _DIFFERENT)
            if fixed:
                spec["overhead"] = dict(fixed)
        if scheduling is not None:
            _schedule(attributes, spec, scheduling)

    async def validate(self, attributes: Attributes) -> None:
        if not _is_new_pod(attributes):
            return
        assert attributes.obj is not None
        spec = attributes.obj["spec"]
        overhead = (await self._class(attributes, spec)).get("overhead")
        if overhead is None and spec.get("overhead") is not None:
            raise _refused(attributes, _WITHOUT)
        if overhead is not None and not _equal(overhead.get("podFixed") or {}, spec.get("overhead") or {}):
            raise _refused(attributes, _DIFFERENT)

    async def _class(self, attributes: Attributes, spec: JSONObject) -> JSONObject:
        """Empty for a pod that names none."""
        name = spec.get("runtimeClassName")
        if name is None:
            return {}
        classes = self._registry.get(_CLASSES)
        found = await self._objects.get(classes, "", name) if classes else None
        if found is None:
            raise _refused(attributes, f'pod rejected: RuntimeClass "{name}" not found')
        return found.obj


def _is_new_pod(attributes: Attributes) -> bool:
    is_pod = attributes.resource.gvr.group_resource == _PODS and not attributes.subresource
    return is_pod and attributes.operation == "CREATE" and attributes.obj is not None


def _refused(attributes: Attributes, why: str) -> ApiError:
    metadata = (attributes.obj or {}).get("metadata", {})
    return refusals.forbidden(_PODS, attributes.name or metadata.get("generateName") or metadata.get("name") or "Unknown", why)


def _equal(one: JSONObject, other: JSONObject) -> bool:
    return one.keys() == other.keys() and all(Quantity(one[name]) == Quantity(other[name]) for name in one)


def _schedule(attributes: Attributes, spec: JSONObject, scheduling: JSONObject) -> None:
    wanted = scheduling.get("nodeSelector") or {}
    selector = spec.get("nodeSelector") or {}
    for key, value in wanted.items():
        if selector.get(key, value) != value:
            why = f"runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {selector[key]}"
            raise _refused(attributes, f"conflict: {why}")
    if wanted:
        spec["nodeSelector"] = {**selector, **wanted}
    tolerations = merged_tolerations([*(spec.get("tolerations") or []), *(scheduling.get("tolerations") or [])])
    if tolerations:
        spec["tolerations"] = tolerations


def merged_tolerations(tolerations: list[JSONObject]) -> list[JSONObject]:
    """Without those that another one covers; of equal ones the first stays."""
    kept: list[JSONObject] = []
    for at, one in enumerate(tolerations):
        if any(_covers(other, one) for other in kept):
            continue
        if any(other != one and _covers(other, one) for other in tolerations[at + 1 :]):
            continue
        kept.append(one)
    return kept


def _covers(wide: JSONObject, one: JSONObject) -> bool:
    if wide == one:
        return True
    any_key = not wide.get("key") and wide.get("operator") == "Exists"
    if wide.get("key", "") != one.get("key", "") and not any_key:
        return False
    if wide.get("effect") and wide["effect"] != one.get("effect", ""):
        return False
    if wide.get("effect") == "NoExecute" and wide.get("tolerationSeconds") is not None:
        seconds = one.get("tolerationSeconds")
        if seconds is None or seconds > wide["tolerationSeconds"]:
            return False
    if wide.get("operator") in (None, "", "Equal"):
        return one.get("operator") == "Equal" and one.get("value", "") == wide.get("value", "")
    return wide.get("operator") == "Exists"
