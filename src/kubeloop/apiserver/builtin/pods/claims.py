"""Resource claims of pods (dynamic resource allocation). Source: validatePodResourceClaims."""

from __future__ import annotations

from kubeloop.apiserver.validation.formats import label_name_field, subdomain_field
from kubeloop.meta.field_error import Errors, duplicate, forbidden, invalid, required
from kubeloop.types import JSONObject

MIRROR = "kubernetes.io/config.mirror"


def claim_names(spec: JSONObject) -> set[str]:
    return {claim["name"] for claim in spec.get("resourceClaims") or () if claim.get("name")}


def resource_claims(path: str, claims: list[JSONObject], metadata: JSONObject | None) -> Errors:
    seen: set[str] = set()
    for at, claim in enumerate(claims):
        here, name = f"{path}[{at}]", claim.get("name", "")
        if metadata is not None and MIRROR in (metadata.get("annotations") or {}):
            yield forbidden("[]", "static pods do not support resource claims")
            continue
        if not name:
            yield required(f"{here}.name")
        elif name in seen:
            yield duplicate(f"{here}.name", name)
        else:
            yield from label_name_field(f"{here}.name", name)
            seen.add(name)
        claimed, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
        shown = {"Name": name, "ResourceClaimName": claimed, "ResourceClaimTemplateName": template}
        if claimed is not None and template is not None:
            yield invalid(here, shown, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
        if claimed is None and template is None:
            yield invalid(here, shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        if claimed is not None:
            yield from subdomain_field(f"{here}.resourceClaimName", claimed)
        if template is not None:
            yield from subdomain_field(f"{here}.resourceClaimTemplateName", template)
