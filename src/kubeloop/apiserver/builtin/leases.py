"""Leases. Source: pkg/apis/coordination/validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.formats import NOT_NEGATIVE, NOT_POSITIVE
from kubeloop.meta.field_error import FieldError, invalid

JSONObject = dict[str, Any]


class LeaseStrategy(BuiltinStrategy):
    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"]))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"]))


def _spec(spec: JSONObject) -> Iterator[FieldError]:
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, NOT_POSITIVE)
    if transitions is not None and transitions < 0:
        yield invalid("spec.leaseTransitions", transitions, NOT_NEGATIVE)
