"""What validation of a pod depends on besides the pod: where its spec stands, and what an old state already got away with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kubeloop.meta.strconv import decimal, is_digits
from kubeloop.types import JSONObject


@dataclass(frozen=True, slots=True)
class PodOptions:
    """Feature gates stand as on a default 1.36 server. ``is_pod`` is false for templates, which leave some things to the pod."""

    is_pod: bool = False
    any_deletion_cost: bool = False
    any_selector_value: bool = False
    any_token_path: bool = False
    host_sysctls: bool = False
    indivisible_huge_pages: bool = False


def deletion_cost_fits(annotations: dict[str, str]) -> bool:
    """Source: GetDeletionCostFromPodAnnotations: a canonical 32-bit integer without plus sign or leading zeros."""
    text = annotations.get("controller.kubernetes.io/pod-deletion-cost")
    if text is None:
        return True
    digits = text.removeprefix("-")
    if not is_digits(digits) or (digits[0] == "0" and text != "0"):
        return False
    return decimal(text, bits=32) is not None


def all_containers(spec: JSONObject, path: str) -> Iterator[tuple[JSONObject, str]]:
    """Init, regular and ephemeral containers with their paths, in the order in which upstream visits them."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for at, container in enumerate(spec.get(kind) or ()):
            yield container, f"{path}.{kind}[{at}]"
