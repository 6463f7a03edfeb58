"""Creates the admission plug-ins of a server, in the order of ``table``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from kubeloop.apiserver.admission.cached_lister import CachedList
from kubeloop.apiserver.admission.chain import NamespaceLifecycle, Plugin
from kubeloop.apiserver.admission.checks import (
    CertificateApproval,
    CertificateSigning,
    CertificateSubjectRestriction,
    DeviceAdminAccess,
    PersistentVolumeClaimResize,
)
from kubeloop.apiserver.admission.defaults import (
    DefaultIngressClass,
    DefaultStorageClass,
    DefaultTolerationSeconds,
    StorageObjectInUseProtection,
    TaintNodesByCondition,
)
from kubeloop.apiserver.admission.limit_ranges import LimitRanger
from kubeloop.apiserver.admission.pod_security import PodSecurity
from kubeloop.apiserver.admission.pods import (
    NodeDeclaredFeatureValidator,
    PodResizeValidator,
    PodTopologyLabels,
    PriorityPlugin,
    RuntimeClassPlugin,
)
from kubeloop.apiserver.admission.quotas import QUOTAS, QuotaAdmission, QuotaStatus
from kubeloop.apiserver.admission.service_accounts import ServiceAccountPlugin
from kubeloop.apiserver.admission.service_addresses import ServiceAddressAllocator
from kubeloop.apiserver.admission.table import ORDER, enabled_plugins
from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.write_request import ObjectWriter
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints.access import Authorizer
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.timing import Clock


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """kube-apiserver's --enable-admission-plugins and --disable-admission-plugins."""

    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginInitializer:
    """Dependencies of admission plug-ins.

    ``others`` are plug-ins of other packages (webhooks, policies) by their Kubernetes names. ``checks`` run first; upstream implements them
    as validation.
    """

    registry: Registry
    objects: Objects
    cache: WatchCache
    clock: Clock
    authorizer: Authorizer
    writer: Callable[[], ObjectWriter]
    ranges: ServiceRanges = field(default_factory=ServiceRanges)
    others: Mapping[str, Plugin] = field(default_factory=dict)
    checks: Sequence[Plugin] = ()


def plugins(initializer: PluginInitializer, options: AdmissionOptions | None = None) -> list[Plugin]:
    """Return the plug-ins in order. Checks that upstream does elsewhere (devices, addresses of services) come last.

    Raises:
        ConfigError: The options name a plug-in that is unknown, unavailable, or both enabled and disabled.
    """
    options = options or AdmissionOptions()
    names = enabled_plugins(options.enable, options.disable)
    makers = _makers(initializer)
    made = [makers[name]() for name in ORDER if name in names and name in makers]
    registry, objects = initializer.registry, initializer.objects
    return [
        *initializer.checks,
        *made,
        DeviceAdminAccess(registry, objects),
        ServiceAddressAllocator(registry, objects, initializer.cache, initializer.ranges, initializer.clock),
    ]


def _makers(initializer: PluginInitializer) -> dict[str, Callable[[], Plugin]]:
    """Return the constructors of plug-ins by their Kubernetes names.

    Plug-ins whose feature gate is off in 1.36, and plug-ins that admit everything, are left out.
    """
    registry, objects = initializer.registry, initializer.objects

    def cached(group: str, resource: str) -> CachedList:
        served = initializer.registry.get(GroupVersionResource(group, "v1", resource))
        if served is not None:
            # A write waits for the cache, so that a new LimitRange, for example, applies to the next request.
            initializer.objects.on_write(served.storage_prefix, initializer.cache.wait_until)
        return CachedList(GroupVersionResource(group, "v1", resource), initializer.registry, initializer.objects, initializer.cache)

    def quotas() -> Plugin:
        status = QuotaStatus(initializer.registry, initializer.objects, initializer.writer)
        return QuotaAdmission(cached(QUOTAS.group, QUOTAS.resource), status.read, status.note, initializer.clock)

    return {
        "NamespaceAutoProvision": partial(_provisioning, initializer),
        "NamespaceLifecycle": lambda: NamespaceLifecycle(registry, objects),
        "NamespaceExists": partial(_existing, initializer),
        "LimitPodHardAntiAffinityTopology": partial(_optional, "LimitPodHardAntiAffinityTopology"),
        "LimitRanger": lambda: LimitRanger(cached("", "limitranges")),
        "ServiceAccount": lambda: ServiceAccountPlugin(registry, objects, initializer.clock),
        "NodeRestriction": partial(_node_restriction, initializer),
        "TaintNodesByCondition": TaintNodesByCondition,
        "AlwaysPullImages": partial(_optional, "AlwaysPullImages"),
        "PodSecurity": lambda: PodSecurity(registry, objects),
        "Priority": lambda: PriorityPlugin(cached("scheduling.k8s.io", "priorityclasses"), registry, objects),
        "DefaultTolerationSeconds": DefaultTolerationSeconds,
        "ExtendedResourceToleration": partial(_optional, "ExtendedResourceToleration"),
        "DefaultStorageClass": lambda: DefaultStorageClass(cached("storage.k8s.io", "storageclasses")),
        "StorageObjectInUseProtection": StorageObjectInUseProtection,
        "OwnerReferencesPermissionEnforcement": partial(_owner_permissions, initializer),
        "PersistentVolumeClaimResize": lambda: PersistentVolumeClaimResize(registry, objects),
        "RuntimeClass": lambda: RuntimeClassPlugin(registry, objects),
        "CertificateApproval": lambda: CertificateApproval(initializer.authorizer),
        "CertificateSigning": lambda: CertificateSigning(initializer.authorizer),
        "CertificateSubjectRestriction": CertificateSubjectRestriction,
        "DefaultIngressClass": lambda: DefaultIngressClass(cached("networking.k8s.io", "ingressclasses")),
        "DenyServiceExternalIPs": partial(_optional, "DenyServiceExternalIPs"),
        "PodTopologyLabels": lambda: PodTopologyLabels(registry, objects),
        "NodeDeclaredFeatureValidator": lambda: NodeDeclaredFeatureValidator(registry, objects),
        "PodResizeValidator": lambda: PodResizeValidator(registry, objects),
        **{name: partial(initializer.others.__getitem__, name) for name in initializer.others},
        "ResourceQuota": quotas,
        "AlwaysDeny": partial(_optional, "AlwaysDeny"),
    }


def _optional(name: str) -> Plugin:
    """Import and return a plug-in that is off by default."""
    from kubeloop.apiserver.admission import optional

    made: Plugin = getattr(optional, name)()
    return made


def _owner_permissions(initializer: PluginInitializer) -> Plugin:
    from kubeloop.apiserver.admission.checks import OwnerReferencesPermissionEnforcement

    return OwnerReferencesPermissionEnforcement(initializer.registry, initializer.authorizer)


def _node_restriction(initializer: PluginInitializer) -> Plugin:
    from kubeloop.apiserver.admission.node_restriction import NodeRestriction

    return NodeRestriction(initializer.registry, initializer.objects, initializer.authorizer)


def _provisioning(initializer: PluginInitializer) -> Plugin:
    from kubeloop.apiserver.admission.optional import NamespaceAutoProvision

    return NamespaceAutoProvision(initializer.registry, initializer.objects, initializer.writer)


def _existing(initializer: PluginInitializer) -> Plugin:
    from kubeloop.apiserver.admission.optional import NamespaceExists

    return NamespaceExists(initializer.registry, initializer.objects)
