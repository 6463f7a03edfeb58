"""In which order kinds are applied: what others need comes first, what runs comes last; deletion goes the other way round."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from kubeloop.meta import GroupKind

T = TypeVar("T")

#: Each after what it may need at the moment of its creation. Source: the order of kustomize (api/resid, orderFirst and orderLast) and Helm.
_FIRST: Final = (
    GroupKind("", "Namespace"),
    GroupKind("apiextensions.k8s.io", "CustomResourceDefinition"),
    GroupKind("", "ResourceQuota"),
    GroupKind("", "LimitRange"),
    GroupKind("scheduling.k8s.io", "PriorityClass"),
    GroupKind("storage.k8s.io", "StorageClass"),
    GroupKind("", "ServiceAccount"),
    GroupKind("rbac.authorization.k8s.io", "ClusterRole"),
    GroupKind("rbac.authorization.k8s.io", "Role"),
    GroupKind("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    GroupKind("rbac.authorization.k8s.io", "RoleBinding"),
    GroupKind("", "Secret"),
    GroupKind("", "ConfigMap"),
    GroupKind("", "PersistentVolume"),
    GroupKind("", "PersistentVolumeClaim"),
    GroupKind("networking.k8s.io", "NetworkPolicy"),
    GroupKind("", "Service"),
)
#: What runs, and what looks at or guards what runs.
_LAST: Final = (
    GroupKind("", "Pod"),
    GroupKind("apps", "ReplicaSet"),
    GroupKind("apps", "DaemonSet"),
    GroupKind("apps", "StatefulSet"),
    GroupKind("apps", "Deployment"),
    GroupKind("batch", "Job"),
    GroupKind("batch", "CronJob"),
    GroupKind("policy", "PodDisruptionBudget"),
    GroupKind("autoscaling", "HorizontalPodAutoscaler"),
    GroupKind("networking.k8s.io", "Ingress"),
    GroupKind("apiregistration.k8s.io", "APIService"),
    GroupKind("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    GroupKind("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
)
_RANKS: Final = {kind: rank for rank, kind in enumerate(_FIRST)} | {kind: len(_FIRST) + 1 + rank for rank, kind in enumerate(_LAST)}


def rank(kind: GroupKind) -> int:
    """Lower is applied earlier. Kinds that are not named here, custom ones among them, come after configuration and before workloads."""
    return _RANKS.get(kind, len(_FIRST))


def in_order(items: Iterable[tuple[GroupKind, T]]) -> list[T]:
    """By rank; those of one rank stay in the order in which they were given."""
    return [item for _, item in sorted(items, key=lambda pair: rank(pair[0]))]
