"""What is found of an APIService, and its condition Available that says so.

Source: kube-aggregator pkg/apis/apiregistration/v1/helper (SetAPIServiceCondition).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Final

from kubeloop.apiserver.aggregation.registered import conditions_of
from kubeloop.types import JSONObject


@dataclass(frozen=True, slots=True)
class Finding:
    """What the condition Available says. ``again``: nothing need change for it to change, so that it is looked at again soon."""

    status: str
    reason: str
    message: str
    again: bool = False

    @property
    def passed(self) -> bool:
        return self.status == "True"


LOCAL: Final = Finding("True", "Local", "Local APIServices are always available")
PASSED: Final = Finding("True", "Passed", "all checks passed")


def with_condition(obj: JSONObject, finding: Finding, now: str) -> JSONObject:
    """A copy of ``obj`` whose condition Available says ``finding``; its time changes with its status only. ``now``: RFC 3339."""
    changed = copy.deepcopy(obj)
    conditions = conditions_of(changed)
    told = {"status": finding.status, "reason": finding.reason, "message": finding.message}
    known = next((one for one in conditions if one.get("type") == "Available"), None)
    if known is None:
        conditions.append({"type": "Available", "lastTransitionTime": now, **told})
    else:
        if known.get("status") != finding.status:
            known["lastTransitionTime"] = now
        known.update(told)
    changed["status"] = {**(changed.get("status") or {}), "conditions": conditions}
    return changed
