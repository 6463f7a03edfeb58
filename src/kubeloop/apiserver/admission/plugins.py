"""Makes the plug-ins of a server, in the order of ``table``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from kubeloop.apiserver.admission.cached_lister import CachedList
from kubeloop.apiserver.admission.chain import Plugin
from kubeloop.apiserver.admission.checks import AdminAccess, CertificateApproval, CertificateSigning, ClaimExpansion, SubjectRestriction
from kubeloop.apiserver.admission.defaults import (
    DefaultIngressClass,
    DefaultStorageClass,
    DefaultTolerations,
    NodeTaints,
    StorageProtection,
)
from kubeloop.apiserver.admission.limit_ranges import LimitRanges
from kubeloop.apiserver.admission.namespaces import NamespaceLifecycle
from kubeloop.apiserver.admission.pod_security import PodSecurity
from kubeloop.apiserver.admission.pods import DeclaredFeatures, PodResize, Priority, RuntimeClasses, TopologyLabels
from kubeloop.apiserver.admission.quotas import QUOTAS, Quotas, QuotaStatus
from kubeloop.apiserver.admission.service_accounts import ServiceAccounts
from kubeloop.apiserver.admission.service_addresses import ServiceAddresses
from kubeloop.apiserver.admission.table import ORDER, chosen
from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.write_request import ObjectWriter
from kubeloop.apiserver.request.access import Authorizer
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.timing import Clock


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """kube-apiserver's --enable-admission-plugins and --disable-admission-plugins."""

    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginInitializer:
    """Parts of the server that plug-ins use.

    ``others``: plug-ins of other packages (webhooks, policies), by Kubernetes' names. ``checks``: they run first; upstream has them in
    validation.
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


def plugins(means: PluginInitializer, options: AdmissionOptions | None = None) -> list[Plugin]:
    """Return the plug-ins in order. Those that are no plug-ins upstream (devices, addresses of services) come last.

    Raises:
        ConfigError: The options name a plug-in that is unknown, unavailable, or both enabled and disabled.
    """
    options = options or AdmissionOptions()
    names = chosen(options.enable, options.disable)
    makers = _makers(means)
    made = [makers[name]() for name in ORDER if name in names and name in makers]
    where = means.registry, means.objects
    return [*means.checks, *made, AdminAccess(*where), ServiceAddresses(*where, means.cache, means.ranges, means.clock)]


def _makers(means: PluginInitializer) -> dict[str, Callable[[], Plugin]]:
    """Kubernetes' name -> constructor. Plug-ins whose feature gate is off in 1.36, and those that admit everything, are left out."""
    where = means.registry, means.objects

    def kept(group: str, resource: str) -> CachedList:
        served = means.registry.get(GroupVersionResource(group, "v1", resource))
        if served is not None:
            # A limit is in force before its write is answered.
            means.objects.follow(served.storage_prefix, means.cache.reached)
        return CachedList(GroupVersionResource(group, "v1", resource), means.registry, means.objects, means.cache)

    def quotas() -> Plugin:
        status = QuotaStatus(means.registry, means.objects, means.writer)
        return Quotas(kept(QUOTAS.group, QUOTAS.resource), status.read, status.note, means.clock)

    return {
        "NamespaceAutoProvision": partial(_provisioning, means),
        "NamespaceLifecycle": lambda: NamespaceLifecycle(*where),
        "NamespaceExists": partial(_existing, means),
        "LimitPodHardAntiAffinityTopology": partial(_optional, "HardAntiAffinity"),
        "LimitRanger": lambda: LimitRanges(kept("", "limitranges")),
        "ServiceAccount": lambda: ServiceAccounts(*where, means.clock),
        "NodeRestriction": partial(_node_restriction, means),
        "TaintNodesByCondition": NodeTaints,
        "AlwaysPullImages": partial(_optional, "AlwaysPullImages"),
        "PodSecurity": lambda: PodSecurity(*where),
        "Priority": lambda: Priority(kept("scheduling.k8s.io", "priorityclasses"), *where),
        "DefaultTolerationSeconds": DefaultTolerations,
        "ExtendedResourceToleration": partial(_optional, "ExtendedResourceToleration"),
        "DefaultStorageClass": lambda: DefaultStorageClass(kept("storage.k8s.io", "storageclasses")),
        "StorageObjectInUseProtection": StorageProtection,
        "OwnerReferencesPermissionEnforcement": partial(_owner_permissions, means),
        "PersistentVolumeClaimResize": lambda: ClaimExpansion(*where),
        "RuntimeClass": lambda: RuntimeClasses(*where),
        "CertificateApproval": lambda: CertificateApproval(means.authorizer),
        "CertificateSigning": lambda: CertificateSigning(means.authorizer),
        "CertificateSubjectRestriction": SubjectRestriction,
        "DefaultIngressClass": lambda: DefaultIngressClass(kept("networking.k8s.io", "ingressclasses")),
        "DenyServiceExternalIPs": partial(_optional, "DenyExternalAddresses"),
        "PodTopologyLabels": lambda: TopologyLabels(*where),
        "NodeDeclaredFeatureValidator": lambda: DeclaredFeatures(*where),
        "PodResizeValidator": lambda: PodResize(*where),
        **{name: partial(means.others.__getitem__, name) for name in means.others},
        "ResourceQuota": quotas,
        "AlwaysDeny": partial(_optional, "AlwaysDeny"),
    }


def _optional(name: str) -> Plugin:
    """Import and return a plug-in that is off by default."""
    from kubeloop.apiserver.admission import optional

    made: Plugin = getattr(optional, name)()
    return made


def _owner_permissions(means: PluginInitializer) -> Plugin:
    from kubeloop.apiserver.admission.checks import OwnerPermissions

    return OwnerPermissions(means.registry, means.authorizer)


def _node_restriction(means: PluginInitializer) -> Plugin:
    from kubeloop.apiserver.admission.node_restriction import NodeRestriction

    return NodeRestriction(means.registry, means.objects, means.authorizer)


def _provisioning(means: PluginInitializer) -> Plugin:
    from kubeloop.apiserver.admission.optional import NamespaceAutoProvision

    return NamespaceAutoProvision(means.registry, means.objects, means.writer)


def _existing(means: PluginInitializer) -> Plugin:
    from kubeloop.apiserver.admission.optional import NamespaceExists

    return NamespaceExists(means.registry, means.objects)
