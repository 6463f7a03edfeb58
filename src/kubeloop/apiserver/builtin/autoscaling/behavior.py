"""How fast an autoscaler scales. Source: validateBehavior."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.quantities import quantity
from kubeloop.apiserver.validation.formats import NOT_NEGATIVE, one_of
from kubeloop.meta.field_error import FieldError, invalid, required

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]

#: Seconds.
_LONGEST_PERIOD = 1800
_LONGEST_WINDOW = 3600


def behavior(path: str, found: JSONObject) -> Errors:
    for name in ("scaleUp", "scaleDown"):
        if found.get(name) is not None:
            yield from _rules(f"{path}.{name}", found[name])


def _rules(path: str, rules: JSONObject) -> Errors:
    window, policies = rules.get("stabilizationWindowSeconds"), rules.get("policies") or []
    if window is not None and window < 0:
        yield invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero")
    if window is not None and window > _LONGEST_WINDOW:
        yield invalid(f"{path}.stabilizationWindowSeconds", window, f"must be less than or equal to {_LONGEST_WINDOW}")
    if rules.get("selectPolicy") is not None:
        yield from one_of(f"{path}.selectPolicy", rules["selectPolicy"], ("Disabled", "Max", "Min"))
    if not policies:
        yield required(f"{path}.policies", "must specify at least one Policy")
    for at, policy in enumerate(policies):
        yield from _policy(f"{path}.policies[{at}]", policy)
    if rules.get("tolerance") is not None and quantity(rules["tolerance"]) < 0:
        yield invalid(f"{path}.tolerance", rules["tolerance"], NOT_NEGATIVE)


def _policy(path: str, policy: JSONObject) -> Errors:
    yield from one_of(f"{path}.type", policy.get("type", ""), ("Percent", "Pods"))
    value, period = policy.get("value", 0), policy.get("periodSeconds", 0)
    if value <= 0:
        yield invalid(f"{path}.value", value, "must be greater than zero")
    if period <= 0:
        yield invalid(f"{path}.periodSeconds", period, "must be greater than zero")
    if period > _LONGEST_PERIOD:
        yield invalid(f"{path}.periodSeconds", period, f"must be less than or equal to {_LONGEST_PERIOD}")
