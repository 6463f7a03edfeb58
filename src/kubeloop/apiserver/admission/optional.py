"""Plug-ins that are off by default: NamespaceAutoProvision, NamespaceExists, AlwaysDeny, AlwaysPullImages, DenyServiceExternalIPs,
ExtendedResourceToleration, LimitPodHardAntiAffinityTopology.

Source: plugin/pkg/admission/{deny,alwayspullimages,network/denyserviceexternalips,extendedresourcetoleration,antiaffinity}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubeloop.apiserver.admission.chain import NAMESPACES, Attributes, join_messages, new_forbidden
from kubeloop.apiserver.ownership import SERVER
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.write_request import ObjectWriter, WriteRequest
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import SYSTEM
from kubeloop.meta.errors import AlreadyExists
from kubeloop.meta.field_error import not_supported
from kubeloop.meta.kinds import GroupResource, GroupVersionResource
from kubeloop.meta.names import qualified_name
from kubeloop.types import JSONObject

# Source: plugin/pkg/admission/namespace/{exists,autoprovision}.


_NAMESPACES = GroupVersionResource("", "v1", "namespaces")


class NamespaceExists:
    """Plug-in NamespaceExists: rejects all writes, including deletions, in a namespace that does not exist."""

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        if attributes.operation != "CONNECT" and await _is_missing(self._registry, self._objects, attributes):
            raise api_errors.not_found(NAMESPACES, attributes.namespace)


class NamespaceAutoProvision:
    """Plug-in NamespaceAutoProvision: creates the missing namespace of an object."""

    def __init__(self, registry: Registry, objects: Objects, writer: Callable[[], ObjectWriter]) -> None:
        self._registry = registry
        self._objects = objects
        self._writer = writer

    async def mutate(self, attributes: Attributes) -> None:
        if attributes.dry_run or attributes.operation != "CREATE":
            return
        resource = await _is_missing(self._registry, self._objects, attributes)
        if resource is None:
            return
        name = attributes.namespace
        obj: JSONObject = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
        write = WriteRequest(resource, "", name, SYSTEM, manager=SERVER)
        try:
            await self._writer().create(write, obj)
        except AlreadyExists:
            return

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""


async def _is_missing(registry: Registry, objects: Objects, attributes: Attributes) -> ServedResource | None:
    """Return the resource ``namespaces`` if the namespace of a write does not exist, or None if it does."""
    if not attributes.namespace or attributes.resource.gvr.group_resource == NAMESPACES:
        return None
    resource = registry.get(_NAMESPACES)
    if resource is None or await objects.get(resource, "", attributes.namespace) is not None:
        return None
    return resource


_PODS = GroupResource("", "pods")
_HOSTNAME = "kubernetes.io/hostname"


class AlwaysDeny:
    """Plug-in AlwaysDeny: rejects every write, except those of the server itself, which could not start otherwise."""

    async def mutate(self, attributes: Attributes) -> None:
        if attributes.user != SYSTEM:
            raise new_forbidden(attributes, "admission control is denying all modifications", unnamed=True)

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing. ``mutate`` has already rejected the write."""


class AlwaysPullImages:
    """Plug-in AlwaysPullImages: sets imagePullPolicy Always, so that nodes check the permission to pull even an image that they have."""

    resources = frozenset({_PODS})

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or not _is_pod_write(attributes) or not _has_new_images(attributes):
            return
        for _, container in _containers(obj["spec"]):
            container["imagePullPolicy"] = "Always"
        for volume in obj["spec"].get("volumes") or ():
            if volume.get("image") is not None:
                volume["image"]["pullPolicy"] = "Always"

    async def validate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or not _is_pod_write(attributes) or not _has_new_images(attributes):
            return
        policies = [(f"{path}.imagePullPolicy", one.get("imagePullPolicy", "")) for path, one in _containers(obj["spec"])]
        for index, volume in enumerate(obj["spec"].get("volumes") or ()):
            if volume.get("image") is not None:
                policies.append((f"spec.volumes[{index}].image.pullPolicy", volume["image"].get("pullPolicy", "")))
        problems = [new_forbidden(attributes, str(not_supported(path, value, ["Always"]))) for path, value in policies if value != "Always"]
        if len(problems) == 1:
            raise problems[0]
        if problems:
            raise api_errors.internal(join_messages(error.status.message for error in problems))


class DenyServiceExternalIPs:
    """Plug-in DenyServiceExternalIPs: services may keep their external IPs but get no new ones."""

    resources = frozenset({GroupResource("", "services")})

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or attributes.subresource or attributes.operation not in ("CREATE", "UPDATE"):
            return
        before = set(((attributes.old or {}).get("spec") or {}).get("externalIPs") or ())
        if not before.issuperset(obj["spec"].get("externalIPs") or ()):
            raise new_forbidden(attributes, "Use of external IPs is denied by admission control")


class ExtendedResourceToleration:
    """Plug-in ExtendedResourceToleration: pods that request an extended resource tolerate the taint with the name of that resource."""

    resources = frozenset({_PODS})

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or not _is_pod_write(attributes):
            return
        spec = obj["spec"]
        requested = {
            name
            for kind in ("initContainers", "containers")
            for container in spec.get(kind) or ()
            for name in (container.get("resources") or {}).get("requests") or ()
            if _is_extended(name)
        }
        for name in sorted(requested):
            toleration = {"key": name, "operator": "Exists", "effect": "NoSchedule"}
            if toleration not in (spec.get("tolerations") or ()):
                spec["tolerations"] = [*(spec.get("tolerations") or []), toleration]

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""


class LimitPodHardAntiAffinityTopology:
    """Plug-in LimitPodHardAntiAffinityTopology: rejects required anti-affinity with a topology key other than kubernetes.io/hostname."""

    resources = frozenset({_PODS})

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or not _is_pod_write(attributes):
            return
        affinity = (obj["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            key = term.get("topologyKey", "")
            if key != _HOSTNAME:
                subject = f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key}"
                raise api_errors.forbidden(_PODS, obj["metadata"].get("name", ""), f"{subject} but only key {_HOSTNAME} is allowed")


def _is_pod_write(attributes: Attributes) -> bool:
    return not attributes.subresource and attributes.operation in ("CREATE", "UPDATE")


def _containers(spec: JSONObject) -> Iterator[tuple[str, JSONObject]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield f"spec.{kind}[{index}]", container


def _has_new_images(attributes: Attributes) -> bool:
    if attributes.operation == "CREATE" or attributes.old is None:
        return True
    assert attributes.obj is not None
    before = {one.get("image") for _, one in _containers(attributes.old["spec"])}
    return any(one.get("image") not in before for _, one in _containers(attributes.obj["spec"]))


def _is_extended(name: str) -> bool:
    native = "/" not in name or "kubernetes.io/" in name
    return not native and not name.startswith("requests.") and not qualified_name(f"requests.{name}")
