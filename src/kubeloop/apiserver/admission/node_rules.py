"""Checks of single objects for NodeRestriction. Source: plugin/pkg/admission/noderestriction, k8s.io/kubelet pkg/apis, pkg/api/pod."""

from __future__ import annotations

from kubeloop.apiserver.builtin.pods.references import MIRROR, config_map_names, secret_names
from kubeloop.types import JSONObject

_KUBELETS_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    }
)
_KUBELETS_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESTRICTED = "node-restriction.kubernetes.io"
_SIGNERS = frozenset({"kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"})
_CLAIM_STATUS = frozenset({"capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"})
#: Kind of volume -> name of the API object it refers to, for error messages.
_API_VOLUMES = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_API_SOURCES = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def mirror_pod_error(pod: JSONObject, node: str, value: JSONObject | None) -> str:
    """Return why a kubelet may not create a pod, or an empty text if it may. ``value`` is the Node, or None if it does not exist."""
    metadata, spec = pod["metadata"], pod["spec"]
    if MIRROR not in (metadata.get("annotations") or {}):
        return f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods'
    if spec.get("nodeName") != node:
        return f'node "{node}" can only create pods with spec.nodeName set to itself'
    owners = metadata.get("ownerReferences") or []
    if len(owners) > 1:
        return f'node "{node}" can only create pods with a single owner reference set to itself'
    owner = owners[0] if owners else {}
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        return f'node "{node}" can only create pods with an owner reference set to itself'
    if not owner.get("controller"):
        return f'node "{node}" can only create pods with a controller owner reference set to itself'
    if owner.get("blockOwnerDeletion"):
        return f'node "{node}" must not set blockOwnerDeletion on an owner reference'
    if value is None:
        return ""
    uid = value["metadata"]["uid"]
    if owner.get("uid") != uid:
        return f"node {node} UID mismatch: expected {owner.get('uid', '')} got {uid}"
    named = _api_reference(spec)
    return f'node "{node}" can not create pods that reference {named}' if named else ""


def _api_reference(spec: JSONObject) -> str:
    """Return the first kind of API object that a pod refers to, or an empty text if there is none. Mirror pods may refer to none."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if any(True for _ in secret_names(spec)):
        return "secrets"
    if any(True for _ in config_map_names(spec)):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in spec.get("volumes") or ():
        for kind, named in _API_VOLUMES.items():
            if volume.get(kind) is not None:
                return named
        for source in (volume.get("projected") or {}).get("sources") or ():
            for kind, named in _API_SOURCES.items():
                if source.get(kind) is not None:
                    return named
    return ""


def forbidden_labels(labels: dict[str, str] | None, before: dict[str, str] | None) -> list[str]:
    """Return the changed node labels that a kubelet may not set, sorted."""
    now, then = labels or {}, before or {}
    changed = {key for key in (*now, *then) if now.get(key) != then.get(key)}
    return sorted(key for key in changed if _is_forbidden(key))


def _is_forbidden(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    if not slash:
        return False
    if _is_below(domain, _RESTRICTED):
        return True
    is_kubernetes = _is_below(domain, "kubernetes.io") or _is_below(domain, "k8s.io")
    return is_kubernetes and key not in _KUBELETS_LABELS and not any(_is_below(domain, one) for one in _KUBELETS_DOMAINS)


def _is_below(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")


def equal_claims(now: list[JSONObject] | None, before: list[JSONObject] | None) -> bool:
    """Return whether two lists of resource claim statuses are equal."""
    shown = [[(one.get("name"), one.get("resourceClaimName")) for one in several or ()] for several in (now, before)]
    return shown[0] == shown[1]


def is_within_claim_status(claim: JSONObject, old: JSONObject) -> bool:
    """Return whether an update changes only the parts of a PersistentVolumeClaim's status that kubelets may change."""

    def rest(resource_claim: JSONObject) -> JSONObject:
        metadata = {key: value for key, value in resource_claim["metadata"].items() if key not in ("resourceVersion", "managedFields")}
        status = {key: value for key, value in (resource_claim.get("status") or {}).items() if key not in _CLAIM_STATUS}
        return {**resource_claim, "metadata": metadata, "status": status}

    return rest(claim) == rest(old)


def certificate_request_error(request: JSONObject, node: str) -> str:
    """Return why a kubelet may not create a CertificateSigningRequest, or an empty text if it may."""
    spec = request.get("spec") or {}
    if spec.get("signerName") not in _SIGNERS:
        return ""
    from kubeloop.apiserver.builtin.certificates.pem import common_name_of

    try:
        name = common_name_of(spec.get("request"))
    except ValueError as error:
        return f"unable to parse csr: {error}"
    return "" if name == f"system:node:{node}" else f"can only create a node CSR with CN=system:node:{node}"
