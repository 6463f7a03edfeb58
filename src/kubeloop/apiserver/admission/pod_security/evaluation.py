"""Which checks a level consists of as of a version, and what they find. Source: k8s.io/pod-security-admission policy/registry.go."""

from __future__ import annotations

from functools import cache

from kubeloop.apiserver.admission.pod_security.baseline import BASELINE
from kubeloop.apiserver.admission.pod_security.findings import Check, Finding, Pod
from kubeloop.apiserver.admission.pod_security.levels import Level
from kubeloop.apiserver.admission.pod_security.restricted import RESTRICTED

#: Nothing has changed since.
_NEWEST = max(minor for versions in (*BASELINE.values(), *(one.versions for one in RESTRICTED.values())) for minor, _ in versions)


def findings(level: Level, pod: Pod) -> list[Finding]:
    """All that is wrong with a pod: baseline's findings first, then those of restricted, each by name of the check."""
    if level.level == "privileged":
        return []
    found = (check(pod) for check in _checks(level.level, min(level.minor, _NEWEST)))
    return [one for one in found if one is not None]


@cache
def _checks(level: str, minor: int) -> list[Check]:
    """At most two levels of ``_NEWEST`` versions: a bounded cache."""
    baseline = {name: check for name, versions in BASELINE.items() if (check := _as_of(versions, minor)) is not None}
    if level == "baseline":
        return [baseline[name] for name in sorted(baseline)]
    restricted: dict[str, Check] = {}
    for name, one in RESTRICTED.items():
        check = _as_of(one.versions, minor)
        if check is not None:
            restricted[name] = check
            baseline.pop(one.instead_of, None)
    return [baseline[name] for name in sorted(baseline)] + [restricted[name] for name in sorted(restricted)]


def _as_of(versions: tuple[tuple[int, Check], ...], minor: int) -> Check | None:
    return next((check for since, check in reversed(versions) if since <= minor), None)
