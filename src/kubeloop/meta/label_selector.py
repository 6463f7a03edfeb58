"""LabelSelector as objects carry it. None selects nothing, an empty one everything.

Source: k8s.io/apimachinery pkg/apis/meta/v1/types.go (LabelSelector).
"""

from __future__ import annotations

import msgspec

from kubeloop.meta.model import Model


class LabelSelectorRequirement(Model):
    """``operator`` is In, NotIn, Exists or DoesNotExist; the last two take no values."""

    key: str = ""
    operator: str = ""
    values: list[str] = msgspec.field(default_factory=list)


class LabelSelector(Model):
    """All of ``match_labels`` and of ``match_expressions`` must hold."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: list[LabelSelectorRequirement] = msgspec.field(default_factory=list)
