"""Secrets, ConfigMaps and ResourceClaims that a pod refers to.

Source: pkg/api/pod/util.go (VisitPodSecretNames, VisitPodConfigmapNames), validatePodResourceClaims.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.validation.formats import validate_dns_label_field, validate_subdomain_field
from kubeloop.meta.field_error import Errors, duplicate, forbidden, invalid, required
from kubeloop.types import JSONObject

#: Kind of volume with a Secret -> path of the Secret's name.
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
    """Yield init, regular and ephemeral containers."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def environment_names(container: JSONObject, *, key: str = "secretKeyRef", source_key: str = "secretRef") -> Iterator[tuple[str, str]]:
    """Yield the variable and the name of each Secret (or ConfigMap) in the environment. The variable is empty if all keys are used."""
    for source in container.get("envFrom") or ():
        if source.get(source_key) is not None:
            yield "", source[source_key].get("name", "")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get(key)
        if reference is not None:
            yield variable.get("name", ""), reference.get("name", "")


def secret_names(spec: JSONObject) -> Iterator[str]:
    """Yield the names of the Secrets that a pod uses."""
    for reference in spec.get("imagePullSecrets") or ():
        yield reference.get("name", "")
    for container in containers(spec):
        yield from (name for _, name in environment_names(container))
    for volume in spec.get("volumes") or ():
        for kind, path in _SECRETS.items():
            value: Any = volume.get(kind)
            for part in path:
                value = (value or {}).get(part)
            if value is not None:
                yield value
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("secret") is not None:
                yield source["secret"].get("name", "")


def config_map_names(spec: JSONObject) -> Iterator[str]:
    """Yield the names of the ConfigMaps that a pod uses."""
    for container in containers(spec):
        yield from (name for _, name in environment_names(container, key="configMapKeyRef", source_key="configMapRef"))
    for volume in spec.get("volumes") or ():
        if volume.get("configMap") is not None:
            yield volume["configMap"].get("name", "")
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("configMap") is not None:
                yield source["configMap"].get("name", "")


MIRROR = "kubernetes.io/config.mirror"


def claim_names(spec: JSONObject) -> set[str]:
    """Return the names of a pod's resource claims."""
    return {claim["name"] for claim in spec.get("resourceClaims") or () if claim.get("name")}


def validate_resource_claims(path: str, claims: list[JSONObject], metadata: JSONObject | None) -> Errors:
    """Validate the resource claims of a pod. ``metadata`` is None for templates."""
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here, name = f"{path}[{index}]", claim.get("name", "")
        if metadata is not None and MIRROR in (metadata.get("annotations") or {}):
            yield forbidden("[]", "static pods do not support resource claims")
            continue
        if not name:
            yield required(f"{here}.name")
        elif name in seen:
            yield duplicate(f"{here}.name", name)
        else:
            yield from validate_dns_label_field(f"{here}.name", name)
            seen.add(name)
        claimed, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
        shown = {"Name": name, "ResourceClaimName": claimed, "ResourceClaimTemplateName": template}
        if claimed is not None and template is not None:
            yield invalid(here, shown, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
        if claimed is None and template is None:
            yield invalid(here, shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        if claimed is not None:
            yield from validate_subdomain_field(f"{here}.resourceClaimName", claimed)
        if template is not None:
            yield from validate_subdomain_field(f"{here}.resourceClaimTemplateName", template)
