"""The order of API versions: v2 before v1 before v1beta2 before v1alpha1, other names last.

Source: Kubernetes documentation "Versions in CustomResourceDefinitions", version priority.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_KUBE: Final = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STABILITY: Final = {None: 2, "beta": 1, "alpha": 0}


def by_priority(versions: Iterable[str]) -> list[str]:
    """Most preferred first."""
    return sorted(versions, key=_key)


def _key(version: str) -> tuple[int, int, int, int, str]:
    found = _KUBE.fullmatch(version)
    if found is None:
        return 1, 0, 0, 0, version
    return 0, -_STABILITY[found[2]], -int(found[1]), -int(found[3] or 0), version
