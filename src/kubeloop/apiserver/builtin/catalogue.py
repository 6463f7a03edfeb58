"""One strategy for each built-in resource: its own class where the kind has rules, else the generic one."""

from __future__ import annotations

from kubeloop.apiserver.builtin import facts
from kubeloop.apiserver.builtin.aggregation import APIServiceStrategy
from kubeloop.apiserver.builtin.apps.daemon_set import DaemonSetStrategy
from kubeloop.apiserver.builtin.apps.deployment import DeploymentStrategy, ReplicaSetStrategy
from kubeloop.apiserver.builtin.apps.stateful_set import ControllerRevisionStrategy, StatefulSetStrategy
from kubeloop.apiserver.builtin.autoscaling.strategy import AutoscalerStrategy
from kubeloop.apiserver.builtin.batch.cron_job import CronJobStrategy
from kubeloop.apiserver.builtin.batch.job import JobStrategy
from kubeloop.apiserver.builtin.certificates.signing_request import SigningRequestStrategy
from kubeloop.apiserver.builtin.claims import ClaimStrategy
from kubeloop.apiserver.builtin.devices.claims import ResourceClaimStrategy, ResourceClaimTemplateStrategy
from kubeloop.apiserver.builtin.devices.device_class import DeviceClassStrategy
from kubeloop.apiserver.builtin.devices.resource_slice import ResourceSliceStrategy
from kubeloop.apiserver.builtin.disruption_budgets import DisruptionBudgetStrategy
from kubeloop.apiserver.builtin.endpoint_slices import EndpointSliceStrategy
from kubeloop.apiserver.builtin.endpoints import EndpointsStrategy
from kubeloop.apiserver.builtin.events import EventStrategy
from kubeloop.apiserver.builtin.flow_control import FlowSchemaStrategy
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.leases import LeaseStrategy
from kubeloop.apiserver.builtin.limit_ranges import LimitRangeStrategy
from kubeloop.apiserver.builtin.namespaces import NamespaceStrategy
from kubeloop.apiserver.builtin.networking.ingress import IngressStrategy
from kubeloop.apiserver.builtin.networking.ingress_class import IngressClassStrategy
from kubeloop.apiserver.builtin.networking.network_policy import NetworkPolicyStrategy
from kubeloop.apiserver.builtin.networking.service_cidr import IPAddressStrategy, ServiceCIDRStrategy
from kubeloop.apiserver.builtin.nodes import NodeStrategy
from kubeloop.apiserver.builtin.plain import ConfigMapStrategy, SecretStrategy, ServiceAccountStrategy
from kubeloop.apiserver.builtin.pods.strategy import PodStrategy
from kubeloop.apiserver.builtin.policies.bindings import MutatingBindingStrategy, ValidatingBindingStrategy
from kubeloop.apiserver.builtin.policies.mutating import MutatingPolicyStrategy
from kubeloop.apiserver.builtin.policies.validating import ValidatingPolicyStrategy
from kubeloop.apiserver.builtin.priority_classes import PriorityClassStrategy
from kubeloop.apiserver.builtin.priority_levels import PriorityLevelStrategy
from kubeloop.apiserver.builtin.quotas import QuotaStrategy
from kubeloop.apiserver.builtin.replication import PodTemplateStrategy, ReplicationControllerStrategy
from kubeloop.apiserver.builtin.roles import RoleBindingStrategy, RoleStrategy
from kubeloop.apiserver.builtin.runtime_classes import RuntimeClassStrategy
from kubeloop.apiserver.builtin.services.strategy import ServiceStrategy
from kubeloop.apiserver.builtin.storage.attachments import VolumeAttachmentStrategy, VolumeAttributesClassStrategy
from kubeloop.apiserver.builtin.storage.csi import CSIDriverStrategy, CSINodeStrategy, CSIStorageCapacityStrategy
from kubeloop.apiserver.builtin.storage.storage_class import StorageClassStrategy
from kubeloop.apiserver.builtin.storage.volume import VolumeStrategy
from kubeloop.apiserver.builtin.webhook_configurations import WebhookConfigurationStrategy
from kubeloop.apiserver.strategy import Strategy
from kubeloop.meta.kinds import GroupKind, GroupResource
from kubeloop.schema import ResourceInfo, builtin

#: Groups whose validation knows no standard finalizers: theirs need a domain like everybody's, and are not checked further.
_OWN_METADATA = {"coordination.k8s.io", "admissionregistration.k8s.io", "node.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"}

_CLASSES: dict[GroupResource, type[BuiltinStrategy]] = {
    GroupResource("", "pods"): PodStrategy,
    GroupResource("admissionregistration.k8s.io", "mutatingadmissionpolicies"): MutatingPolicyStrategy,
    GroupResource("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): MutatingBindingStrategy,
    GroupResource("admissionregistration.k8s.io", "validatingadmissionpolicies"): ValidatingPolicyStrategy,
    GroupResource("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): ValidatingBindingStrategy,
    GroupResource("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): WebhookConfigurationStrategy,
    GroupResource("admissionregistration.k8s.io", "validatingwebhookconfigurations"): WebhookConfigurationStrategy,
    GroupResource("", "configmaps"): ConfigMapStrategy,
    GroupResource("", "endpoints"): EndpointsStrategy,
    GroupResource("", "events"): EventStrategy,
    GroupResource("", "namespaces"): NamespaceStrategy,
    GroupResource("", "nodes"): NodeStrategy,
    GroupResource("", "secrets"): SecretStrategy,
    GroupResource("", "serviceaccounts"): ServiceAccountStrategy,
    GroupResource("", "services"): ServiceStrategy,
    GroupResource("", "persistentvolumeclaims"): ClaimStrategy,
    GroupResource("", "persistentvolumes"): VolumeStrategy,
    GroupResource("batch", "cronjobs"): CronJobStrategy,
    GroupResource("batch", "jobs"): JobStrategy,
    GroupResource("certificates.k8s.io", "certificatesigningrequests"): SigningRequestStrategy,
    GroupResource("coordination.k8s.io", "leases"): LeaseStrategy,
    GroupResource("discovery.k8s.io", "endpointslices"): EndpointSliceStrategy,
    GroupResource("events.k8s.io", "events"): EventStrategy,
    GroupResource("apps", "controllerrevisions"): ControllerRevisionStrategy,
    GroupResource("apps", "daemonsets"): DaemonSetStrategy,
    GroupResource("apps", "deployments"): DeploymentStrategy,
    GroupResource("apps", "replicasets"): ReplicaSetStrategy,
    GroupResource("apps", "statefulsets"): StatefulSetStrategy,
    GroupResource("", "limitranges"): LimitRangeStrategy,
    GroupResource("", "resourcequotas"): QuotaStrategy,
    GroupResource("autoscaling", "horizontalpodautoscalers"): AutoscalerStrategy,
    GroupResource("networking.k8s.io", "ingressclasses"): IngressClassStrategy,
    GroupResource("networking.k8s.io", "ingresses"): IngressStrategy,
    GroupResource("networking.k8s.io", "networkpolicies"): NetworkPolicyStrategy,
    GroupResource("policy", "poddisruptionbudgets"): DisruptionBudgetStrategy,
    GroupResource("rbac.authorization.k8s.io", "clusterrolebindings"): RoleBindingStrategy,
    GroupResource("rbac.authorization.k8s.io", "clusterroles"): RoleStrategy,
    GroupResource("rbac.authorization.k8s.io", "rolebindings"): RoleBindingStrategy,
    GroupResource("rbac.authorization.k8s.io", "roles"): RoleStrategy,
    GroupResource("scheduling.k8s.io", "priorityclasses"): PriorityClassStrategy,
    GroupResource("storage.k8s.io", "storageclasses"): StorageClassStrategy,
    GroupResource("", "podtemplates"): PodTemplateStrategy,
    GroupResource("", "replicationcontrollers"): ReplicationControllerStrategy,
    GroupResource("apiregistration.k8s.io", "apiservices"): APIServiceStrategy,
    GroupResource("flowcontrol.apiserver.k8s.io", "flowschemas"): FlowSchemaStrategy,
    GroupResource("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): PriorityLevelStrategy,
    GroupResource("networking.k8s.io", "ipaddresses"): IPAddressStrategy,
    GroupResource("networking.k8s.io", "servicecidrs"): ServiceCIDRStrategy,
    GroupResource("node.k8s.io", "runtimeclasses"): RuntimeClassStrategy,
    GroupResource("resource.k8s.io", "deviceclasses"): DeviceClassStrategy,
    GroupResource("resource.k8s.io", "resourceclaims"): ResourceClaimStrategy,
    GroupResource("resource.k8s.io", "resourceclaimtemplates"): ResourceClaimTemplateStrategy,
    GroupResource("resource.k8s.io", "resourceslices"): ResourceSliceStrategy,
    GroupResource("storage.k8s.io", "csidrivers"): CSIDriverStrategy,
    GroupResource("storage.k8s.io", "csinodes"): CSINodeStrategy,
    GroupResource("storage.k8s.io", "csistoragecapacities"): CSIStorageCapacityStrategy,
    GroupResource("storage.k8s.io", "volumeattachments"): VolumeAttachmentStrategy,
    GroupResource("storage.k8s.io", "volumeattributesclasses"): VolumeAttributesClassStrategy,
}


def strategies() -> dict[GroupResource, Strategy]:
    """A strategy for every resource that a default server serves, for all its versions."""
    return {info.gvr.group_resource: strategy_of(info) for info in builtin().resources()}


def strategy_of(info: ResourceInfo) -> BuiltinStrategy:
    group_resource = info.gvr.group_resource
    made = _CLASSES.get(group_resource, BuiltinStrategy)(GroupKind(info.gvr.group, info.kind))
    made.has_generation = group_resource in facts.HAS_GENERATION
    made.has_status = any(sub.name == "status" for sub in info.subresources)
    made.allow_create_on_update = group_resource in facts.CREATED_BY_UPDATE
    made.allow_unconditional_update = group_resource not in facts.CONDITIONAL_UPDATE
    made.default_propagation = "orphan" if group_resource in facts.ORPHANS else "background"
    made.returns_deleted = group_resource in facts.RETURNS_DELETED
    made.standard_finalizers = info.gvr.group not in _OWN_METADATA
    made.field_labels = tuple(label for label in info.selectable_fields if " " not in label and not label.startswith("metadata."))
    made.unknown_field = facts.UNKNOWN_FIELD.get(group_resource, made.unknown_field)
    return made
