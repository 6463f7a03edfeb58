"""Priority: what pods of which class come first. Source: plugin/pkg/admission/priority."""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver.admission.chain import Attributes
from kubeloop.apiserver.admission.kept import Kept
from kubeloop.apiserver.admission.refusing import refused
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.meta.kinds import GroupResource, GroupVersionResource

JSONObject = dict[str, Any]

_PODS = GroupResource("", "pods")
_CLASSES = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses")
_SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_PREEMPTS = "PreemptLowerPriority"


class Priority:
    """A pod's priority is that of its class, or of the default class, or zero; at most one class is the default.

    ``classes``: all PriorityClasses; one that is not at hand yet is looked for in storage.
    """

    resources = frozenset({_PODS, _CLASSES.group_resource})

    def __init__(self, classes: Kept, registry: Registry, objects: Objects) -> None:
        self._classes = classes
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        if attributes.obj is None or attributes.resource.gvr.group_resource != _PODS:
            return
        spec = attributes.obj.get("spec") or {}
        if attributes.subresource:
            return
        if attributes.operation == "UPDATE":
            before = (attributes.old or {}).get("spec") or {}
            for name in ("priority", "preemptionPolicy"):
                if spec.get(name) is None and before.get(name) is not None:
                    spec[name] = before[name]
        elif attributes.operation == "CREATE":
            await self._set(attributes, spec)

    async def _set(self, attributes: Attributes, spec: JSONObject) -> None:
        name, value, policy = await self._class(attributes, spec.get("priorityClassName", ""))
        if name:
            spec["priorityClassName"] = name
        given, computed = spec.get("priority"), "priority admission controller computed"
        if given is not None and given != value:
            why = f"must not be provided in pod spec; {computed} {value} from the given PriorityClass name"
            raise refused(attributes, f"the integer value of priority ({given}) {why}", unnamed=True)
        asked = spec.get("preemptionPolicy")
        if asked is not None and asked != policy:
            why = f"must not be provided in pod spec; {computed} {policy} from the given PriorityClass name"
            raise refused(attributes, f"the string value of PreemptionPolicy ({asked}) {why}", unnamed=True)
        spec["priority"], spec["preemptionPolicy"] = value, policy

    async def _class(self, attributes: Attributes, name: str) -> tuple[str, int, str]:
        if name:
            resource = self._registry.get(_CLASSES)
            found = await self._objects.get(resource, "", name) if resource else None
            if found is not None:
                return name, found.obj.get("value", 0), found.obj.get("preemptionPolicy", _PREEMPTS)
            if name in _SYSTEM_CLASSES:
                return name, _SYSTEM_CLASSES[name], _PREEMPTS
            raise refused(attributes, f"no PriorityClass with name {name} was found", unnamed=True)
        chosen = await self._default()
        if chosen is None:
            return "", 0, _PREEMPTS
        return chosen["metadata"]["name"], chosen.get("value", 0), chosen.get("preemptionPolicy", _PREEMPTS)

    async def _default(self) -> JSONObject | None:
        """Of several, which upstream's race may leave, the least."""
        defaults = (one for one in await self._classes.of() if one.get("globalDefault"))
        return min(defaults, key=lambda one: int(one.get("value", 0)), default=None)

    async def validate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or not obj.get("globalDefault") or attributes.resource.gvr.group_resource != _CLASSES.group_resource:
            return
        present = await self._default()
        if present is None or attributes.subresource:
            return
        name = present["metadata"]["name"]
        if attributes.operation == "CREATE" or (attributes.operation == "UPDATE" and name != obj["metadata"]["name"]):
            raise refused(attributes, f"PriorityClass {name} is already marked as default. Only one default can exist")
