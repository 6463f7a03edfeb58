"""Validation of ``/status`` of a ValidatingAdmissionPolicy, with the causes of a Kubernetes 1.36 API server."""

from __future__ import annotations

import copy
from typing import Any

from tests.apiserver.builtin.write_pipeline import create, update

_PATH = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_RULE = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}
_POLICY: dict[str, Any] = {
    "metadata": {"name": "p"},
    "spec": {"matchConstraints": {"resourceRules": [_RULE]}, "validations": [{"expression": "true"}]},
}


def _causes(status: dict[str, Any], labels: dict[str, str] | None = None) -> list[tuple[str, str]]:
    old = create(_PATH, _POLICY).obj
    new = copy.deepcopy(old) | {"status": status}
    new["metadata"]["labels"] = labels or {}
    return [(field, message) for field, message, _ in update(_PATH, new, old, "status").causes]


def test_warnings_name_a_place_that_can_be_read() -> None:
    places = ["", " ", "spec.validations[0].expression", "spec[", "a b", "a{"]
    warnings = [{"fieldRef": place, "warning": "x" if place else ""} for place in places]
    path = "status.typeChecking.expressionWarnings"
    assert _causes({"typeChecking": {"expressionWarnings": warnings}}) == [
        (f"{path}[0].warning", "Required value"),
        (f"{path}[0].fieldRef", "Required value"),
        (f"{path}[1].fieldRef", "Required value"),
        (f"{path}[3].fieldRef", 'Invalid value: "spec[": invalid JSONPath: unterminated array'),
        (f"{path}[5].fieldRef", "Invalid value: \"a{\": invalid JSONPath: unrecognized character in action: U+007B '{'"),
    ]


def test_conditions_are_whole() -> None:
    fields = [field for field, _ in _causes({"conditions": [{"type": "a b", "status": "x"}]})]
    assert fields == [f"status.conditions[0].{name}" for name in ("type", "status", "lastTransitionTime", "reason")]


def test_labels_are_out_of_reach() -> None:
    assert _causes({"observedGeneration": -1}, {"a b": "c"}) == []
