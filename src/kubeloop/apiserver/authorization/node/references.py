"""What pods and volumes refer to by name. Source: k8s.io/kubernetes pkg/api/v1/{pod,persistentvolume}/util.go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kubeloop.types import JSONObject


class Reference(NamedTuple):
    """An object that somebody needs; ``resource`` is its plural name."""

    resource: str
    namespace: str
    name: str


#: Volumes with a secretRef.
_WITH_SECRET = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
#: Of those, the ones that look for it beside the claim if they name no namespace.
_BESIDE_CLAIM = ("cephfs", "flexVolume", "rbd", "scaleIO", "iscsi")
_MIRROR = "kubernetes.io/config.mirror"


def of_pod(pod: JSONObject) -> set[Reference]:
    """What the node of ``pod`` must read for its sake; nothing for a mirror pod, which the node made itself."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if _MIRROR in (metadata.get("annotations") or {}):
        return set()
    names = [
        ("serviceaccounts", spec.get("serviceAccountName")),
        *(("secrets", one.get("name")) for one in spec.get("imagePullSecrets") or ()),
        *(found for kind in ("initContainers", "containers", "ephemeralContainers") for one in spec.get(kind) or () for found in _env(one)),
        *(found for volume in spec.get("volumes") or () for found in _volume(metadata["name"], volume)),
        *(("resourceclaims", name) for name in _claims(spec, pod.get("status") or {})),
    ]
    return {Reference(resource, metadata["namespace"], name) for resource, name in names if name}


def _env(container: JSONObject) -> Iterator[tuple[str, str | None]]:
    for source in container.get("envFrom") or ():
        yield "secrets", (source.get("secretRef") or {}).get("name")
        yield "configmaps", (source.get("configMapRef") or {}).get("name")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        yield "secrets", (source.get("secretKeyRef") or {}).get("name")
        yield "configmaps", (source.get("configMapKeyRef") or {}).get("name")


def _volume(pod: str, volume: JSONObject) -> Iterator[tuple[str, str | None]]:
    yield "secrets", (volume.get("secret") or {}).get("secretName")
    yield "secrets", (volume.get("azureFile") or {}).get("secretName")
    yield "secrets", ((volume.get("csi") or {}).get("nodePublishSecretRef") or {}).get("name")
    for kind in _WITH_SECRET:
        yield "secrets", ((volume.get(kind) or {}).get("secretRef") or {}).get("name")
    yield "configmaps", (volume.get("configMap") or {}).get("name")
    for source in (volume.get("projected") or {}).get("sources") or ():
        yield "secrets", (source.get("secret") or {}).get("name")
        yield "configmaps", (source.get("configMap") or {}).get("name")
    yield "persistentvolumeclaims", (volume.get("persistentVolumeClaim") or {}).get("claimName")
    if "ephemeral" in volume:
        yield "persistentvolumeclaims", f"{pod}-{volume['name']}"


def _claims(spec: JSONObject, status: JSONObject) -> Iterator[str | None]:
    made = {one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or ()}
    for claim in spec.get("resourceClaims") or ():
        yield claim.get("resourceClaimName") or made.get(claim["name"])
    yield (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")


def of_volume(volume: JSONObject) -> tuple[Reference | None, set[Reference]]:
    """The claim that a persistent volume is bound to, and the secrets that a node needs to use it."""
    spec = volume.get("spec") or {}
    claim = spec.get("claimRef")
    if not claim:
        return None, set()
    beside = claim.get("namespace", "")
    found = set()
    azure = spec.get("azureFile") or {}
    found.add((azure.get("secretNamespace") or beside, azure.get("secretName")))
    for kind in _WITH_SECRET:
        secret = (spec.get(kind) or {}).get("secretRef") or {}
        found.add((secret.get("namespace") or (beside if kind in _BESIDE_CLAIM else ""), secret.get("name")))
    for kind in ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"):
        secret = (spec.get("csi") or {}).get(kind) or {}
        found.add((secret.get("namespace", ""), secret.get("name")))
    secrets = {Reference("secrets", namespace, name) for namespace, name in found if name}
    return Reference("persistentvolumeclaims", beside, claim.get("name", "")), secrets
