"""The strategy of each built-in resource: the class of its kind, or the generic one for a kind without rules.

A class is imported with the first write of its kind, because importing all classes takes longer than the rest of the server's start.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, partial

from kubeloop.apiserver.builtin.kind import BuiltinStrategy, StrategySettings
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.meta.kinds import GroupKind, GroupResource
from kubeloop.schema import ResourceInfo, builtin

# How the registry treats each built-in resource, apart from validation. Each set lists the resources that differ from the default.
#
# Source: the RESTCreateStrategy and RESTUpdateStrategy of each resource under k8s.io/kubernetes pkg/registry, 1.36.


_ADMISSION, _RESOURCE, _STORAGE = "admissionregistration.k8s.io", "resource.k8s.io", "storage.k8s.io"
_RBAC, _NETWORKING, _FLOW = "rbac.authorization.k8s.io", "networking.k8s.io", "flowcontrol.apiserver.k8s.io"


def _of(group: str, *resources: str) -> set[GroupResource]:
    return {GroupResource(group, one) for one in resources}


#: Resources with ``metadata.generation``.
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

#: Resources whose update creates a missing object.
CREATED_BY_UPDATE = (
    _of("", "endpoints", "events", "limitranges", "services")
    | _of("events.k8s.io", "events")
    | _of("coordination.k8s.io", "leases", "leasecandidates")
    | _of("node.k8s.io", "runtimeclasses")
    | _of(_RBAC, "clusterroles", "clusterrolebindings", "roles", "rolebindings")
)

#: Resources whose update must name the resourceVersion that it replaces.
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

#: Resources whose dependents are orphaned if a deletion names no policy, for compatibility with old versions.
ORPHANS = _of("", "replicationcontrollers") | _of("batch", "jobs")

#: Resources whose completed deletion returns the object instead of a Status.
RETURNS_DELETED = (
    _of("", "namespaces", "persistentvolumes", "persistentvolumeclaims", "pods", "podtemplates", "resourcequotas", "serviceaccounts")
    | _of("", "services")
    | _of(_STORAGE, "csidrivers", "csinodes", "storageclasses", "volumeattachments", "volumeattributesclasses")
    | _of(_RESOURCE, "deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices")
)

#: Message for an unsupported field selector, of resources with a message that differs from the default.
UNKNOWN_FIELD = {
    GroupResource("batch", "jobs"): 'field label "{field}" not supported for Job',
    GroupResource(_RESOURCE, "resourceslices"): "field label not supported for {version}, Kind=ResourceSlice: {field}",
}

#: Warning for every request of a deprecated resource.
DEPRECATIONS = {
    GroupResource("", "componentstatuses"): "v1 ComponentStatus is deprecated in v1.19+",
    GroupResource("", "endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}


#: Groups whose validation accepts any qualified name as finalizer. In other groups, a finalizer without a domain must be a standard one.
_OWN_METADATA = {"coordination.k8s.io", "admissionregistration.k8s.io", "node.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"}

#: Resource -> its strategy, as module below this package and class.
_CLASSES: dict[GroupResource, str] = {
    GroupResource("", "pods"): "pods.strategy:PodStrategy",
    GroupResource("admissionregistration.k8s.io", "mutatingadmissionpolicies"): "policies.strategies:MutatingPolicyStrategy",
    GroupResource("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): "policies.strategies:MutatingBindingStrategy",
    GroupResource("admissionregistration.k8s.io", "validatingadmissionpolicies"): "policies.strategies:ValidatingPolicyStrategy",
    GroupResource("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): "policies.strategies:ValidatingBindingStrategy",
    GroupResource("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): "registrations:WebhookConfigurationStrategy",
    GroupResource("admissionregistration.k8s.io", "validatingwebhookconfigurations"): "registrations:WebhookConfigurationStrategy",
    GroupResource("", "configmaps"): "core:ConfigMapStrategy",
    GroupResource("", "endpoints"): "endpoints:EndpointsStrategy",
    GroupResource("", "events"): "core:EventStrategy",
    GroupResource("", "namespaces"): "core:NamespaceStrategy",
    GroupResource("", "nodes"): "nodes:NodeStrategy",
    GroupResource("", "secrets"): "core:SecretStrategy",
    GroupResource("", "serviceaccounts"): "core:ServiceAccountStrategy",
    GroupResource("", "services"): "services.strategy:ServiceStrategy",
    GroupResource("", "persistentvolumeclaims"): "claims:ClaimStrategy",
    GroupResource("", "persistentvolumes"): "storage.volume:VolumeStrategy",
    GroupResource("batch", "cronjobs"): "batch.cron_job:CronJobStrategy",
    GroupResource("batch", "jobs"): "batch.job:JobStrategy",
    GroupResource("certificates.k8s.io", "certificatesigningrequests"): "certificates.signing_request:SigningRequestStrategy",
    GroupResource("coordination.k8s.io", "leases"): "core:LeaseStrategy",
    GroupResource("discovery.k8s.io", "endpointslices"): "endpoints:EndpointSliceStrategy",
    GroupResource("events.k8s.io", "events"): "core:EventStrategy",
    GroupResource("apps", "controllerrevisions"): "apps.stateful_set:ControllerRevisionStrategy",
    GroupResource("apps", "daemonsets"): "apps.workloads:DaemonSetStrategy",
    GroupResource("apps", "deployments"): "apps.workloads:DeploymentStrategy",
    GroupResource("apps", "replicasets"): "apps.workloads:ReplicaSetStrategy",
    GroupResource("apps", "statefulsets"): "apps.stateful_set:StatefulSetStrategy",
    GroupResource("", "limitranges"): "quotas:LimitRangeStrategy",
    GroupResource("", "resourcequotas"): "quotas:QuotaStrategy",
    GroupResource("autoscaling", "horizontalpodautoscalers"): "autoscaling.strategy:AutoscalerStrategy",
    GroupResource("networking.k8s.io", "ingressclasses"): "networking.ingress:IngressClassStrategy",
    GroupResource("networking.k8s.io", "ingresses"): "networking.ingress:IngressStrategy",
    GroupResource("networking.k8s.io", "networkpolicies"): "networking.network_policy:NetworkPolicyStrategy",
    GroupResource("policy", "poddisruptionbudgets"): "pod_policies:DisruptionBudgetStrategy",
    GroupResource("rbac.authorization.k8s.io", "clusterrolebindings"): "roles:RoleBindingStrategy",
    GroupResource("rbac.authorization.k8s.io", "clusterroles"): "roles:RoleStrategy",
    GroupResource("rbac.authorization.k8s.io", "rolebindings"): "roles:RoleBindingStrategy",
    GroupResource("rbac.authorization.k8s.io", "roles"): "roles:RoleStrategy",
    GroupResource("scheduling.k8s.io", "priorityclasses"): "pod_policies:PriorityClassStrategy",
    GroupResource("storage.k8s.io", "storageclasses"): "storage.attachments:StorageClassStrategy",
    GroupResource("", "podtemplates"): "apps.workloads:PodTemplateStrategy",
    GroupResource("", "replicationcontrollers"): "apps.workloads:ReplicationControllerStrategy",
    GroupResource("apiregistration.k8s.io", "apiservices"): "registrations:APIServiceStrategy",
    GroupResource("flowcontrol.apiserver.k8s.io", "flowschemas"): "flow_control:FlowSchemaStrategy",
    GroupResource("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): "flow_control:PriorityLevelStrategy",
    GroupResource("networking.k8s.io", "ipaddresses"): "services.cluster_ips:IPAddressStrategy",
    GroupResource("networking.k8s.io", "servicecidrs"): "services.cluster_ips:ServiceCIDRStrategy",
    GroupResource("node.k8s.io", "runtimeclasses"): "pod_policies:RuntimeClassStrategy",
    GroupResource("resource.k8s.io", "deviceclasses"): "devices.claims:DeviceClassStrategy",
    GroupResource("resource.k8s.io", "resourceclaims"): "devices.claims:ResourceClaimStrategy",
    GroupResource("resource.k8s.io", "resourceclaimtemplates"): "devices.claims:ResourceClaimTemplateStrategy",
    GroupResource("resource.k8s.io", "resourceslices"): "devices.resource_slice:ResourceSliceStrategy",
    GroupResource("storage.k8s.io", "csidrivers"): "storage.csi:CSIDriverStrategy",
    GroupResource("storage.k8s.io", "csinodes"): "storage.csi:CSINodeStrategy",
    GroupResource("storage.k8s.io", "csistoragecapacities"): "storage.csi:CSIStorageCapacityStrategy",
    GroupResource("storage.k8s.io", "volumeattachments"): "storage.attachments:VolumeAttachmentStrategy",
    GroupResource("storage.k8s.io", "volumeattributesclasses"): "storage.attachments:VolumeAttributesClassStrategy",
}


def strategies(*, loopback_endpoints: bool = False) -> dict[GroupResource, Callable[[], Strategy]]:
    """Return a function for each resource that returns its strategy, which is the same for all versions and calls.

    ``loopback_endpoints`` allows loopback addresses in Endpoints and EndpointSlices.
    """
    return {info.gvr.group_resource: cache(partial(strategy_of, info, loopback_endpoints)) for info in builtin().resources()}


def strategy_of(info: ResourceInfo, loopback_endpoints: bool = False) -> BuiltinStrategy:
    """Return a new strategy for a resource."""
    group_resource = info.gvr.group_resource
    settings = StrategySettings(
        allows_loopback=loopback_endpoints,
        has_generation=group_resource in HAS_GENERATION,
        has_status=any(sub.name == "status" for sub in info.subresources),
        allow_create_on_update=group_resource in CREATED_BY_UPDATE,
        allow_unconditional_update=group_resource not in CONDITIONAL_UPDATE,
        default_propagation="orphan" if group_resource in ORPHANS else "background",
        returns_deleted=group_resource in RETURNS_DELETED,
        standard_finalizers=info.gvr.group not in _OWN_METADATA,
        field_labels=tuple(label for label in info.selectable_fields if " " not in label and not label.startswith("metadata.")),
        unknown_field=UNKNOWN_FIELD.get(group_resource, Strategy.unknown_field),
    )
    return _class_of(group_resource)(GroupKind(info.gvr.group, info.kind), settings)


def _class_of(group_resource: GroupResource) -> type[BuiltinStrategy]:
    named = _CLASSES.get(group_resource)
    if named is None:
        return BuiltinStrategy
    module, _, name = named.partition(":")
    result: type[BuiltinStrategy] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    return result
