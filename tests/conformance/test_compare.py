"""What counts as a difference between two recordings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.compare import compare


def _recording(body: Any, path: str) -> dict[str, Any]:
    step = {"step": 1, "request": {"method": "GET", "path": path}, "status": 200, "headers": {}, "body": body}
    return {"scenario": "s", "steps": [step], "rvOrder": []}


_POD = "/api/v1/namespaces/a/pods/a"
_EQUAL = {
    "a column of a Table that is described in other words": (
        _POD,
        {"columnDefinitions": [{"name": "Age", "description": "x"}]},
        {"columnDefinitions": [{"name": "Age", "description": "y"}]},
    ),
    "an OpenAPI document that is described in other words": (
        "/openapi/v3/api/v1",
        {"responses": {"401": {"description": "Unauthorized"}}},
        {"responses": {"401": {}}},
    ),
}
_DIFFERENT = {
    "a description that is a field of the object": (_POD, {"description": "x"}, {"description": "y"}),
    "a description in the object of a Table's row": (_POD, {"rows": [{"object": {"description": "x"}}]}, {"rows": [{"object": {}}]}),
    "a field of managedFields": (_POD, {"fieldsV1": {"f:a": {}, "f:b": {}}}, {"fieldsV1": {"f:a": {}}}),
    "an empty list that is left out": (_POD, {"items": []}, {}),
    "an empty list that is an empty object": (_POD, {"items": []}, {"items": {}}),
    "a property named description in an OpenAPI document": (
        "/openapi/v3/api/v1",
        {"properties": {"description": {"type": "string"}}},
        {"properties": {}},
    ),
}


@pytest.mark.parametrize(("path", "expected", "actual"), list(_EQUAL.values()), ids=list(_EQUAL))
def test_not_a_difference(path: str, expected: Any, actual: Any) -> None:
    assert compare(_recording(expected, path), _recording(actual, path)).differences == {}


@pytest.mark.parametrize(("path", "expected", "actual"), list(_DIFFERENT.values()), ids=list(_DIFFERENT))
def test_a_difference(path: str, expected: Any, actual: Any) -> None:
    assert compare(_recording(expected, path), _recording(actual, path)).exact == 0
