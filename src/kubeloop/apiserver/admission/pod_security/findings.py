"""What a check of the Pod Security Standards finds, in upstream's words. Source: k8s.io/pod-security-admission policy/helpers.go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kubeloop.types import JSONObject


class Finding(NamedTuple):
    """Why a pod is not as it must be; ``detail`` may be empty."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


class Pod(NamedTuple):
    """What is judged of a pod, or of a template of pods."""

    metadata: JSONObject
    spec: JSONObject


#: None: nothing is wrong.
Check = Callable[[Pod], Finding | None]


def containers(spec: JSONObject) -> Iterator[JSONObject]:
    """All of a pod, in the order in which findings name them."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def security(one: JSONObject) -> JSONObject:
    """The security context of a container or of a pod's spec; empty where there is none."""
    found: JSONObject = one.get("securityContext") or {}
    return found


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def plural(names: Iterable[Any], one: str, many: str) -> str:
    return one if len(list(names)) == 1 else many


def named(names: list[str]) -> str:
    """``container "a"``, ``containers "a", "b"``."""
    return f"{plural(names, 'container', 'containers')} {quoted(names)}"


def setters(pod: bool, names: list[str]) -> str:
    """Who says something: ``pod``, containers, both, or (empty) nobody."""
    return " and ".join((["pod"] if pod else []) + ([named(names)] if names else []))


def in_user_namespace(spec: JSONObject) -> bool:
    """What is root there is nobody on the node, so that less is forbidden. Source: KEP-127."""
    return spec.get("hostUsers") is False


def is_windows(spec: JSONObject) -> bool:
    return (spec.get("os") or {}).get("name") == "windows"
