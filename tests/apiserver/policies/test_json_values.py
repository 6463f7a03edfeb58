"""Values without a JSON form in apply configurations, with the errors of a kube-apiserver."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.apiserver.policies.patch import check_json_values
from kubeloop.cel.values import Timestamp
from kubeloop.merge.fields import TypeMismatch, builtin_types
from kubeloop.meta.kinds import GroupVersionKind

MOMENT = Timestamp(1_767_323_045_500_000_000)  # 2026-01-02T03:04:05.5Z
BOXED = "&value.valueUnstructured{Value:"


def of_deployment(configuration: Any) -> None:
    type_ = builtin_types().of_kind(GroupVersionKind("apps", "v1", "Deployment"))
    assert type_ is not None
    check_json_values(configuration, type_)


def test_json_passes() -> None:
    of_deployment({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 1, "paused": False, "nosuch": [1.5, "x"]}})


@pytest.mark.parametrize(
    ("configuration", "fault"),
    [
        pytest.param({"spec": None}, ".spec: expected map, got &{NULL_VALUE}", id="a null is no map"),
        pytest.param(
            {"spec": {"replicas": None}}, ".spec.replicas: expected numeric (int or float), got structpb.NullValue", id="a number"
        ),
        pytest.param({"spec": {"paused": b"ab"}}, ".spec.paused: expected boolean, got &{[97 98]}", id="bytes are no truth"),
        pytest.param(
            {"metadata": {"finalizers": ["a", MOMENT]}},
            f".metadata.finalizers[1]: expected string, got {BOXED}time.Date(2026, time.January, 2, 3, 4, 5, 500000000, time.UTC)}}",
            id="a moment is no text",
        ),
        pytest.param(
            {"metadata": {"labels": MOMENT}},
            ".metadata.labels: expected map, got &{2026-01-02 03:04:05.5 +0000 UTC}",
            id="a moment is no map",
        ),
        pytest.param({"kind": b"\x01"}, f".kind: expected string, got {BOXED}[]uint8{{0x1}}}}", id="bytes are no text"),
    ],
)
def test_other_values_are_refused_with(configuration: Any, fault: str) -> None:
    with pytest.raises(TypeMismatch) as met:
        of_deployment(configuration)
    assert str(met.value) == fault
