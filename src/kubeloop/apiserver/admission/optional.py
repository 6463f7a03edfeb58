"""Plug-ins that are off by default and keep nothing: AlwaysDeny, AlwaysPullImages, DenyServiceExternalIPs, ExtendedResourceToleration,
LimitPodHardAntiAffinityTopology.

Source: plugin/pkg/admission/{deny,alwayspullimages,network/denyserviceexternalips,extendedresourcetoleration,antiaffinity}.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.apiserver import api_errors
from kubeloop.apiserver.admission.chain import Attributes
from kubeloop.apiserver.admission.errors import aggregated, refused
from kubeloop.apiserver.bootstrap import SYSTEM
from kubeloop.meta.field_error import not_supported
from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.names import qualified_name
from kubeloop.types import JSONObject

_PODS = GroupResource("", "pods")
_HOSTNAME = "kubernetes.io/hostname"


class AlwaysDeny:
    """The server itself goes on writing: it could not start."""

    async def mutate(self, attributes: Attributes) -> None:
        if attributes.user != SYSTEM:
            raise refused(attributes, "admission control is denying all modifications", unnamed=True)

    async def validate(self, attributes: Attributes) -> None:
        """Nothing has come this far."""


class AlwaysPullImages:
    """So that nobody uses an image that a node has for somebody else."""

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
        for at, volume in enumerate(obj["spec"].get("volumes") or ()):
            if volume.get("image") is not None:
                policies.append((f"spec.volumes[{at}].image.pullPolicy", volume["image"].get("pullPolicy", "")))
        faults = [refused(attributes, str(not_supported(path, value, ["Always"]))) for path, value in policies if value != "Always"]
        if len(faults) == 1:
            raise faults[0]
        if faults:
            raise api_errors.internal(aggregated(fault.status.message for fault in faults))


class DenyExternalAddresses:
    """Services may keep what external IPs they have, and get no more."""

    resources = frozenset({GroupResource("", "services")})

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or attributes.subresource or attributes.operation not in ("CREATE", "UPDATE"):
            return
        before = set(((attributes.old or {}).get("spec") or {}).get("externalIPs") or ())
        if not before.issuperset(obj["spec"].get("externalIPs") or ()):
            raise refused(attributes, "Use of external IPs is denied by admission control")


class ExtendedResourceToleration:
    """Pods that ask for an extended resource tolerate the taint of nodes that are kept for it."""

    resources = frozenset({_PODS})

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or not _is_pod_write(attributes):
            return
        spec = obj["spec"]
        asked = {
            name
            for kind in ("initContainers", "containers")
            for container in spec.get(kind) or ()
            for name in (container.get("resources") or {}).get("requests") or ()
            if _is_extended(name)
        }
        for name in sorted(asked):
            toleration = {"key": name, "operator": "Exists", "effect": "NoSchedule"}
            if toleration not in (spec.get("tolerations") or ()):
                spec["tolerations"] = [*(spec.get("tolerations") or []), toleration]

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""


class HardAntiAffinity:
    """Nobody keeps others' pods off more than a single node."""

    resources = frozenset({_PODS})

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

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
        for at, container in enumerate(spec.get(kind) or ()):
            yield f"spec.{kind}[{at}]", container


def _has_new_images(attributes: Attributes) -> bool:
    if attributes.operation == "CREATE" or attributes.old is None:
        return True
    assert attributes.obj is not None
    before = {one.get("image") for _, one in _containers(attributes.old["spec"])}
    return any(one.get("image") not in before for _, one in _containers(attributes.obj["spec"]))


def _is_extended(name: str) -> bool:
    native = "/" not in name or "kubernetes.io/" in name
    return not native and not name.startswith("requests.") and not qualified_name(f"requests.{name}")
