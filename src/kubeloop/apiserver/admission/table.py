"""Plug-ins by Kubernetes' names: their order, which run unless they are disabled, and what to say of a name that cannot be had.

Source: pkg/kubeapiserver/options/plugins.go; k8s.io/apiserver pkg/server/options/admission.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kubeloop.meta.errors import ConfigError

#: In the order in which they are asked.
ORDER = (
    "AlwaysAdmit",
    "NamespaceAutoProvision",
    "NamespaceLifecycle",
    "NamespaceExists",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "AlwaysPullImages",
    "ImagePolicyWebhook",
    "PodSecurity",
    "PodNodeSelector",
    "Priority",
    "DefaultTolerationSeconds",
    "PodTolerationRestriction",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PodGroupProtection",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "DenyServiceExternalIPs",
    "PodTopologyLabels",
    "PodGroupWorkloadExists",
    "NodeDeclaredFeatureValidator",
    "JobValidation",
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
    "AlwaysDeny",
)

OFF_BY_DEFAULT = frozenset(
    {
        "AlwaysAdmit",
        "NamespaceAutoProvision",
        "NamespaceExists",
        "LimitPodHardAntiAffinityTopology",
        "NodeRestriction",
        "AlwaysPullImages",
        "ImagePolicyWebhook",
        "PodNodeSelector",
        "PodTolerationRestriction",
        "EventRateLimit",
        "ExtendedResourceToleration",
        "OwnerReferencesPermissionEnforcement",
        "DenyServiceExternalIPs",
        "AlwaysDeny",
    }
)

#: Kubernetes' plug-ins that this server lacks, all of them off by default: they want a configuration file or annotations that few use.
LACKING = frozenset({"ImagePolicyWebhook", "PodNodeSelector", "PodTolerationRestriction", "EventRateLimit"})


def chosen(enable: Collection[str] = (), disable: Collection[str] = ()) -> frozenset[str]:
    """The names of the plug-ins that run.

    Raises:
        ConfigError: a name is unknown, cannot be had here, or stands on both sides.
    """
    for flag, names in (("enable", enable), ("disable", disable)):
        for name in names:
            if name not in ORDER:
                near = [one for one in ORDER if one.lower() == name.lower()]
                hint = f"; its name is {near[0]}" if near else f"; known are {', '.join(one for one in ORDER if one not in LACKING)}"
                raise ConfigError(f'{flag}-admission-plugins plugin "{name}" is unknown{hint}')
    both = sorted(set(enable) & set(disable))
    if both:
        raise ConfigError(f"[{' '.join(both)}] in enable-admission-plugins and disable-admission-plugins overlapped")
    lacking = [name for name in enable if name in LACKING]
    if lacking:
        raise ConfigError(f"enable-admission-plugins: this server does not have the plug-in {lacking[0]}; leave it out")
    return frozenset(name for name in ORDER if name not in OFF_BY_DEFAULT and name not in disable) | frozenset(enable)


def split(lists: Iterable[str]) -> tuple[str, ...]:
    """The names in values of a flag that may be given several times, each a list with commas."""
    return tuple(name.strip() for one in lists for name in one.split(",") if name.strip())
