"""Fields behind feature gates that Kubernetes 1.36 leaves off: written values are dropped, without a word.

Source: pkg/features/kube_features.go, the ``dropDisabledFields`` of pkg/api/pod and of the strategies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

#: Go type name to its fields that nobody can use.
_OFF = {
    "v1.VolumeProjection": ("clusterTrustBundle", "podCertificate"),  # ClusterTrustBundleProjection, PodCertificateRequest
    "v1.LeaseSpec": ("strategy", "preferredHolder"),  # CoordinatedLeaderElection
    "v1.PodSpec": ("schedulingGroup",),  # GenericWorkload
    "v1.DeviceAttribute": ("bools", "ints", "strings", "versions"),  # DRAListTypeAttributes
    "v1.Device": ("nodeAllocatableResourceMappings",),  # DRANodeAllocatableResources
    "v1.JobSpec": ("scheduling",),  # WorkloadWithJob
    "v1.CSIDriverSpec": ("preventPodSchedulingIfMissing",),  # VolumeLimitScaling
    "v1.PodStatus": ("nodeAllocatableResourceClaimStatuses",),  # DRANodeAllocatableResources
    "v1.VolumeMountStatus": ("volumeStatus",),  # ImageVolumeWithDigest
    "v1.NodeSpec": ("configSource",),  # DynamicKubeletConfig, which is gone
    "v1.NodeStatus": ("config",),
}


def _drop(names: tuple[str, ...], value: dict[str, Any]) -> None:
    for name in names:
        value.pop(name, None)


def _drop_stop_signal(container: dict[str, Any]) -> None:
    """ContainerStopSignals. A lifecycle of nothing else goes too."""
    lifecycle = container.get("lifecycle")
    if lifecycle and lifecycle.pop("stopSignal", None) is not None and not lifecycle:
        del container["lifecycle"]


GATED: dict[str, Callable[[Any], None]] = {
    **{kind: partial(_drop, names) for kind, names in _OFF.items()},
    **dict.fromkeys(("v1.Container", "v1.EphemeralContainer", "v1.EphemeralContainerCommon"), _drop_stop_signal),
}
