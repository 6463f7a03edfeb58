"""The feature gates of kube-apiserver 1.36 and their defaults, and the check of ``--feature-gates``.

Source: the metric ``kubernetes_feature_enabled`` of kube-apiserver v1.36.3 with default flags.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from kubeloop.envtest.flags import FlagError, key_values, parse_bool

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
    """Accepts gates that are set to their default, which is how the embedded server behaves.

    Raises:
        FlagError: An unknown gate, a value that is no boolean, or a gate that is set to another value; names the gate.
    """
    for key, value in key_values(values, "feature-gates").items():
        component, colon, name = key.rpartition(":")
        if colon and component != "kube":
            raise FlagError(f"--feature-gates={key}={value}: component not registered: {component}; write kube:{name} or {name}")
        wanted = parse_bool(value)
        if wanted is None:
            raise FlagError(f"--feature-gates={key}={value}: {value!r} is no boolean; write true or false")
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
