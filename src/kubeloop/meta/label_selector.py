"""The LabelSelector in objects' specs. None selects nothing, an empty one everything.

Source: k8s.io/apimachinery pkg/apis/meta/v1/types.go (LabelSelector).
"""

from __future__ import annotations

import msgspec

from kubeloop.meta.model import Model


class LabelSelectorRequirement(Model):
    """``operator`` is In, NotIn, Exists or DoesNotExist; the last two take no values.

    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#labelselectorrequirement-v1-meta
    """

    key: str = ""
    """Wire name ``key``, required. The label that is compared."""
    operator: str = ""
    """Wire name ``operator``, required. One of ``In``, ``NotIn``, ``Exists``, ``DoesNotExist``."""
    values: list[str] = msgspec.field(default_factory=list)
    """Wire name ``values``, optional; empty if absent. The values of ``In`` and ``NotIn``, at least one; empty for the other
    operators."""


class LabelSelector(Model):
    """Selects labels: all of ``match_labels`` and of ``match_expressions`` must be met.

    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#labelselector-v1-meta
    """

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Wire name ``matchLabels``, optional; empty if absent. Labels with exactly these values."""
    match_expressions: list[LabelSelectorRequirement] = msgspec.field(default_factory=list)
    """Wire name ``matchExpressions``, optional; empty if absent. Requirements on labels, all of which must hold."""
