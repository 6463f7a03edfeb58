"""Conditions of the common type. Source: k8s.io/apimachinery pkg/apis/meta/v1/validation ValidateConditions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubeloop.apiserver.validation.formats import each, one_of
from kubeloop.meta.field_error import FieldError, duplicate, invalid, required, too_long
from kubeloop.meta.names import qualified_name, wrong_pattern
from kubeloop.types import JSONObject

_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_LIMIT = 1024
_MESSAGE_LIMIT = 32 * 1024


def conditions(path: str, found: list[JSONObject]) -> Iterator[FieldError]:
    types: set[str] = set()
    for at, condition in enumerate(found):
        here, kind = f"{path}[{at}]", condition.get("type", "")
        if kind in types:
            yield duplicate(f"{here}.type", kind)
        types.add(kind)
        yield from _condition(here, condition)


def _condition(path: str, condition: JSONObject) -> Iterator[FieldError]:
    kind, reason = condition.get("type", ""), condition.get("reason", "")
    yield from each(f"{path}.type", kind, qualified_name(kind))
    yield from one_of(f"{path}.status", condition.get("status", ""), ("False", "True", "Unknown"))
    if condition.get("observedGeneration", 0) < 0:
        yield invalid(f"{path}.observedGeneration", condition["observedGeneration"], "must be greater than or equal to zero")
    if condition.get("lastTransitionTime") is None:
        yield required(f"{path}.lastTransitionTime")
    if not reason:
        yield required(f"{path}.reason")
    else:
        if not re.fullmatch(_REASON, reason):
            rule = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters "
            rule += "or '_,:', and must end with an alphanumeric character or '_'"
            text = wrong_pattern(rule, _REASON, "my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")
            yield invalid(f"{path}.reason", reason, text)
        if len(reason.encode()) > _REASON_LIMIT:
            yield too_long(f"{path}.reason", _REASON_LIMIT)
    if len(condition.get("message", "").encode()) > _MESSAGE_LIMIT:
        yield too_long(f"{path}.message", _MESSAGE_LIMIT)
