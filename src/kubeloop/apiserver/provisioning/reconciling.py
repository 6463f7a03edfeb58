"""What becomes of a default role or binding that is there already: what it lacks is added, what was added to it stays.

One whose annotation ``rbac.authorization.kubernetes.io/autoupdate`` is ``false`` is left alone.
Source: k8s.io/component-helpers auth/rbac/reconciliation.
"""

from __future__ import annotations

import copy
from typing import Any

from kubeloop.apiserver.authorization.rbac.covering import lacking

JSONObject = dict[str, Any]

_AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"


def is_left_alone(existing: JSONObject) -> bool:
    return (existing["metadata"].get("annotations") or {}).get(_AUTOUPDATE) == "false"


def binds_other(existing: JSONObject, wanted: JSONObject) -> bool:
    """Whether a binding is of another role than it should be: it must be made anew, as that cannot be changed."""
    return bool(existing.get("roleRef") != wanted.get("roleRef"))


def reconciled(existing: JSONObject, wanted: JSONObject) -> JSONObject:
    """A copy of ``existing`` with what it lacks of ``wanted``; equal to it if that is nothing."""
    found = copy.deepcopy(existing)
    for name in ("annotations", "labels"):
        merged = {**(wanted["metadata"].get(name) or {}), **(found["metadata"].get(name) or {})}
        if merged:
            found["metadata"][name] = merged
    if "roleRef" in wanted:
        _add(found, "subjects", [one for one in wanted.get("subjects") or () if one not in (existing.get("subjects") or ())])
        return found
    rights = lacking(existing.get("rules") or (), wanted.get("rules") or ())
    _add(found, "rules", [right.as_rule() for right in rights])
    selectors = _selectors(wanted)
    if not selectors:
        found.pop("aggregationRule", None)
    elif any(one not in _selectors(existing) for one in selectors):
        lacks = [one for one in selectors if one not in _selectors(existing)]
        found["aggregationRule"] = {"clusterRoleSelectors": [*_selectors(existing), *lacks]}
    return found


def _add(obj: JSONObject, name: str, more: list[JSONObject]) -> None:
    if more:
        obj[name] = [*(obj.get(name) or ()), *more]


def _selectors(role: JSONObject) -> list[JSONObject]:
    return list((role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ())
