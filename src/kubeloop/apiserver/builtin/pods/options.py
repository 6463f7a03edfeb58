"""Options of pod validation: whether the object is a pod or a template, and which invalid stored values are accepted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kubeloop.meta.strconv import decimal, is_digits
from kubeloop.types import JSONObject


@dataclass(frozen=True, slots=True)
class PodOptions:
    """Options of pod validation, with the feature gates of a default 1.36 server. ``is_pod`` is False for templates.

    The other options accept an invalid value (such as a sysctl of the host), because the stored object already has one.
    """

    is_pod: bool = False
    any_deletion_cost: bool = False
    any_selector_value: bool = False
    any_token_path: bool = False
    host_sysctls: bool = False
    indivisible_huge_pages: bool = False


def deletion_cost_fits(annotations: dict[str, str]) -> bool:
    """Return whether the deletion cost is a canonical 32-bit integer, without plus sign or leading zeros.

    Source: GetDeletionCostFromPodAnnotations.
    """
    text = annotations.get("controller.kubernetes.io/pod-deletion-cost")
    if text is None:
        return True
    digits = text.removeprefix("-")
    if not is_digits(digits) or (digits[0] == "0" and text != "0"):
        return False
    return decimal(text, bits=32) is not None


def all_containers(spec: JSONObject, path: str) -> Iterator[tuple[JSONObject, str]]:
    """Yield init, regular and ephemeral containers with their paths, in upstream's order."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield container, f"{path}.{kind}[{index}]"
