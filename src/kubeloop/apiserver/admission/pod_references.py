"""Names of Secrets and ConfigMaps that a pod refers to. Source: pkg/api/pod/util.go (VisitPodSecretNames, VisitPodConfigmapNames)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.types import JSONObject

#: Kinds of volumes with a Secret: where its name stands.
_SECRETS = {
    "azureFile": ("secretName",),
    "secret": ("secretName",),
    "cephfs": ("secretRef", "name"),
    "cinder": ("secretRef", "name"),
    "flexVolume": ("secretRef", "name"),
    "rbd": ("secretRef", "name"),
    "scaleIO": ("secretRef", "name"),
    "iscsi": ("secretRef", "name"),
    "storageos": ("secretRef", "name"),
    "csi": ("nodePublishSecretRef", "name"),
}


def containers(spec: JSONObject) -> Iterator[JSONObject]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def environment_names(container: JSONObject, *, key: str = "secretKeyRef", whole: str = "secretRef") -> Iterator[tuple[str, str]]:
    """Names, with that of the variable; empty for those of which all keys are taken."""
    for source in container.get("envFrom") or ():
        if source.get(whole) is not None:
            yield "", source[whole].get("name", "")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get(key)
        if reference is not None:
            yield variable.get("name", ""), reference.get("name", "")


def secret_names(spec: JSONObject) -> Iterator[str]:
    for reference in spec.get("imagePullSecrets") or ():
        yield reference.get("name", "")
    for container in containers(spec):
        yield from (name for _, name in environment_names(container))
    for volume in spec.get("volumes") or ():
        for kind, path in _SECRETS.items():
            found: Any = volume.get(kind)
            for part in path:
                found = (found or {}).get(part)
            if found is not None:
                yield found
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("secret") is not None:
                yield source["secret"].get("name", "")


def config_map_names(spec: JSONObject) -> Iterator[str]:
    for container in containers(spec):
        yield from (name for _, name in environment_names(container, key="configMapKeyRef", whole="configMapRef"))
    for volume in spec.get("volumes") or ():
        if volume.get("configMap") is not None:
            yield volume["configMap"].get("name", "")
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("configMap") is not None:
                yield source["configMap"].get("name", "")
