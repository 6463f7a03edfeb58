"""The ``kube-apiserver`` that envtest starts: it accepts kube-apiserver's flags and runs ``kubeloop server`` with the equivalent options.

Everything before ``_run`` imports only the standard library, so that ``--help`` and errors are quick.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from kubeloop import __version__
from kubeloop.envtest.apiserver_flags import APISERVER
from kubeloop.envtest.etcd import STORE_PATH
from kubeloop.envtest.flags import CommandLine, FlagError, key_values, parse_bool

# The feature gates of kube-apiserver 1.36 and their defaults, and the check of ``--feature-gates``.
#
# Source: the metric ``kubernetes_feature_enabled`` of kube-apiserver v1.36.3 with default flags.


_ON_NAMES: Final = """
    APIResponseCompression APIServerIdentity APIServerTracing AggregatedDiscoveryRemoveBetaType AllowParsingUserUIDFromCertAuth
    AllowServiceExternalIPs AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AtomicFIFO AuthorizeNodeWithSelectors
    AuthorizePodWebsocketUpgradeCreatePermission AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyBetaOptions
    CPUManagerPolicyOptions CRDObservedGenerationTracking CRDValidationRatcheting CSIServiceAccountTokenSecrets
    ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation ClientsAllowTLSCacheGC ComponentFlagz ComponentStatusz
    ConsistentListFromCache ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContextualLogging
    CustomCPUCFSQuotaPeriod CustomResourceFieldSelectors DRAAdminAccess DRAConsumableCapacity DRADeviceBindingConditions
    DRADeviceTaints DRAExtendedResource DRAPartitionableDevices DRAPrioritizedList DRAResourceClaimDeviceStatus
    DRAResourceClaimGranularStatusAuthorization DRASchedulerFilterTimeout DeclarativeValidation DeclarativeValidationBeta
    DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency DisableAllocatorDualWrite DisableCPUQuotaWithExclusiveCPUs
    DisableNodeKubeProxyVersion DynamicResourceAllocation EnvFiles ExecProbeTimeout ExtendWebSocketsToKubelet
    ExternalServiceAccountTokenSigner GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance
    HostnameOverride ImageMaximumGCAge ImageVolume InOrderInformers InOrderInformersBatchProcess
    InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling InPlacePodVerticalScalingInitContainers
    InformerResourceVersion JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy JobSuccessPolicy
    KubeletCgroupDriverFromCRI KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages KubeletFineGrainedAuthz KubeletPSI
    KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletPodResourcesListUseActivePods KubeletSeparateDiskGC
    KubeletServiceAccountTokenForCredentialProviders KubeletTracing ListFromCacheSnapshot LogarithmicScaleDown LoggingBetaOptions
    MatchLabelKeysInPodAffinity MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge
    MultiCIDRServiceAllocator MutableCSINodeAllocatableCount MutablePodResourcesForSuspendedJobs
    MutableSchedulingDirectivesForSuspendedJobs MutatingAdmissionPolicy NFTablesProxyMode NodeDeclaredFeatures
    NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap NominatedNodeNameForExpectation OpenAPIEnums
    OpportunisticBatching OrderedNamespaceDeletion PLEGOnDemandRelist PodDeletionCost PodLevelResources PodLifecycleSleepAction
    PodLifecycleSleepActionAllowZero PodObservedGenerationTracking PodReadyToStartContainersCondition PodSchedulingReadiness
    PodTopologyLabelsAdmission PortForwardWebsockets PreferSameTrafficDistribution PreventStaticPodAPIReferences ProcMountType
    RecoverVolumeExpansionFailure RecursiveReadOnlyMounts RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation
    RelaxedServiceNameValidation ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile RemoteRequestHeaderUID
    ResilientWatchCacheInitialization ResourceHealthStatus ResourceHealthStatusMessage RestartAllContainersOnContainerExits
    RetryGenerateName RotateKubeletServerCertificate SELinuxChangePolicy SELinuxMountReadWriteOncePod SchedulerAsyncPreemption
    SchedulerPopFromBackoffQ SchedulerQueueingHints SeparateTaintEvictionController ServiceAccountNodeAudienceRestriction
    ServiceAccountTokenJTI ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo
    ServiceCIDRStatusFieldWiping SidecarContainers SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet
    StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
    StatefulSetSemanticRevisionComparison StorageNamespaceIndex StorageVersionHash StreamingCollectionEncodingToJSON
    StreamingCollectionEncodingToProtobuf StrictIPCIDRValidation StructuredAuthenticationConfiguration
    StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics SupplementalGroupsPolicy
    SystemdWatchdog TokenRequestServiceAccountUIDValidation TopologyManagerPolicyBetaOptions TopologyManagerPolicyOptions
    TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy
    UnlockWhileProcessingFIFO UserNamespacesSupport VolumeAttributesClass WatchCacheInitializationPostStartHook WatchList
    WatchListClient WinDSR WinOverlay WindowsGracefulNodeShutdown
"""
_OFF_NAMES: Final = """
    APIServingWithRoutine AllAlpha AllBeta AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests
    AllowOverwriteTerminationGracePeriodSeconds AllowUnsafeMalformedObjectDeletion CBORServingAndStorage
    CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth ChangeContainerStatusOnKubeletRestart ClientsAllowCBOR
    ClientsPreferCBOR CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook ClusterTrustBundle
    ClusterTrustBundleProjection ConcurrentWatchObjectDecode ContainerStopSignals ControllerManagerReleaseLeaderElectionLockOnExit
    CoordinatedLeaderElection CrossNamespaceVolumeDataSource DRADeviceTaintRules DRAListTypeAttributes DRANodeAllocatableResources
    DRAResourcePoolStatus DRAWorkloadResourceClaims DeclarativeValidationTakeover EventedPLEG GangScheduling GenericWorkload
    GitRepoVolumeDriver HPAScaleToZero ImageVolumeWithDigest InPlacePodVerticalScalingExclusiveCPUs
    InPlacePodVerticalScalingExclusiveMemory KMSv1 KubeletInUserNamespace KubeletRegistrationGetOnExistsOnly
    LocalStorageCapacityIsolationFSQuotaMonitoring LoggingAlphaOptions ManifestBasedAdmissionControlConfig
    MaxUnavailableStatefulSet MemoryQoS MutablePVNodeAffinity NativeHistograms PersistentVolumeClaimUnusedSinceTime
    PodAndContainerStatsFromCRI PodCertificateRequest PodLevelResourceManagers PodLogsQuerySplitStreams PodsAPI QOSReserved
    ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi SELinuxMount SchedulerAsyncAPICalls SeparateCacheWatchRPC
    ShardedListAndWatch StorageCapacityScoring StorageVersionAPI StorageVersionMigrator TaintTolerationComparisonOperators
    TopologyAwareWorkloadScheduling TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport VolumeLimitScaling
    WindowsCPUAndMemoryAffinity WindowsHostNetwork WorkloadAwarePreemption WorkloadWithJob
"""

_ON: Final = frozenset(_ON_NAMES.split())
_OFF: Final = frozenset(_OFF_NAMES.split())


def check_feature_gates(values: Sequence[str]) -> None:
    """Check ``--feature-gates``: a gate may only be set to its default, which is the behaviour of the embedded server.

    Raises:
        FlagError: An unknown gate, a value that is not a boolean, or a gate that is set to another value; the message names the gate.
    """
    for key, value in key_values(values, "feature-gates").items():
        component, colon, name = key.rpartition(":")
        if colon and component != "kube":
            raise FlagError(f"--feature-gates={key}={value}: component not registered: {component}; write kube:{name} or {name}")
        wanted = parse_bool(value)
        if wanted is None:
            raise FlagError(f"--feature-gates={key}={value}: {value!r} is not a boolean; write true or false")
        if name not in _ON and name not in _OFF:
            near = difflib.get_close_matches(name, _ON | _OFF, 1)
            hint = f"did you mean {near[0]}?" if near else "Kubernetes 1.36 has no such gate; remove it"
            raise FlagError(f"--feature-gates: unrecognized feature gate: {name}; {hint}")
        if wanted != (name in _ON):
            state = "on" if name in _ON else "off"
            raise FlagError(
                f"--feature-gates={key}={value}: kubeloop behaves as Kubernetes 1.36 with {name} {state}, its default, and "
                "cannot change that; remove the gate, or run this suite on the real binaries"
            )


#: kube-apiserver's defaults where those of ``kubeloop server`` differ.
_DEFAULTS: Final = {"authorization-mode": "AlwaysAllow", "secure-port": "6443"}
_AUDIT_DEFAULTS: Final = {"audit-log-maxage": "366", "audit-log-maxbackup": "100", "audit-log-maxsize": "100"}

#: Flags that this program handles itself; all other implemented ones are flags of ``kubeloop server`` with the same meaning.
_OWN: Final = frozenset(
    (
        "bind-address",
        "cert-dir",
        "etcd-prefix",
        "etcd-servers",
        "feature-gates",
        "help",
        "runtime-config",
        "tls-cert-file",
        "tls-private-key-file",
        "version",
    )
)
_HUNDRED_YEARS: Final = "876000h"
_STORE: Final = "kubeloop"
_PREFIX: Final = "/registry"
_CERTIFICATE, _KEY = "apiserver.crt", "apiserver.key"
_CERTIFICATES: Final = "/var/run/kubernetes"
#: Seconds within which the etcd launcher must return the folder of the store.
_PATIENCE: Final = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the launcher of kube-apiserver until SIGTERM, SIGINT or the end of the parent process.

    Returns:
        0, or 1 with the reason on stderr, as kube-apiserver.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        line = APISERVER.parse(arguments)
        if line.values.get("help"):
            print(APISERVER.help())
            return 0
        if line.values.get("version"):
            print(f"Kubernetes v1.36.3 (kubeloop {__version__})")
            return 0
        if line.harmless:
            _log(f"accepted without effect: {line.harmless_text()}")
        check_feature_gates(line.values.get("feature-gates", ()))
        return _run(line, server_arguments(line))
    except (FlagError, OSError) as error:
        _log(f"Error: {error}")
        return 1


def server_arguments(line: CommandLine) -> list[str]:
    """Return the arguments for ``kubeloop server`` that do not depend on files or on etcd."""
    given = {name: values for name, values in line.values.items() if name not in _OWN}
    defaults = {**_DEFAULTS, **(_AUDIT_DEFAULTS if line.last("audit-log-path") else {})}
    for name, value in defaults.items():
        given.setdefault(name, (value,))
    if _allows_everybody(given["authorization-mode"]) and parse_bool(given.get("anonymous-auth", ("true",))[-1]):
        # As kube-apiserver, which logs it.
        _log("anonymous requests are refused, since --authorization-mode=AlwaysAllow would allow them everything")
        given["anonymous-auth"] = ("false",)
    found = ["--no-controllers", "--no-kubeconfig", "--exit-with-parent", f"--bind-address={_bind_address(line)}"]
    for name, values in given.items():
        flag = APISERVER.flags[name]
        if values[-1] == flag.default == "" or (flag.type == "duration" and not flag.default and _is_zero(values[-1])):
            continue  # the default, which the server has without the flag
        if name == "etcd-compaction-interval" and _is_zero(values[-1]):
            values = (_HUNDRED_YEARS,)  # kube-apiserver: never
        several = flag.type in ("strings", "stringArray")
        found += [f"--{name}={value}" for value in (values if several else values[-1:])] if name != "v" else ["-v", values[-1]]
    return found


def _run(line: CommandLine, arguments: list[str]) -> int:
    """Run the server. Raises FlagError or OSError."""
    folder, synced = _store(line)
    arguments = [*arguments, f"--data={folder}", *([] if synced else ["--unsafe-no-fsync"])]

    import click

    from kubeloop.cli.server import server
    from kubeloop.meta.errors import KubeloopError

    check_runtime_config(line.values.get("runtime-config", ()))
    arguments += _serving_certificate(line)
    try:
        server.main(arguments, prog_name="kube-apiserver", standalone_mode=False)
    except click.ClickException as error:
        _log(f"Error: {error.format_message()}")
        return 1
    except KubeloopError as error:
        _log(f"Error: {error}")
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _store(line: CommandLine) -> tuple[Path, bool]:
    """Return the folder of the objects, in the data directory of the etcd launcher, and whether a write waits for the disk.

    Raises:
        FlagError: There is no etcd launcher of kubeloop at ``--etcd-servers``.
    """
    servers = line.all("etcd-servers")
    if not servers:
        raise FlagError("--etcd-servers must be specified: start kubeloop's etcd launcher, and pass its URL")
    if len(servers) > 1:
        raise FlagError(f"--etcd-servers={','.join(servers)}: kubeloop's etcd has one member; pass one URL")
    url = servers[0]
    if not url.startswith("http://"):
        raise FlagError(f"--etcd-servers={url}: kubeloop's etcd speaks http only; write http://127.0.0.1:PORT")
    import urllib.error
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url.rstrip("/") + STORE_PATH, timeout=_PATIENCE) as answer:
            found = json.load(answer)
        folder, synced = Path(found["dataDir"]), bool(found["fsync"])
    except urllib.error.HTTPError as error:
        error.close()
        raise FlagError(
            f"--etcd-servers={url}: this is not an etcd launcher of kubeloop (status {error.code}); kubeloop's kube-apiserver keeps its "
            "objects in the data directory of kubeloop's etcd, so take both from the same assets directory"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        raise FlagError(f"--etcd-servers={url}: no etcd launcher of kubeloop answers there: {why}; start it first") from None
    prefix = line.last("etcd-prefix", _PREFIX).strip("/")
    return folder / (_STORE if prefix == _PREFIX.strip("/") else f"{_STORE}-{quote(prefix, safe='')}"), synced


def _bind_address(line: CommandLine) -> str:
    """Return the address to listen on: loopback only, although kube-apiserver listens on all interfaces by default.

    Raises:
        FlagError: the address can be reached from other machines.
    """
    import ipaddress

    text = line.last("bind-address", "127.0.0.1")
    try:
        if ipaddress.ip_address(text).is_loopback:
            return text
    except ValueError:
        raise FlagError(f'invalid argument "{text}" for "--bind-address" flag: failed to parse IP: {json.dumps(text)}') from None
    raise FlagError(
        f"--bind-address={text}: kubeloop serves this machine only; pass 127.0.0.1 (APIServer.SecureServing.Address in envtest)"
    )


def _serving_certificate(line: CommandLine) -> list[str]:
    """Return the arguments for the certificate: that of the flags, else that in ``--cert-dir``, which is made if it is missing."""
    certificate, key = line.last("tls-cert-file"), line.last("tls-private-key-file")
    if not certificate and not key:
        folder = Path(line.last("cert-dir", _CERTIFICATES))
        files = folder / _CERTIFICATE, folder / _KEY
        if not files[0].exists() and not files[1].exists():
            _make_certificate(folder, _bind_address(line))
        certificate, key = map(str, files)
    pair = {"tls-cert-file": certificate, "tls-private-key-file": key}
    return [f"--{name}={value}" for name, value in pair.items() if value]


def _make_certificate(folder: Path, address: str) -> None:
    from kubeloop.pki import CertificateAuthority
    from kubeloop.pki.files import write_secret

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = CertificateAuthority.create("kubeloop-host-ca")
    names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    made = authority.issue("kube-apiserver", dns_names=names, ip_addresses=(address,), server=True)
    write_secret(folder / _KEY, made.key)
    write_secret(folder / _CERTIFICATE, made.certificate + authority.certificate)
    _log(f"generated a self-signed certificate: {folder / _CERTIFICATE}, {folder / _KEY}")


def check_runtime_config(values: Sequence[str]) -> None:
    """Check ``--runtime-config``: it may only state the present behaviour, a served version as on and an unserved version as off.

    ``api/all``, ``api/beta`` and ``api/alpha`` are accepted too, with a line in the log.

    Raises:
        FlagError: Any other entry; the message names its key.
    """
    wanted = key_values(values, "runtime-config")
    if not wanted:
        return
    from kubeloop.schema import builtin

    served = {_version_key(info.gvr.group, info.gvr.version) for info in builtin().resources()}
    for key, text in wanted.items():
        on = parse_bool(text)
        if on is None:
            raise FlagError(f"--runtime-config={key}={text}: {text!r} is not a boolean; write true or false")
        if key == "api/legacy" or (key == "api/ga" and on) or (key in ("api/alpha", "api/beta") and not on):
            continue
        if key in ("api/all", "api/alpha", "api/beta") and on:
            # Many suites enable all versions to get a version that is generally available by now. Versions that are not served return 404.
            _log(f"--runtime-config={key}={text}: accepted, but no alpha or beta version is switched on by it")
            continue
        parts = key.split("/")
        names = served if len(parts) < 3 else {"/".join(parts[:2])} & served  # GROUP/VERSION/RESOURCE
        if key.startswith("api/") or len(parts) > 2 or on != (key in names):
            group = key.rpartition("/")[0]
            near = sorted(one for one in served if one.rpartition("/")[0] == group)
            hint = f"of this group it serves {', '.join(near)}" if near else "it serves the APIs that Kubernetes 1.36 serves by default"
            raise FlagError(
                f"--runtime-config={key}={text}: kubeloop cannot switch this {'on' if on else 'off'}; {hint}; "
                "remove the key, or run this suite on the real binaries"
            )


def _version_key(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


def _allows_everybody(modes: Sequence[str]) -> bool:
    return "AlwaysAllow" in _split(modes)


def _split(values: Sequence[str]) -> Iterator[str]:
    return (part.strip() for value in values for part in value.split(","))


def _is_zero(text: str) -> bool:
    return not re.sub(r"[0.hnmsuµ]", "", text)


def _log(text: str) -> None:
    print(f"kubeloop kube-apiserver: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
