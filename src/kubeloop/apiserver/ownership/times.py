"""A write that changes nothing but the times of managedFields changes nothing.

Source: k8s.io/apiserver pkg/endpoints/handlers/fieldmanager/equality.go (IgnoreManagedFieldsTimestampsTransformer).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

JSONObject = dict[str, Any]


def keep_times(old: JSONObject, new: JSONObject, is_same: Callable[[], bool]) -> bool:
    """Give ``new`` the times of ``old`` if nothing else differs. True if so; else ``new`` is left as it was.

    ``is_same`` compares the objects as they then are, and is asked only when it matters.
    """
    before, after = old["metadata"].get("managedFields") or [], new["metadata"].get("managedFields") or []
    if len(before) != len(after) or all(one.get("time") == other.get("time") for one, other in zip(before, after, strict=True)):
        return False
    if not all(_timeless(one) == _timeless(other) for one, other in zip(before, after, strict=True)):
        return False
    new["metadata"]["managedFields"] = before
    if is_same():
        return True
    new["metadata"]["managedFields"] = after
    return False


def _timeless(entry: JSONObject) -> JSONObject:
    return {name: value for name, value in entry.items() if name != "time"}
