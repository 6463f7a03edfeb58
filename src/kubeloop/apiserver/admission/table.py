"""Names of all admission plug-ins: their order, the default set, and the error for a name that is not available.

Source: pkg/kubeapiserver/options/plugins.go; k8s.io/apiserver pkg/server/options/admission.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kubeloop.meta.errors import ConfigError

#: In the order in which the plug-ins run.
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

#: Kubernetes' plug-ins that this server lacks. All are off by default; they need a configuration file or rare annotations.
LACKING = frozenset({"ImagePolicyWebhook", "PodNodeSelector", "PodTolerationRestriction", "EventRateLimit"})


def enabled_plugins(enable: Collection[str] = (), disable: Collection[str] = ()) -> frozenset[str]:
    """Return the names of the enabled plug-ins.

    Raises:
        ConfigError: A name is unknown, not available here, or both enabled and disabled.
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


def split_names(lists: Iterable[str]) -> tuple[str, ...]:
    """Return the names in a flag that may be repeated and takes comma-separated lists."""
    return tuple(name.strip() for one in lists for name in one.split(",") if name.strip())
