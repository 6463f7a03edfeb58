"""Errors of patches: unknown and repeated fields, values of wrong types, missing objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.ownership.conftest import APPLY, JSON_PATCH, MERGE, STRATEGIC, Managers, Reply

pytestmark = pytest.mark.server

DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}

TWICE = b'{"spec": {"replicas": 2, "replicas": 3}}'
OPERATION = b'[{"op": "replace", "path": "/spec/replicas", "value": 2, "extra": 1}]'
REPEATED = 'duplicate field "spec.replicas"'
EXTRA = 'json patch unknown field "[0].extra"'

PATCHES = [
    pytest.param(MERGE, TWICE, REPEATED, id="a key that stands twice in a merge patch"),
    pytest.param(STRATEGIC, TWICE, REPEATED, id="a key that stands twice in a strategic merge patch"),
    pytest.param(JSON_PATCH, OPERATION, EXTRA, id="a member that no operation of a JSON patch has"),
]


async def patched(managers: Managers, part: str, content: str, body: Any, validation: str) -> Reply:
    await managers("POST", DEPLOYMENTS, DEPLOYMENT)
    return await managers("PATCH", f"{DEPLOYMENTS}/web{part}?fieldValidation={validation}", body, content=content)


@pytest.mark.parametrize("part", [pytest.param("", id="of a deployment"), pytest.param("/scale", id="of its scale")])
@pytest.mark.parametrize(("content", "body", "problem"), PATCHES)
async def test_is_refused_or_warned_of_or_passes_as_asked(managers: Managers, part: str, content: str, body: bytes, problem: str) -> None:
    refused = await patched(managers, part, content, body, "Strict")
    assert refused.status == 422
    [(field, message)] = refused.causes
    assert field == "patch"
    assert message.endswith(f": strict decoding error: {problem}")

    warned = await patched(managers, part, content, body, "Warn")
    assert (warned.status, list(warned.warnings)) == (200, [problem])

    ignored = await patched(managers, part, content, body, "Ignore")
    assert (ignored.status, list(ignored.warnings)) == (200, [])


@pytest.mark.parametrize(
    ("spec", "shown", "why"),
    [
        pytest.param({"replicas": "three"}, "replicas:three", "unrecognized type: int32", id="a text for a number"),
        pytest.param({"replicas": 1.5}, "replicas:1.5", "cannot convert float64 to int32", id="a fraction for a whole number"),
        pytest.param({"template": "x"}, "template:x", "cannot restore struct from: string", id="a text for an object"),
        pytest.param(
            {"selector": {"matchLabels": "x"}}, "selector:map[matchLabels:x]", "cannot restore map from string", id="a text for a map"
        ),
        pytest.param(
            {"selector": {"matchLabels": {"a": 1}}},
            "selector:map[matchLabels:map[a:1]]",
            "cannot convert int64 to string",
            id="a number for a text",
        ),
    ],
)
async def test_a_strategic_merge_patch_is_shown_as_sent_with_the_type_that_does_not_fit(
    managers: Managers, spec: dict[str, Any], shown: str, why: str
) -> None:
    answer = await patched(managers, "", STRATEGIC, {"spec": spec}, "Strict")
    assert answer.status == 422
    assert answer.causes == [("patch", f'Invalid value: "map[spec:map[{shown}]]": {why}')]


async def test_bytes_that_are_no_base64_are_refused_as_the_converter_does(managers: Managers) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "binaryData": {"a": "!!"}}
    answer = await managers("PATCH", "configmaps/broken?fieldManager=me", body, content=APPLY)
    assert answer.status == 500
    assert answer.message.endswith(": error decoding from json: illegal base64 data at input byte 0")


@pytest.mark.parametrize(
    ("content", "body"),
    [
        pytest.param(MERGE, b"x", id="a merge patch that is no JSON"),
        pytest.param(STRATEGIC, b"[]", id="a strategic merge patch that is no object"),
        pytest.param(JSON_PATCH, b"[", id="a JSON patch that ends too soon"),
    ],
)
async def test_a_missing_object_is_reported_before_a_fault_of(managers: Managers, content: str, body: bytes) -> None:
    answer = await managers("PATCH", "configmaps/nobody", body, content=content)
    assert (answer.status, answer.message) == (404, 'configmaps "nobody" not found')


@pytest.mark.parametrize(
    "metadata", [pytest.param({}, id="does not name"), pytest.param({"metadata": {"name": "other"}}, id="names another than")]
)
async def test_a_binding_is_refused_that(managers: Managers, metadata: dict[str, Any]) -> None:
    """...the pod of the path."""
    answer = await managers("POST", "pods/web/binding", {**metadata, "target": {"name": "node"}})
    assert (answer.status, answer.message) == (400, "name in URL does not match name in Binding object")


async def test_unknown_fields_of_a_binding_are_refused_when_asked(managers: Managers) -> None:
    body = {"metadata": {"name": "web"}, "target": {"name": "node"}, "extra": 1}
    answer = await managers("POST", "pods/web/binding?fieldValidation=Strict", body)
    assert answer.status == 400
    assert answer.message == 'Binding in version "v1" cannot be handled as a Binding: strict decoding error: unknown field "extra"'
