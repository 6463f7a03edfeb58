"""The effect of each response of an admission webhook, with the messages of kube-apiserver, on both servers."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kubeloop.meta.errors import ApiError
from tests.apiserver.webhooks.conftest import World
from tests.apiserver.webhooks.scripted import Raw, Script, allow, deny, patch, respond

pytestmark = pytest.mark.server

FAILED = 'failed calling webhook "w.example.com": '
CALL = f"{FAILED}failed to call webhook: "
INVALID = f"{FAILED}received invalid webhook response: "
TEAPOT = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "my words", "reason": "Teapot", "code": 400}
TEXT = {"Content-Type": "text/plain"}
TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


def raw(body: bytes = b"", status: int = 200, **headers: str) -> Script:
    return lambda _: Raw(body, status, headers=headers or {"Content-Type": "application/octet-stream"})


def without(*names: str) -> Script:
    """An allowing review without some of its fields."""

    def script(review: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in respond(review, allowed=True).items() if name not in names}

    return script


def patched(text: bytes, type_: str | None = "JSONPatch") -> Script:
    given: dict[str, Any] = {"patch": base64.b64encode(text).decode()}
    if type_ is not None:
        given["patchType"] = type_
    return lambda review: respond(review, allowed=True, **given)


FAILURES = [
    pytest.param(raw(b"boom", 500), f'{CALL}an error on the server ("unknown") has prevented the request from succeeding',
                 id="of an error that is no text nothing is shown"),
    pytest.param(lambda _: Raw(b"b\"oom\n", 500, headers=TEXT),
                 f'{CALL}an error on the server ("b\\"oom") has prevented the request from succeeding', id="an error's text is quoted"),
    pytest.param(raw(b"nope", 404), f"{CALL}the server could not find the requested resource", id="404"),
    pytest.param(raw(b"nope", 400), f"{CALL}the server rejected our request for an unknown reason", id="400"),
    pytest.param(raw(b"nope", 401), f"{CALL}the server has asked for the client to provide credentials", id="401"),
    pytest.param(raw(b"nope", 403), f"{CALL}unknown", id="403 says what the webhook says, which is no text here"),
    pytest.param(lambda _: Raw(b"not you", 403, headers=TEXT), f"{CALL}not you", id="403 says what the webhook says"),
    pytest.param(raw(b"nope", 405), f"{CALL}the server does not allow this method on the requested resource", id="405"),
    pytest.param(raw(b"nope", 409), f"{CALL}the server reported a conflict", id="409"),
    pytest.param(raw(b"nope", 422), f"{CALL}the server rejected our request due to an error in our request", id="422"),
    pytest.param(raw(b"", 503), f"{CALL}the server is currently unable to handle the request", id="503"),
    pytest.param(raw(b"tea", 418), f"{CALL}the server responded with the status code 418 but did not return more information", id="418"),
    pytest.param(lambda _: Raw(json.dumps(TEAPOT).encode(), 400, headers={"Content-Type": "application/json"}), f"{CALL}my words",
                 id="a Status speaks for itself"),
    pytest.param(raw(), f"{CALL}0-length response with status code: 200 and content type: application/octet-stream", id="an empty answer"),
    pytest.param(raw(b"{"), f"{CALL}couldn't get version/kind; json parse error: unexpected end of JSON input", id="half an answer"),
    pytest.param(raw(b'"x"'), f"{CALL}couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type "
                 + TYPE_META, id="an answer that is no object"),
    pytest.param(raw(b"{}"), f"{INVALID}webhook response was absent", id="an empty object"),
    pytest.param(without("response"), f"{INVALID}webhook response was absent", id="a review without a response"),
    pytest.param(raw(b'{"kind":"Pod","apiVersion":"v1"}'),
                 f'{CALL}no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"', id="another kind"),
    pytest.param(lambda review: {**respond(review, allowed=True), "apiVersion": "admission.k8s.io/v1beta1"},
                 f"{CALL}converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion", id="another version"),
    pytest.param(without("kind", "apiVersion"), f"{INVALID}expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, "
                 "Kind=", id="no kind"),
    pytest.param(lambda review: respond(review, allowed="yes"),
                 f"{CALL}json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
                 id="a field of another type"),
]  # fmt: skip

PATCHES = [
    pytest.param(patched(b"[]", None), f"{INVALID}webhook returned response.patch but not response.patchType", id="a patch of no type"),
    pytest.param(lambda review: respond(review, allowed=True, patchType="JSONPatch"),
                 f"{INVALID}webhook returned response.patchType but not response.patch", id="a type of no patch"),
    pytest.param(patched(b'[{"op":"remove","path":"/x"}]', "Other"), f'{FAILED}unsupported patch type "Other"', id="an unknown type"),
    pytest.param(patched(b'[{"op":"remove","path":"/x"}]', ""), f'{INVALID}webhook returned invalid response.patchType of ""',
                 id="an empty type"),
    pytest.param(patched(b"{}"), f"{FAILED}received undecodable patch in webhook response: json: cannot unmarshal object into Go value of "
                 "type jsonpatch.Patch", id="a patch that is no list"),
    pytest.param(lambda review: respond(review, allowed=True, patch="***", patchType="JSONPatch"),
                 f"{CALL}illegal base64 data at input byte 0", id="a patch that is not base64"),
    pytest.param(patch({"op": "remove", "path": "/nosuch/x"}),
                 'remove operation does not apply: doc is missing path: "/nosuch/x": missing value', id="a path that is not there"),
    pytest.param(patch({"op": "test", "path": "/metadata/name", "value": "zz"}), "testing value /metadata/name failed: test failed",
                 id="a test that fails"),
    pytest.param(patch({"op": "frob", "path": "/metadata/name"}), "Unexpected kind: frob", id="an unknown operation"),
    pytest.param(patch({"op": "add", "path": "/data", "value": 7}),
                 "json: cannot unmarshal number into Go struct field ConfigMap.data of type map[string]string", id="a field's wrong type"),
]  # fmt: skip


async def created(world: World, kind: str, script: Script, **webhook: Any) -> Any:
    """A ConfigMap created under a webhook that answers as ``script`` says."""
    async with world.configured(kind, world.webhook(world.hook.on("/w", script), **webhook)):
        return await world("POST", world.path(), {"metadata": {"name": "a"}})


async def refusal(world: World, kind: str, script: Script, **webhook: Any) -> ApiError:
    with pytest.raises(ApiError) as met:
        await created(world, kind, script, **webhook)
    return met.value


@pytest.mark.parametrize(("script", "message"), FAILURES)
async def test_a_webhook_that_fails_refuses_the_write_and_says_why(world: World, script: Script, message: str) -> None:
    met = await refusal(world, "Validating", script)
    assert (met.status.code, met.status.reason) == (500, "InternalError")
    assert met.status.message == f"Internal error occurred: {message}"
    assert [one.message for one in met.causes] == [message]


@pytest.mark.parametrize(("script", "message"), PATCHES)
async def test_a_patch_that_cannot_be_applied_refuses_the_write(world: World, script: Script, message: str) -> None:
    met = await refusal(world, "Mutating", script)
    assert (met.status.code, met.status.message) == (500, f"Internal error occurred: {message}")


DENIED = 'admission webhook "w.example.com" denied the request'


@pytest.mark.parametrize(
    ("script", "code", "reason", "message"),
    [
        pytest.param(deny(), 400, "", f"{DENIED} without explanation", id="a bare no is 400"),
        pytest.param(deny(message="no way"), 400, "", f"{DENIED}: no way", id="a message comes after the webhook's name"),
        pytest.param(deny(reason="NoReason"), 400, "NoReason", f"{DENIED}: NoReason", id="a reason stands in for a message"),
        pytest.param(deny(message="no way", reason="Forbidden", code=409, status="Success"), 409, "Forbidden", f"{DENIED}: no way",
                     id="code and reason are the webhook's own"),
        pytest.param(deny(message="no way", code=200), 400, "", f"{DENIED}: no way", id="a refusal is never a success"),
    ],
)  # fmt: skip
async def test_a_denial(world: World, script: Script, code: int, reason: str, message: str) -> None:
    met = await refusal(world, "Validating", script)
    assert (met.status.code, met.status.reason, met.status.message) == (code, reason, message)


async def test_a_denial_keeps_details_and_metadata_of_its_status(world: World) -> None:
    details = {"name": "q", "causes": [{"reason": "r", "message": "m", "field": "f"}]}
    met = await refusal(world, "Validating", deny(message="no", details=details, metadata={"resourceVersion": "4"}))
    assert met.status.details is not None
    assert (met.status.details.name, met.causes[0].field, met.status.metadata) == ("q", "f", {"resourceVersion": "4"})


async def test_warnings_reach_the_client(world: World) -> None:
    await created(world, "Validating", allow(warnings=["one", 'two "q"']))
    assert world.warnings == ("one", 'two "q"')


async def test_a_validating_webhook_may_not_patch(world: World) -> None:
    met = await refusal(world, "Validating", patch({"op": "add", "path": "/data", "value": {}}))
    assert met.status.message == f"Internal error occurred: {INVALID}validating webhook may not return response.patch"


async def test_an_answer_to_another_question_is_none(world: World) -> None:
    met = await refusal(world, "Validating", lambda review: respond(review, allowed=True, uid="x"))
    asked = world.hook.seen["/w"][-1]["request"]["uid"]
    assert met.status.message == f'Internal error occurred: {INVALID}expected response.uid="{asked}", got "x"'


async def test_an_answer_of_v1beta1_needs_neither_kind_nor_uid(world: World) -> None:
    answer = {"response": {"uid": "x", "allowed": True}}
    await created(world, "Validating", lambda _: answer, admissionReviewVersions=["v1beta1"])
    assert world.hook.seen["/w"][-1]["apiVersion"] == "admission.k8s.io/v1beta1"


async def test_unknown_versions_are_passed_over(world: World) -> None:
    await created(world, "Validating", allow(), admissionReviewVersions=["v2", "v1"])
    assert world.hook.seen["/w"][-1]["apiVersion"] == "admission.k8s.io/v1"


async def test_with_failure_policy_ignore_a_failure_lets_the_write_through(world: World) -> None:
    made = await created(world, "Validating", raw(b"boom", 500), failurePolicy="Ignore")
    assert made["metadata"]["name"] == "a"


async def test_failure_policy_ignore_does_not_cover_a_patch_that_does_not_apply(world: World) -> None:
    met = await refusal(world, "Mutating", patch({"op": "remove", "path": "/nosuch/x"}), failurePolicy="Ignore")
    assert met.status.code == 500
