"""AdmissionReviews: encode the request to a webhook about one write, and decode its response.

Source: admission.k8s.io/v1 and v1beta1; k8s.io/apiserver pkg/admission/plugin/webhook/request, webhook/errors.
"""

from __future__ import annotations

import base64
import binascii
import copy
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.admission.matching import request_tree
from kubeloop.apiserver.outbound.failure import CallFailed
from kubeloop.apiserver.outbound.review_reader import read_review
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource
from kubeloop.meta.status import Status
from kubeloop.types import JSONObject

_GROUP: Final = "admission.k8s.io"
_VERSIONS: Final = ("v1", "v1beta1")
_FIELDS: Final[Mapping[str, str]] = {
    "uid": "string",
    "allowed": "bool",
    "patch": "string",
    "patchType": "string",
    "status": "v1.Status",
    "auditAnnotations": "map[string]string",
    "warnings": "[]string",
}
JSON_PATCH: Final = "JSONPatch"


@dataclass(frozen=True, slots=True)
class AdmissionReviewRequest:
    """An AdmissionReview to send: the version of its API, and the ``uid`` that the response must repeat."""

    uid: str
    version: str
    tree: JSONObject


@dataclass(frozen=True, slots=True)
class AdmissionReviewResponse:
    """The response of a webhook. ``patch`` is empty if the webhook returned no patch; ``status`` is the Status of a rejection."""

    allowed: bool
    patch: bytes = b""
    patch_type: str = ""
    status: JSONObject | None = None
    warnings: tuple[str, ...] = ()


def create_review(
    attributes: Attributes,
    versions: list[str],
    kind: GroupVersionKind,
    resource: GroupVersionResource,
    obj: JSONObject | None,
    old: JSONObject | None,
    name: str,
) -> AdmissionReviewRequest:
    """Build the AdmissionReview for a write, in the first of ``versions`` that is known here.

    Args:
        attributes: The write.
        versions: ``admissionReviewVersions`` of the webhook, in its order of preference.
        kind: The kind that a rule of the webhook matched.
        resource: The resource that a rule of the webhook matched.
        obj: The object in that kind; None for DELETE.
        old: The stored object in that kind; None for CREATE.
        name: Name of the object; empty while a name is not generated yet.

    Returns:
        The review to send.

    Raises:
        CallFailed: The server knows none of the versions.
    """
    version = next((one for one in versions if one in _VERSIONS), None)
    if version is None:
        raise CallFailed("could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)")
    uid = str(uuid.uuid4())
    request = {"uid": uid, **request_tree(attributes, kind, resource, name), "object": obj, "oldObject": old}
    return AdmissionReviewRequest(uid, version, {"kind": "AdmissionReview", "apiVersion": f"{_GROUP}/{version}", "request": request})


def parse_response(requested: AdmissionReviewRequest, body: bytes, *, mutating: bool) -> AdmissionReviewResponse:
    """Decode the response of a webhook.

    Raises:
        CallFailed: The response is invalid. The message is the part after ``failed calling webhook "NAME": ``.
    """
    try:
        response, reason = read_review(body, _GROUP, requested.version, "AdmissionReview", _FIELDS)
        patch = _patch(response)
    except CallFailed as error:
        raise CallFailed(f"failed to call webhook: {error}") from None
    try:
        return _verdict(requested, response, reason, patch, mutating=mutating)
    except CallFailed as error:
        raise CallFailed(f"received invalid webhook response: {error}") from None


def _patch(response: JSONObject | None) -> bytes:
    text = (response or {}).get("patch") or ""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        index = next((place for place, letter in enumerate(text) if letter not in letters), len(text))
        raise CallFailed(f"illegal base64 data at input byte {index}") from None


def _verdict(
    requested: AdmissionReviewRequest, response: JSONObject | None, reason: str, patch: bytes, *, mutating: bool
) -> AdmissionReviewResponse:
    if response is None:
        raise CallFailed("webhook response was absent")
    type_ = response.get("patchType")
    if requested.version == "v1":
        uid, expected = response.get("uid") or "", f"{_GROUP}/v1, Kind=AdmissionReview"
        if uid != requested.uid:
            raise CallFailed(f'expected response.uid="{requested.uid}", got "{uid}"')
        if reason != expected:
            raise CallFailed(f"expected webhook response of {expected}, got {reason}")
        _check_patch(patch, type_, mutating=mutating)
    else:
        # Responses of v1beta1 may lack uid, kind and patch type.
        type_ = JSON_PATCH if patch else ""
    warnings = tuple(text for text in response.get("warnings") or () if text)
    retained = (patch, type_ or "") if mutating else (b"", "")
    return AdmissionReviewResponse(bool(response.get("allowed")), *retained, response.get("status"), warnings)


def _check_patch(patch: bytes, type_: str | None, *, mutating: bool) -> None:
    if not mutating:
        if patch:
            raise CallFailed("validating webhook may not return response.patch")
        if type_ is not None:
            raise CallFailed("validating webhook may not return response.patchType")
    elif patch and type_ is None:
        raise CallFailed("webhook returned response.patch but not response.patchType")
    elif not patch and type_ is not None:
        raise CallFailed("webhook returned response.patchType but not response.patch")
    elif type_ == "":
        raise CallFailed('webhook returned invalid response.patchType of ""')


def rejection(name: str, values: JSONObject | None) -> ApiError:
    """Return the error of a rejection: the webhook's Status, with the webhook's name in the message and a code of at least 400."""
    try:
        status = msgspec.convert(copy.deepcopy(values or {}), Status, strict=False)
    except msgspec.ValidationError:
        status = Status(message=str((values or {}).get("message") or ""))
    status.kind, status.api_version, status.status = "Status", "v1", "Failure"
    # A code that is not a valid HTTP status cannot be sent.
    status.code = status.code if status.code <= 599 else 500
    status.code = max(status.code, 400)
    why = status.message or status.reason
    who = f'admission webhook "{name}" denied the request'
    status.message = f"{who}: {why}" if why else f"{who} without explanation"
    return ApiError.from_status(status)
