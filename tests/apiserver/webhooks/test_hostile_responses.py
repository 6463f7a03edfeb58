"""Random responses of webhooks: the server accepts each or raises CallFailed, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.apiserver.crd.conversion import ConversionWebhook
from kubeloop.apiserver.outbound.failure import CallFailed
from kubeloop.apiserver.webhooks.admission_review import AdmissionReviewRequest, AdmissionReviewResponse, parse_response, rejection
from kubeloop.meta.errors import ApiError

JSON = Any
ASKED = AdmissionReviewRequest("u-1", "v1", {})

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8
)
texts = st.sampled_from(["", "v1", "AdmissionReview", "admission.k8s.io/v1", "JSONPatch", "Failure", base64.b64encode(b"[]").decode()])


def shaped(*names: str) -> st.SearchStrategy[dict[str, JSON]]:
    """Objects with the fields that matter, of whatever types."""
    return st.dictionaries(st.sampled_from(names), texts | values, max_size=len(names))


statuses = shaped("code", "message", "reason", "details", "status", "metadata", "kind")
responses = st.builds(
    lambda fields, status, uid: {**fields, "status": status, "uid": uid},
    shaped("allowed", "patch", "patchType", "warnings", "auditAnnotations"),
    statuses | values,
    st.sampled_from(["u-1", "u-2"]) | values,
)
reviews = st.builds(
    lambda head, response: {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", **head, "response": response},
    shaped("apiVersion", "kind"),
    responses | values,
)


def judged(body: bytes, *, mutating: bool) -> AdmissionReviewResponse | None:
    with contextlib.suppress(CallFailed):
        return parse_response(ASKED, body, mutating=mutating)
    return None


@settings(max_examples=300)
@given(
    st.binary(max_size=40) | reviews.map(lambda tree: json.dumps(tree).encode()) | values.map(lambda tree: json.dumps(tree).encode()),
    st.booleans(),
)
def test_an_answer_is_a_verdict_or_a_failure(body: bytes, mutating: bool) -> None:
    said = judged(body, mutating=mutating)
    if said is not None and not said.allowed:
        refusal = rejection("w.example.com", said.status)
        assert 400 <= refusal.status.code <= 599
        assert refusal.status.status == "Failure"
        assert refusal.status.message.startswith('admission webhook "w.example.com" denied the request')


def test_an_answer_nested_too_deeply_is_a_failure() -> None:
    assert judged(b"[" * 100_000, mutating=True) is None


OBJECT = {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}}}
converted = st.builds(
    lambda change, metadata: {**OBJECT, "apiVersion": "g/v2", **change, **metadata},
    shaped("apiVersion", "kind", "metadata", "spec"),
    st.just({}) | shaped("name", "uid", "labels", "annotations").map(lambda tree: {"metadata": {**OBJECT["metadata"], **tree}}),  # type: ignore[dict-item]
)
answers = st.builds(
    lambda result, objects: {"response": {"uid": "UID", "result": result, "convertedObjects": objects}},
    st.just({"status": "Success"}) | statuses,
    st.lists(converted | values, max_size=2) | values,
)


@settings(max_examples=100)
@given(answers)
def test_a_conversion_is_made_or_refused(answer: dict[str, JSON]) -> None:
    async def post(_config: dict[str, JSON], review: dict[str, JSON], *, timeout: int) -> bytes:
        assert timeout == 30
        text = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], **answer})
        return text.replace('"UID"', json.dumps(review["request"]["uid"])).encode()

    webhook = ConversionWebhook({"webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}}, post)
    with contextlib.suppress(ApiError):
        (made,) = asyncio.run(webhook.convert([OBJECT], "g/v2"))
        assert (made["apiVersion"], made["kind"], made["metadata"]["uid"]) == ("g/v2", "K", "u")
