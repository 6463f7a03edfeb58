"""Levels and versions of the Pod Security Standards, and the policy that a namespace's labels ask for.

Source: k8s.io/pod-security-admission api/helpers.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from kubeloop.meta.field_error import FieldError, invalid

T = TypeVar("T")

PREFIX = "pod-security.kubernetes.io/"
#: From what allows all to what allows least.
LEVELS = ("privileged", "baseline", "restricted")
#: The minor version of Kubernetes 1 that stands for ``latest``: newer than any.
LATEST = 1 << 62
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]*)", re.ASCII)


class Level(NamedTuple):
    """What pods must keep to, as of Kubernetes 1.``minor``."""

    level: str
    minor: int

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"

    @property
    def strictness(self) -> int:
        return LEVELS.index(self.level)


PRIVILEGED = Level("privileged", LATEST)


class Policy(NamedTuple):
    """What is refused, what is noted in the audit log, and what the client is warned of."""

    enforce: Level = PRIVILEGED
    audit: Level = PRIVILEGED
    warn: Level = PRIVILEGED


def policy_of(labels: Mapping[str, str]) -> tuple[Policy, list[FieldError]]:
    """The policy, and what is wrong with the labels. A faulty level is enforced as the strictest, a faulty version as the latest."""
    if not any(name.startswith(PREFIX) for name in labels):
        return Policy(), []
    faults: list[FieldError] = []

    def read(name: str, parse: Callable[[str], T | None], missing: T, faulty: T, wrong: str) -> tuple[T, bool]:
        value = labels.get(PREFIX + name)
        if value is None:
            return missing, False
        parsed = parse(value)
        if parsed is None:
            faults.append(invalid(f"metadata.labels[{PREFIX}{name}]", value, wrong))
            return faulty, False
        return parsed, True

    def level(mode: str, faulty: str) -> tuple[str, bool]:
        return read(mode, lambda text: text if text in LEVELS else None, "privileged", faulty, f"must be one of {', '.join(LEVELS)}")

    def version(mode: str) -> int:
        return read(f"{mode}-version", _minor, LATEST, LATEST, 'must be "latest" or "v1.x"')[0]

    enforced, is_named = level("enforce", "restricted")
    enforce = Level(enforced, version("enforce"))
    audit = Level(level("audit", "privileged")[0], version("audit"))
    warn = Level(level("warn", "privileged")[0], version("warn"))
    if PREFIX + "warn" not in labels and is_named and enforce.strictness > warn.strictness:
        warn = Level(enforce.level, warn.minor if PREFIX + "warn-version" in labels else enforce.minor)
    return Policy(enforce, audit, warn), faults


def _minor(text: str) -> int | None:
    if text == "latest":
        return LATEST
    found = _VERSION.fullmatch(text)
    # Upstream keeps the number in 64 bits.
    return int(found[1]) if found is not None and len(found[1]) < 19 else None
