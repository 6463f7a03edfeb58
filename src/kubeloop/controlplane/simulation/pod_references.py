"""References of a pod to ConfigMaps, Secrets and volume claims, and which of them prevent its containers from starting. No I/O.

Source: Kubernetes pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables), pkg/volume/secret, configmap and projected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kubeloop.types import JSONObject

_WORDS = {"ConfigMap": "configmap", "Secret": "secret", "PersistentVolumeClaim": "persistentvolumeclaim"}


#: The only key of a PersistentVolumeClaim in this module, which it has while it is bound.
BOUND = "Bound"


class PodReference(NamedTuple):
    """A reference of a pod to an object of its namespace, by a volume or the environment of a container.

    ``keys`` are the required keys of the object. Either ``volume`` or ``container`` is set.
    """

    kind: str
    name: str
    keys: tuple[str, ...]
    volume: str = ""
    container: str = ""

    @property
    def target(self) -> tuple[str, str]:
        return self.kind, self.name


@dataclass(frozen=True)
class MissingReferences:
    """The unresolved references that prevent containers from starting: the kubelet's messages by volume and by container."""

    volumes: Mapping[str, str]
    containers: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.volumes or self.containers)


def references_of(spec: JSONObject) -> list[PodReference]:
    """Return the references of a pod spec that are not optional, in the order in which the kubelet resolves them."""
    result = [one for volume in spec.get("volumes") or () for one in _of_volume(volume)]
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        result += _of_container(container)
    return result


def _of_volume(volume: JSONObject) -> Iterator[PodReference]:
    name = volume["name"]
    if claim := volume.get("persistentVolumeClaim"):
        yield PodReference("PersistentVolumeClaim", claim["claimName"], (BOUND,), volume=name)
    sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
    for source in sources:
        for field, kind, key in (("secret", "Secret", "secretName"), ("configMap", "ConfigMap", "name")):
            chosen = source.get(field)
            if chosen is None or chosen.get("optional"):
                continue
            named = chosen.get(key) or chosen.get("name") or ""
            yield PodReference(kind, named, tuple(item["key"] for item in chosen.get("items") or ()), volume=name)


def _of_container(container: JSONObject) -> Iterator[PodReference]:
    for source in container.get("envFrom") or ():
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            chosen = source.get(field)
            if chosen is not None and not chosen.get("optional"):
                yield PodReference(kind, chosen.get("name") or "", (), container=container["name"])
    for variable in container.get("env") or ():
        for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            chosen = (variable.get("valueFrom") or {}).get(field)
            if chosen is not None and not chosen.get("optional"):
                yield PodReference(kind, chosen.get("name") or "", (chosen["key"],), container=container["name"])


def find_missing(
    namespace: str, references: list[PodReference], keys: Mapping[tuple[str, str], frozenset[str] | None]
) -> MissingReferences:
    """Return which references cannot be resolved.

    Args:
        namespace: The pod's namespace.
        references: The references.
        keys: The keys of each object by kind and name; None for a missing object.
    """
    volumes: dict[str, str] = {}
    containers: dict[str, str] = {}
    for one in references:
        present = keys[one.target]
        lacking = "" if present is None else next((key for key in one.keys if key not in present), "")
        if present is not None and not lacking:
            continue
        if one.container:
            missing_key = f"couldn't find key {lacking} in {one.kind} {namespace}/{one.name}"
            containers.setdefault(one.container, missing_key if lacking else f'{_WORDS[one.kind]} "{one.name}" not found')
        elif one.kind == "PersistentVolumeClaim":
            reason = (
                "PVC is not bound" if lacking else f'failed to fetch PVC from API server: persistentvolumeclaims "{one.name}" not found'
            )
            volumes.setdefault(one.volume, f"error processing PVC {namespace}/{one.name}: {reason}")
        else:
            faulty = "configmap references non-existent config key" if one.kind == "ConfigMap" else "references non-existent secret key"
            volumes.setdefault(one.volume, f"{faulty}: {lacking}" if lacking else f'{_WORDS[one.kind]} "{one.name}" not found')
    return MissingReferences(volumes, containers)
