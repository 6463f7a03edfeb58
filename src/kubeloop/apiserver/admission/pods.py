"""Admission plug-ins for pods: Priority, RuntimeClass, PodTopologyLabels, PodResizeValidator and NodeDeclaredFeatureValidator."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.apiserver.admission.cached_lister import CachedList
from kubeloop.apiserver.admission.chain import Attributes, new_forbidden
from kubeloop.apiserver.builtin.quantities import added, aggregate, is_pod_level
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.endpoints import api_errors
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupResource, GroupVersionResource
from kubeloop.meta.quantity import Quantity
from kubeloop.meta.status import StatusCause
from kubeloop.types import JSONObject

# NodeDeclaredFeatureValidator: rejects pod updates that need features which the node does not declare.
#
# Source: plugin/pkg/admission/nodedeclaredfeatures; k8s.io/component-helpers nodedeclaredfeatures/features; KEP-5328.


_PODS = GroupResource("", "pods")
_NODES = GroupVersionResource("", "v1", "nodes")


class NodeDeclaredFeatureValidator:
    """Plug-in NodeDeclaredFeatureValidator: checks changes of the spec of pods on a node against its ``status.declaredFeatures``."""

    resources = frozenset({_PODS})

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        obj, old = attributes.obj, attributes.old
        if attributes.subresource not in ("", "resize") or attributes.operation != "UPDATE" or obj is None or old is None:
            return
        name = obj["spec"].get("nodeName")
        if not name or obj["metadata"].get("generation") == old["metadata"].get("generation"):
            return
        requested = list(_wanted(obj["spec"], old["spec"]))
        if not requested:
            return
        nodes = self._registry.get(_NODES)
        stored = await self._objects.get(nodes, "", name) if nodes is not None else None
        if stored is None:
            raise new_forbidden(attributes, f'node "{name}" not found')
        declared = (stored.obj.get("status") or {}).get("declaredFeatures") or ()
        lacking = [one for one in requested if one not in declared]
        if lacking:
            raise new_forbidden(attributes, f'pod update requires features {", ".join(lacking)} which are not available on node "{name}"')


def _wanted(spec: JSONObject, old: JSONObject) -> Iterator[str]:
    """Yield the names of the features that an update needs, sorted."""
    if spec.get("resources") != old.get("resources"):
        yield "InPlacePodLevelResourcesVerticalScaling"
    for now, before in zip(spec.get("initContainers") or (), old.get("initContainers") or (), strict=False):
        if before.get("restartPolicy") != "Always" and now.get("resources") != before.get("resources"):
            yield "InPlacePodVerticalScalingInitContainers"
            return


class PodResizeValidator:
    """Plug-in PodResizeValidator: checks that the node of a pod supports an in-place resize and has enough allocatable resources."""

    resources = frozenset({_PODS})

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        obj, old = attributes.obj, attributes.old
        if attributes.subresource != "resize" or attributes.operation != "UPDATE" or obj is None or old is None:
            return
        name = obj["spec"].get("nodeName")
        if not name or obj["metadata"].get("generation") == old["metadata"].get("generation"):
            return
        nodes = self._registry.get(_NODES)
        stored = await self._objects.get(nodes, "", name) if nodes is not None else None
        if stored is None:
            raise new_forbidden(attributes, f'node "{name}" not found')
        system = (stored.obj["metadata"].get("labels") or {}).get("kubernetes.io/os", "linux")
        if system != "linux":
            why = f'pod resize is only supported on linux nodes, node "{name}" is "{system}"'
            raise api_errors.forbidden(_PODS, attributes.name, why, [StatusCause(reason="UnsupportedPlatform")])
        lacking = _lacking(obj["spec"], (stored.obj.get("status") or {}).get("allocatable") or {})
        if lacking:
            why = f"node didn't have enough allocatable resources: {lacking}"
            raise api_errors.forbidden(_PODS, attributes.name, why, [StatusCause(reason="NodeCapacity")])


def _lacking(spec: JSONObject, allocatable: dict[str, str]) -> str:
    whole = (spec.get("resources") or {}).get("requests") or {}
    needs = {**aggregate(spec, "requests"), **{name: text for name, text in whole.items() if is_pod_level(name)}}
    needs = added(needs, spec.get("overhead") or {})
    messages = []
    for name in ("cpu", "memory"):
        need, there = Quantity(needs.get(name, "0")), Quantity(allocatable.get(name, "0"))
        if need > there:
            shown = (need.milli_value(), there.milli_value()) if name == "cpu" else (need.value(), there.value())
            messages.append(f"{name}, requested: {shown[0]}, allocatable: {shown[1]}")
    return "; ".join(messages)


_PRIORITY_CLASSES = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses")
_SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_PREEMPTS = "PreemptLowerPriority"


class PriorityPlugin:
    """Plug-in Priority: sets the priority of a pod from its class, the default class, or zero; allows at most one default class.

    ``classes`` lists all PriorityClasses. It is used to find the default class; a class that a pod names is read from storage.
    """

    resources = frozenset({_PODS, _PRIORITY_CLASSES.group_resource})

    def __init__(self, classes: CachedList, registry: Registry, objects: Objects) -> None:
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
        priority, computed = spec.get("priority"), "priority admission controller computed"
        if priority is not None and priority != value:
            why = f"must not be provided in pod spec; {computed} {value} from the given PriorityClass name"
            raise new_forbidden(attributes, f"the integer value of priority ({priority}) {why}", unnamed=True)
        preemption = spec.get("preemptionPolicy")
        if preemption is not None and preemption != policy:
            why = f"must not be provided in pod spec; {computed} {policy} from the given PriorityClass name"
            raise new_forbidden(attributes, f"the string value of PreemptionPolicy ({preemption}) {why}", unnamed=True)
        spec["priority"], spec["preemptionPolicy"] = value, policy

    async def _class(self, attributes: Attributes, name: str) -> tuple[str, int, str]:
        if name:
            resource = self._registry.get(_PRIORITY_CLASSES)
            stored = await self._objects.get(resource, "", name) if resource else None
            if stored is not None:
                return name, stored.obj.get("value", 0), stored.obj.get("preemptionPolicy", _PREEMPTS)
            if name in _SYSTEM_CLASSES:
                return name, _SYSTEM_CLASSES[name], _PREEMPTS
            raise new_forbidden(attributes, f"no PriorityClass with name {name} was found", unnamed=True)
        chosen = await self._default()
        if chosen is None:
            return "", 0, _PREEMPTS
        return chosen["metadata"]["name"], chosen.get("value", 0), chosen.get("preemptionPolicy", _PREEMPTS)

    async def _default(self) -> JSONObject | None:
        """Return the default class. If a race has created several, which can also happen upstream, the one with the lowest value counts."""
        defaults = (one for one in await self._classes.items() if one.get("globalDefault"))
        return min(defaults, key=lambda priority_class: int(priority_class.get("value", 0)), default=None)

    async def validate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or not obj.get("globalDefault") or attributes.resource.gvr.group_resource != _PRIORITY_CLASSES.group_resource:
            return
        present = await self._default()
        if present is None or attributes.subresource:
            return
        name = present["metadata"]["name"]
        if attributes.operation == "CREATE" or (attributes.operation == "UPDATE" and name != obj["metadata"]["name"]):
            raise new_forbidden(attributes, f"PriorityClass {name} is already marked as default. Only one default can exist")


_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class PodTopologyLabels:
    """Plug-in PodTopologyLabels: copies topology labels of the node to new pods that name their node, and to Bindings.

    Labels of the client are overwritten.
    """

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
        stored = await self._objects.get(nodes, "", name)
        node_labels = {} if stored is None else stored.obj["metadata"].get("labels") or {}
        labels = {label: node_labels[label] for label in _LABELS if label in node_labels}
        if labels:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **labels}

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""


# RuntimeClass: sets overhead, node selector and tolerations of a pod from its class.
#
# Source: plugin/pkg/admission/runtimeclass, pkg/util/tolerations.


_RUNTIME_CLASSES = GroupVersionResource("node.k8s.io", "v1", "runtimeclasses")
_DIFFERENT = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_WITHOUT = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


class RuntimeClassPlugin:
    """Plug-in RuntimeClass: sets overhead, node selector and tolerations of a new pod from its RuntimeClass.

    It rejects a pod whose class does not exist or contradicts the pod.
    """

    resources = frozenset({_PODS})

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        if not _is_new_pod(attributes):
            return
        assert attributes.obj is not None
        spec = attributes.obj["spec"]
        value = await self._class(attributes, spec)
        overhead, scheduling = value.get("overhead"), value.get("scheduling")
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
        """Return the RuntimeClass of a pod, or an empty object if the pod names none."""
        name = spec.get("runtimeClassName")
        if name is None:
            return {}
        classes = self._registry.get(_RUNTIME_CLASSES)
        stored = await self._objects.get(classes, "", name) if classes else None
        if stored is None:
            raise _refused(attributes, f'pod rejected: RuntimeClass "{name}" not found')
        return stored.obj


def _is_new_pod(attributes: Attributes) -> bool:
    is_pod = attributes.resource.gvr.group_resource == _PODS and not attributes.subresource
    return is_pod and attributes.operation == "CREATE" and attributes.obj is not None


def _refused(attributes: Attributes, why: str) -> ApiError:
    metadata = (attributes.obj or {}).get("metadata", {})
    return api_errors.forbidden(_PODS, attributes.name or metadata.get("generateName") or metadata.get("name") or "Unknown", why)


def _equal(quantities: JSONObject, other: JSONObject) -> bool:
    return quantities.keys() == other.keys() and all(Quantity(quantities[name]) == Quantity(other[name]) for name in quantities)


def _schedule(attributes: Attributes, spec: JSONObject, scheduling: JSONObject) -> None:
    requested = scheduling.get("nodeSelector") or {}
    selector = spec.get("nodeSelector") or {}
    for key, value in requested.items():
        if selector.get(key, value) != value:
            why = f"runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {selector[key]}"
            raise _refused(attributes, f"conflict: {why}")
    if requested:
        spec["nodeSelector"] = {**selector, **requested}
    tolerations = merged_tolerations([*(spec.get("tolerations") or []), *(scheduling.get("tolerations") or [])])
    if tolerations:
        spec["tolerations"] = tolerations


def merged_tolerations(tolerations: list[JSONObject]) -> list[JSONObject]:
    """Return the tolerations without duplicates and without tolerations that another one covers."""
    retained: list[JSONObject] = []
    for index, one in enumerate(tolerations):
        if any(_covers(other, one) for other in retained):
            continue
        if any(other != one and _covers(other, one) for other in tolerations[index + 1 :]):
            continue
        retained.append(one)
    return retained


def _covers(wide: JSONObject, toleration: JSONObject) -> bool:
    if wide == toleration:
        return True
    any_key = not wide.get("key") and wide.get("operator") == "Exists"
    if wide.get("key", "") != toleration.get("key", "") and not any_key:
        return False
    if wide.get("effect") and wide["effect"] != toleration.get("effect", ""):
        return False
    if wide.get("effect") == "NoExecute" and wide.get("tolerationSeconds") is not None:
        seconds = toleration.get("tolerationSeconds")
        if seconds is None or seconds > wide["tolerationSeconds"]:
            return False
    if wide.get("operator") in (None, "", "Equal"):
        return toleration.get("operator") == "Equal" and toleration.get("value", "") == wide.get("value", "")
    return wide.get("operator") == "Exists"
