"""The names of kube-controller-manager's controllers, which of them kubeloop implements, and their selection by ``--controllers``.

Source: Kubernetes cmd/kube-controller-manager/names/controller_names.go and app/*.go (names, aliases, defaults);
k8s.io/controller-manager app/helper.go (IsControllerEnabled).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kubeloop.controller import ControllerBase, Runnable
from kubeloop.controlplane.accounts.bootstrap_tokens import BootstrapSigner, BootstrapTokenCleaner
from kubeloop.controlplane.accounts.certificates import CertificateApprover, CertificateCleaner, CertificateSigner
from kubeloop.controlplane.accounts.legacy_tokens import LegacyTokenCleaner
from kubeloop.controlplane.accounts.service_accounts import (
    ClusterRoleAggregator,
    RootCertificatePublisher,
    ServiceAccountController,
    TokenReferenceController,
    TokenSecretController,
)
from kubeloop.controlplane.autoscaling.horizontal import HorizontalPodAutoscalerController
from kubeloop.controlplane.devices.resource_claims import ResourceClaimController
from kubeloop.controlplane.garbage_collection.garbage_collector import GarbageCollector
from kubeloop.controlplane.garbage_collection.namespace import NamespaceController
from kubeloop.controlplane.nodes.node_lifecycle import NodeLifecycleController, NodeTTLController
from kubeloop.controlplane.nodes.pod_gc import PodGarbageCollector
from kubeloop.controlplane.nodes.taint_eviction import TaintEvictionController
from kubeloop.controlplane.policy.disruption import DisruptionController, StaleDisruptionController
from kubeloop.controlplane.policy.quota import QuotaController
from kubeloop.controlplane.policy.validating_policies import ValidatingPolicyStatusController
from kubeloop.controlplane.scheduling.configuration import SchedulerConfiguration
from kubeloop.controlplane.scheduling.scheduler import SCHEDULER, Scheduler
from kubeloop.controlplane.services.endpoints import EndpointsController
from kubeloop.controlplane.services.endpointslices import EndpointSliceController
from kubeloop.controlplane.services.mirroring import EndpointSliceMirroringController
from kubeloop.controlplane.services.service_cidr import ServiceCIDRController
from kubeloop.controlplane.storage.expansion import HostPathResizer, VolumeExpander
from kubeloop.controlplane.storage.host_path_provisioner import HostPathProvisioner, StandardClassCreator
from kubeloop.controlplane.storage.volume_binder import PersistentVolumeBinder
from kubeloop.controlplane.storage.volumes import (
    AttributesClassProtectionController,
    ClaimProtectionController,
    EphemeralVolumeController,
    VolumeProtectionController,
)
from kubeloop.controlplane.workloads.cron_job import CronJobController
from kubeloop.controlplane.workloads.daemonset import DaemonSetController
from kubeloop.controlplane.workloads.deployment import DeploymentController
from kubeloop.controlplane.workloads.job import JobController
from kubeloop.controlplane.workloads.job_cleanup import FinishedJobCleaner, JobFinalizerController
from kubeloop.controlplane.workloads.replicaset import ReplicaSetController, ReplicationManager
from kubeloop.controlplane.workloads.statefulset import StatefulSetController
from kubeloop.meta import ConfigError
from kubeloop.pki import CertificateAuthority, SigningKey

AnyController = ControllerBase[Any] | Runnable
_GARBAGE_COLLECTOR = "garbage-collector-controller"


@dataclass(frozen=True, slots=True, repr=False)
class ClusterKeys:
    """The signing keys of a control plane, which never leave their process.

    ``authority`` signs certificates, and ``tokens`` signs service account tokens in Secrets. Without a key (None) nothing is signed.
    """

    authority: CertificateAuthority | None = None
    tokens: SigningKey | None = None


@dataclass(frozen=True, slots=True, repr=False)
class ClusterTrust:
    """The CA certificate that controllers publish (PEM; empty: none), and the keys with which they sign."""

    authority: str = ""
    keys: ClusterKeys = ClusterKeys()


@dataclass(frozen=True, slots=True)
class ControllerEntry:
    """The name and alias of a controller, and a function that creates it.

    ``create`` returns the controller's objects; none if a prerequisite is missing, such as a signing key. ``create`` is None if kubeloop
    does not implement the controller.
    """

    name: str
    alias: str = ""
    create: Callable[[ClusterTrust], Sequence[AnyController]] | None = None
    on_by_default: bool = True


def _plain(*classes: Callable[[], AnyController]) -> Callable[[ClusterTrust], Sequence[AnyController]]:
    return lambda trust: [create() for create in classes]  # noqa: ARG005  # these controllers need no credentials


def _publisher(trust: ClusterTrust) -> Sequence[AnyController]:
    return [RootCertificatePublisher(trust.authority)] if trust.authority else []


def _signer(trust: ClusterTrust) -> Sequence[AnyController]:
    return [CertificateSigner(trust.keys.authority)] if trust.keys.authority is not None else []


def _tokens(trust: ClusterTrust) -> Sequence[AnyController]:
    return [TokenSecretController(trust.authority, trust.keys.tokens), TokenReferenceController()] if trust.keys.tokens is not None else []


#: The implemented controllers in the order in which they start, except that the garbage collector starts last. Upstream's scheduler is a
#: separate program.
_ENTRIES = (
    ControllerEntry("serviceaccount-controller", "serviceaccount", _plain(ServiceAccountController)),
    ControllerEntry("root-ca-certificate-publisher-controller", "root-ca-cert-publisher", _publisher),
    ControllerEntry("namespace-controller", "namespace", _plain(NamespaceController)),
    ControllerEntry("replicaset-controller", "replicaset", _plain(ReplicaSetController)),
    ControllerEntry("replicationcontroller-controller", "replicationcontroller", _plain(ReplicationManager)),
    ControllerEntry("deployment-controller", "deployment", _plain(DeploymentController)),
    ControllerEntry("statefulset-controller", "statefulset", _plain(StatefulSetController)),
    ControllerEntry("daemonset-controller", "daemonset", _plain(DaemonSetController)),
    ControllerEntry("job-controller", "job", _plain(JobController, JobFinalizerController)),
    ControllerEntry("cronjob-controller", "cronjob", _plain(CronJobController)),
    ControllerEntry("ttl-after-finished-controller", "ttl-after-finished", _plain(FinishedJobCleaner)),
    ControllerEntry("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling", _plain(HorizontalPodAutoscalerController)),
    ControllerEntry("disruption-controller", "disruption", _plain(DisruptionController, StaleDisruptionController)),
    ControllerEntry("clusterrole-aggregation-controller", "clusterrole-aggregation", _plain(ClusterRoleAggregator)),
    ControllerEntry("resourcequota-controller", "resourcequota", _plain(QuotaController)),
    ControllerEntry("certificatesigningrequest-approving-controller", "csrapproving", _plain(CertificateApprover)),
    ControllerEntry("certificatesigningrequest-cleaner-controller", "csrcleaner", _plain(CertificateCleaner)),
    ControllerEntry("certificatesigningrequest-signing-controller", "csrsigning", _signer),
    ControllerEntry("serviceaccount-token-controller", "serviceaccount-token", _tokens),
    ControllerEntry(SCHEDULER, "", _plain(Scheduler)),
    ControllerEntry("node-lifecycle-controller", "nodelifecycle", _plain(NodeLifecycleController)),
    ControllerEntry("taint-eviction-controller", "", _plain(TaintEvictionController)),
    ControllerEntry("pod-garbage-collector-controller", "podgc", _plain(PodGarbageCollector)),
    ControllerEntry("persistentvolumeclaim-protection-controller", "pvc-protection", _plain(ClaimProtectionController)),
    ControllerEntry("persistentvolume-protection-controller", "pv-protection", _plain(VolumeProtectionController)),
    ControllerEntry("ephemeral-volume-controller", "ephemeral-volume", _plain(EphemeralVolumeController)),
    ControllerEntry("persistentvolume-binder-controller", "persistentvolume-binder", _plain(PersistentVolumeBinder)),
    ControllerEntry("endpointslice-controller", "endpointslice", _plain(EndpointSliceController)),
    ControllerEntry("endpoints-controller", "endpoint", _plain(EndpointsController)),
    ControllerEntry("endpointslice-mirroring-controller", "endpointslicemirroring", _plain(EndpointSliceMirroringController)),
    ControllerEntry("service-cidr-controller", "", _plain(ServiceCIDRController)),
    ControllerEntry("validatingadmissionpolicy-status-controller", "", _plain(ValidatingPolicyStatusController)),
    ControllerEntry("ttl-controller", "ttl", _plain(NodeTTLController)),
    ControllerEntry("legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner", _plain(LegacyTokenCleaner)),
    ControllerEntry("bootstrap-signer-controller", "bootstrapsigner", _plain(BootstrapSigner), on_by_default=False),
    ControllerEntry("token-cleaner-controller", "tokencleaner", _plain(BootstrapTokenCleaner), on_by_default=False),
    ControllerEntry(_GARBAGE_COLLECTOR, "garbagecollector", _plain(GarbageCollector)),
    ControllerEntry("persistentvolume-expander-controller", "persistentvolume-expander", _plain(VolumeExpander)),
    ControllerEntry("resourceclaim-controller", "resource-claim-controller", _plain(ResourceClaimController)),
    ControllerEntry("volumeattributesclass-protection-controller", "", _plain(AttributesClassProtectionController)),
    # These exist only here.
    ControllerEntry("host-path-provisioner", "", _plain(HostPathProvisioner)),
    ControllerEntry("host-path-resizer", "", _plain(HostPathResizer)),
    ControllerEntry("standard-storage-class", "", _plain(StandardClassCreator), on_by_default=False),
    # Controllers of kube-controller-manager that kubeloop does not implement; docs/server.md describes the consequences.
    ControllerEntry("persistentvolume-attach-detach-controller", "attachdetach"),
    ControllerEntry("node-ipam-controller", "nodeipam"),
    ControllerEntry("podcertificaterequest-cleaner-controller"),
    ControllerEntry("podgroup-protection-controller"),
    ControllerEntry("device-taint-eviction-controller"),
    ControllerEntry("kube-apiserver-serving-clustertrustbundle-publisher-controller"),
    ControllerEntry("storageversion-garbage-collector-controller", "storage-version-gc"),
    ControllerEntry("storage-version-migrator-controller", "svm"),
    ControllerEntry("resourcepoolstatusrequest-controller"),
    ControllerEntry("selinux-warning-controller", on_by_default=False),
)
KNOWN_CONTROLLERS = {entry.name: entry for entry in _ENTRIES}
#: The names that kube-controller-manager does not have.
OWN_CONTROLLERS = frozenset({SCHEDULER, "host-path-provisioner", "host-path-resizer", "standard-storage-class"})
_ALIASES = {entry.alias: entry.name for entry in _ENTRIES if entry.alias}


def select_controllers(flag: str) -> frozenset[str]:
    """Return the names of the controllers that the value of ``--controllers`` selects.

    Args:
        flag: Names, separated by commas. ``*`` selects all controllers that are on by default, ``NAME`` selects one, and ``-NAME``
            deselects one; the first item that names a controller counts. Names and aliases are those of kube-controller-manager, and those
            in ``OWN_CONTROLLERS``.

    Raises:
        ConfigError: A name is not known, or names a controller that kubeloop does not have.
    """
    choices: dict[str, bool] = {}
    every = False
    for item in (part.strip() for part in flag.split(",")):
        if item == "*":
            every = True
            continue
        name = _ALIASES.get(item.removeprefix("-"), item.removeprefix("-"))
        entry = KNOWN_CONTROLLERS.get(name)
        if entry is None:
            known = ", ".join(sorted(known.name for known in _ENTRIES if known.create is not None))
            raise ConfigError(
                f'--controllers: "{item.removeprefix("-")}" is not in the list of known controllers; these can be named: {known}'
            )
        if entry.create is None and not item.startswith("-"):
            raise ConfigError(f"--controllers: kubeloop has no {name}; docs/server.md lists the controllers that it has")
        choices.setdefault(name, not item.startswith("-"))
    return frozenset(
        entry.name for entry in _ENTRIES if entry.create is not None and choices.get(entry.name, every and entry.on_by_default)
    )


def create_controllers(
    names: Iterable[str],
    trust: ClusterTrust,
    nodes: Iterable[AnyController] = (),
    scheduler: SchedulerConfiguration | None = None,
) -> list[AnyController]:
    """Create each named controller whose prerequisites exist, and return them in the order in which they start.

    Args:
        names: Names of controllers.
        trust: The CA certificate and signing keys of the controllers.
        nodes: Controllers that simulate nodes. They start before the garbage collector, which shares the caches of all controllers.
        scheduler: The configuration of the scheduler; None: the default one.
    """
    selected = frozenset(names)
    result: list[AnyController] = []
    for entry in _ENTRIES:
        if entry.create is not None and entry.name in selected - {_GARBAGE_COLLECTOR}:
            result += [Scheduler(scheduler)] if entry.name == SCHEDULER else entry.create(trust)
    result += nodes
    if _GARBAGE_COLLECTOR in selected:
        kinds = {kind for controller in result if isinstance(controller, ControllerBase) for kind in controller.cached_kinds()}
        result.append(GarbageCollector(kinds))
    return result
