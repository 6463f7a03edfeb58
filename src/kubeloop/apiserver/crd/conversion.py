"""Conversion webhooks of custom resources, and the validation of ``spec.conversion``.

Source: apiextensions-apiserver validateCustomResourceConversion, apiserver util/webhook.
"""

from __future__ import annotations

import base64
import copy
import json
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from kubeloop.apiserver.crd.definition import is_true
from kubeloop.apiserver.outbound.failure import CallFailed, NotCallable
from kubeloop.apiserver.outbound.review_reader import read_review
from kubeloop.apiserver.outbound.target import trust
from kubeloop.apiserver.validation.metadata import validate_labels
from kubeloop.apiserver.validation.webhook_client import check_client_config
from kubeloop.endpoints import api_errors
from kubeloop.meta.field_error import FieldError, FieldErrorType, forbidden, invalid, required
from kubeloop.meta.names import annotation_key, dns1035_label
from kubeloop.types import JSONObject

# Calls a webhook that converts objects of a custom resource to another version.
#
# Source: apiextensions.k8s.io/v1 ConversionReview; apiextensions-apiserver pkg/apiserver/conversion/webhook_converter.go.


#: Sends a review to a ``clientConfig`` within ``timeout`` seconds; raises CallFailed.
Post = Callable[..., Awaitable[bytes]]

_GROUP: Final = "apiextensions.k8s.io"
_REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_FIELDS: Final[Mapping[str, str]] = {"uid": "string", "convertedObjects": "[]runtime.RawExtension", "result": "v1.Status"}
#: Timeout of a call in seconds, as in kube-apiserver.
_TIMEOUT: Final = 30


async def call_no_webhook(_config: JSONObject, _review: JSONObject, *, timeout: int) -> bytes:  # noqa: ARG001 - a Post's own
    """Raise CallFailed. This replaces the call of webhooks for definitions that are only inspected and not served."""
    raise CallFailed("no webhook is called here")


class ConversionWebhook:
    """Calls the conversion webhook of one definition.

    Guarantees
        In the metadata the webhook can change only labels and annotations.
        A response that lacks an object, or has an object with another name, kind or version, is rejected as a whole.
    """

    def __init__(self, conversion: JSONObject, post: Post) -> None:
        """Read the configuration. ``conversion`` is ``spec.conversion`` of a definition with strategy Webhook."""
        webhook = conversion["webhook"]
        self._config: JSONObject = webhook["clientConfig"]
        self._reviews: list[str] = webhook.get("conversionReviewVersions") or []
        self._post = post

    async def convert(self, objects: list[JSONObject], to: str) -> list[JSONObject]:
        """Convert objects, which stay unchanged, to the API version ``to``.

        Raises:
            ApiError: The conversion failed: code 500 without a reason, as upstream.
        """
        subject = f"conversion webhook for {_shown_kind(objects[0])}"
        try:
            response = await self._ask(objects, to)
        except CallFailed as error:
            raise api_errors.internal(f"{subject} failed: {error}") from None
        made = response.get("convertedObjects") or []
        if len(made) != len(objects):
            raise api_errors.internal(f"{subject} returned {len(made)} objects, expected {len(objects)}")
        single, pairs = len(objects) == 1, zip(objects, made, strict=True)
        return [_checked(subject, before, after, to, place, single=single) for place, (before, after) in enumerate(pairs)]

    async def _ask(self, objects: list[JSONObject], to: str) -> JSONObject:
        version = next((one for one in self._reviews if one in _REVIEW_VERSIONS), None)
        if version is None:
            raise CallFailed("no supported conversion review versions")
        uid = str(uuid.uuid4())
        review = {
            "kind": "ConversionReview",
            "apiVersion": f"{_GROUP}/{version}",
            "request": {"uid": uid, "desiredAPIVersion": to, "objects": [_without_version(one) for one in objects]},
        }
        body = await self._post(self._config, review, timeout=_TIMEOUT)
        response, kind = read_review(body, _GROUP, version, "ConversionReview", _FIELDS)
        expected = f"{_GROUP}/v1, Kind=ConversionReview"
        # Responses of v1beta1 may lack kind and uid.
        if version == "v1" and kind != expected:
            raise CallFailed(f"expected webhook response of {expected}, got {kind}")
        if response is None:
            raise CallFailed("no response provided")
        if version == "v1" and (response.get("uid") or "") != uid:
            raise CallFailed(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
        result = response.get("result") or {}
        if result.get("status") != "Success":
            raise CallFailed(result.get("message") or f"response.result.status was '{result.get('status') or ''}', not 'Success'")
        return response


def _shown_kind(obj: JSONObject) -> str:
    return f"{obj.get('apiVersion', '')}, Kind={obj.get('kind', '')}"


def _without_version(obj: JSONObject) -> JSONObject:
    """Return the object without resourceVersion, because upstream converts the stored object, which has none."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return {**obj, "metadata": metadata}


def _checked(subject: str, before: JSONObject, after: Any, to: str, place: int, *, single: bool) -> JSONObject:
    """Check a converted object, and return it with the metadata of the original.

    Args:
        subject: Start of the error messages, which names the webhook's kind.
        before: The original object.
        after: The object in the response.
        to: The requested API version.
        place: Index of the object in the review.
        single: The review has one object, so that messages leave out the index.

    Raises:
        ApiError: The object has another name, kind or version.
    """
    if after is None:
        raise api_errors.internal("unexpected end of JSON input")
    if not isinstance(after, dict) or not after.get("kind"):
        raise api_errors.internal(f"Object 'Kind' is missing in '{json.dumps(after, ensure_ascii=False)}'")
    at_index = f"{subject} returned invalid{'' if single else ' converted'} object at index {place}"
    at_object = f"{subject} returned invalid object" if single else at_index
    if after.get("apiVersion") != to:
        raise api_errors.internal(f"{at_index}: invalid groupVersion (expected {to}, received {after.get('apiVersion') or ''})")
    if after["kind"] != before["kind"]:
        raise api_errors.internal(f"{at_index}: invalid kind (expected {before['kind']}, received {after['kind']})")
    metadata = after.get("metadata")
    value = metadata if isinstance(metadata, dict) else {}
    for name, shown in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        requested, got = before["metadata"].get(name) or "", value.get(name) or ""
        if requested != got:
            raise api_errors.internal(f"{at_object}: must have the same {shown}: {requested} != {got}")
    try:
        retained = _metadata(before["metadata"], value)
    except CallFailed as error:
        of = f"{subject} returned invalid metadata" if single else f"{subject} returned invalid metadata in object at index {place}"
        raise api_errors.internal(f"{of}: {error}") from None
    return {**after, "metadata": retained}


def _metadata(before: JSONObject, after: JSONObject) -> JSONObject:
    retained: JSONObject = copy.deepcopy(before)
    for field in ("labels", "annotations"):
        values = after.get(field)
        if values is None:
            retained.pop(field, None)
            continue
        if not isinstance(values, dict):
            raise CallFailed(f"invalid metadata.{field} of type {_go_type(values)} in converted object")
        for key, value in values.items():
            if not isinstance(value, str):
                raise CallFailed(f"metadata.{field}[{key}] must be a string, but is {_go_type(value)} in converted object")
        if values != (before.get(field) or {}):
            _check_texts(field, values)
        retained[field] = values
    return retained


def _check_texts(field: str, values: dict[str, str]) -> None:
    if field == "labels":
        errors = [str(error) for error in validate_labels("metadata.labels", values)]
    else:
        # Upstream spells the path this way.
        errors = [f'metadata.annotation: Invalid value: "{key}": {message}' for key in values for message in annotation_key(key)]
    if errors:
        raise CallFailed(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")


def _go_type(value: Any) -> str:
    names = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}", dict: "map[string]interface {}"}
    return names.get(type(value), "<nil>")


_REVIEWS: Final = ("v1", "v1beta1")
_CLIENT: Final = "spec.conversion.webhookClientConfig"
_VERSIONS: Final = "spec.conversion.conversionReviewVersions"


def ca_bundle_error(crd: JSONObject) -> str:
    """Return why the CA bundle of a conversion webhook is invalid, or an empty text if it is valid."""
    client = ((crd["spec"].get("conversion") or {}).get("webhook") or {}).get("clientConfig") or {}
    if not client.get("caBundle"):
        return ""
    try:
        trust(base64.b64decode(client["caBundle"]))
    except (NotCallable, ValueError) as error:
        return str(error)
    return ""


def check_ca_bundle(crd: JSONObject, old: JSONObject) -> Iterator[FieldError]:
    """Check that an update of an established definition does not make a valid CA bundle invalid."""
    if (crd["spec"].get("conversion") or {}).get("strategy") != "Webhook":
        return
    error = ca_bundle_error(crd)
    if error and is_true(old, "Established") and not ca_bundle_error(old):
        bundle = crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
        yield invalid(f"{_CLIENT}.caBundle", bundle, error)


def check_conversion(spec: JSONObject) -> Iterator[FieldError]:
    """Validate ``spec.conversion``. Field names are those of upstream's internal type, which its messages show."""
    conversion = spec.get("conversion")
    if conversion is None:
        return
    strategy = conversion.get("strategy") or ""
    webhook = conversion.get("webhook") or {}
    client, reviews = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    if spec.get("preserveUnknownFields") and strategy != "None":
        yield invalid("spec.conversion.strategy", strategy, "must be None if spec.preserveUnknownFields is true")
    if not strategy:
        yield required("spec.conversion.strategy")
    elif strategy not in ("None", "Webhook"):
        yield FieldError(FieldErrorType.NOT_SUPPORTED, "spec.conversion.strategy", strategy, 'supported values: "None", "Webhook"')
    if strategy == "Webhook":
        if client is None:
            yield required(_CLIENT, "required when strategy is set to Webhook")
        else:
            yield from check_client_config(_CLIENT, client)
        yield from _reviews(reviews)
        return
    detail = "should not be set when strategy is not set to Webhook"
    if client is not None:
        yield forbidden(_CLIENT, detail)
    if reviews:
        yield forbidden(_VERSIONS, detail)


def _reviews(versions: list[str]) -> Iterator[FieldError]:
    if not versions:
        yield required(_VERSIONS)
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            yield invalid(f"{_VERSIONS}[{index}]", version, "duplicate version")
            continue
        seen.add(version)
        for message in dns1035_label(version, False):
            yield invalid(f"{_VERSIONS}[{index}]", version, message)
    if not seen & set(_REVIEWS):
        yield invalid(_VERSIONS, versions, f"must include at least one of {', '.join(_REVIEWS)}")
