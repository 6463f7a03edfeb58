"""``matchConditions`` of policies and webhooks: asked for only after rules and selectors.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/matchconditions/matcher.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeloop.apiserver.policies.compiling import Compiled
from kubeloop.apiserver.policies.evaluating import CONDITIONS_BUDGET, CostBudgetExceeded, Result, evaluate
from kubeloop.meta.errors import KubeloopError


class ConditionsFault(KubeloopError):
    """A condition has no value, and failures count."""


def conditions_hold(
    conditions: Sequence[Compiled], values: Mapping[str, Any], variables: Mapping[str, Compiled] | None = None, *, ignore_failure: bool
) -> bool:
    """Whether all are true. One that is false settles it, whatever is wrong with others; else ``ignore_failure`` says what an error means.

    Raises:
        ConditionsFault
    """
    results: list[Result | None]
    try:
        results, _ = evaluate(conditions, values, CONDITIONS_BUDGET, variables)
    except CostBudgetExceeded as fault:
        results = [Result(fault=str(fault))]
    if any(one is not None and not one.fault and one.value is False for one in results):
        return False
    faults = list(dict.fromkeys(one.fault for one in results if one is not None and one.fault))
    if not faults:
        return True
    if ignore_failure:
        return False
    raise ConditionsFault(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")
