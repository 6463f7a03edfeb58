"""How the registry treats each built-in resource, beyond its validation: one row where a kind differs from the rule.

Source: the RESTCreateStrategy and RESTUpdateStrategy of each resource under k8s.io/kubernetes pkg/registry, 1.36.
"""

from __future__ import annotations

from kubeloop.meta.kinds import GroupResource

_ADMISSION, _RESOURCE, _STORAGE = "admissionregistration.k8s.io", "resource.k8s.io", "storage.k8s.io"
_RBAC, _NETWORKING, _FLOW = "rbac.authorization.k8s.io", "networking.k8s.io", "flowcontrol.apiserver.k8s.io"


def _of(group: str, *resources: str) -> set[GroupResource]:
    return {GroupResource(group, one) for one in resources}


#: ``metadata.generation`` is kept.
HAS_GENERATION = (
    _of("", "pods", "podtemplates", "replicationcontrollers")
    | _of("apps", "daemonsets", "deployments", "replicasets", "statefulsets")
    | _of("batch", "cronjobs", "jobs")
    | _of("discovery.k8s.io", "endpointslices")
    | _of(_NETWORKING, "ingresses", "ingressclasses", "networkpolicies")
    | _of("policy", "poddisruptionbudgets")
    | _of("scheduling.k8s.io", "priorityclasses")
    | _of(_FLOW, "flowschemas", "prioritylevelconfigurations")
    | _of(_RESOURCE, "deviceclasses", "resourceslices")
    | _of(_ADMISSION, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations")
    | _of(_ADMISSION, "validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations")
    | _of("apiextensions.k8s.io", "customresourcedefinitions")
)

#: An update creates what does not exist.
CREATED_BY_UPDATE = (
    _of("", "endpoints", "events", "limitranges", "services")
    | _of("events.k8s.io", "events")
    | _of("coordination.k8s.io", "leases", "leasecandidates")
    | _of("node.k8s.io", "runtimeclasses")
    | _of(_RBAC, "clusterroles", "clusterrolebindings", "roles", "rolebindings")
)

#: An update must name the resourceVersion that it replaces.
CONDITIONAL_UPDATE = (
    _of("coordination.k8s.io", "leases", "leasecandidates")
    | _of("node.k8s.io", "runtimeclasses")
    | _of("policy", "poddisruptionbudgets")
    | _of(_STORAGE, "csidrivers", "csinodes", "csistoragecapacities", "volumeattachments")
    | _of(_ADMISSION, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations")
    | _of(_ADMISSION, "validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations")
    | _of("certificates.k8s.io", "clustertrustbundles", "podcertificaterequests")
    | _of("apiextensions.k8s.io", "customresourcedefinitions")
    | _of("apiregistration.k8s.io", "apiservices")
)

#: Dependents are orphaned when a deletion names no policy: a promise of old versions.
ORPHANS = _of("", "replicationcontrollers") | _of("batch", "jobs")

#: A deletion that is done answers with the object, not with a Status.
RETURNS_DELETED = (
    _of("", "namespaces", "persistentvolumes", "persistentvolumeclaims", "pods", "podtemplates", "resourcequotas", "serviceaccounts")
    | _of("", "services")
    | _of(_STORAGE, "csidrivers", "csinodes", "storageclasses", "volumeattachments", "volumeattributesclasses")
    | _of(_RESOURCE, "deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
)

#: What a selector of a field that the kind does not offer is told, where the words are the kind's own.
UNKNOWN_FIELD = {
    GroupResource("batch", "jobs"): 'field label "{field}" not supported for Job',
    GroupResource(_RESOURCE, "resourceslices"): "field label not supported for {version}, Kind=ResourceSlice: {field}",
}

#: Warnings that every request for a resource gets.
DEPRECATIONS = {
    GroupResource("", "componentstatuses"): "v1 ComponentStatus is deprecated in v1.19+",
    GroupResource("", "endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}
