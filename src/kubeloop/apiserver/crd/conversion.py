"""Validation of a CRD's ``spec.conversion``. Source: apiextensions-apiserver validateCustomResourceConversion, apiserver util/webhook."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

from kubeloop.apiserver.crd.definition import is_true
from kubeloop.apiserver.outbound.failure import NotCallable
from kubeloop.apiserver.outbound.target import trust
from kubeloop.apiserver.validation.webhook_client import client_config
from kubeloop.meta.field_error import FieldError, FieldErrorType, forbidden, invalid, required
from kubeloop.meta.names import dns1035_label
from kubeloop.types import JSONObject

_REVIEWS: Final = ("v1", "v1beta1")
_CLIENT: Final = "spec.conversion.webhookClientConfig"
_VERSIONS: Final = "spec.conversion.conversionReviewVersions"


def bundle_fault(crd: JSONObject) -> str:
    """What is wrong with the certificates that a conversion webhook's server is to be known by; empty when nothing is."""
    client = ((crd["spec"].get("conversion") or {}).get("webhook") or {}).get("clientConfig") or {}
    if not client.get("caBundle"):
        return ""
    try:
        trust(base64.b64decode(client["caBundle"]))
    except (NotCallable, ValueError) as fault:
        return str(fault)
    return ""


def check_bundle(crd: JSONObject, old: JSONObject) -> Iterator[FieldError]:
    """A definition that is in use must not lose its webhook; before that, and where it was wrong already, nothing is said."""
    if (crd["spec"].get("conversion") or {}).get("strategy") != "Webhook":
        return
    fault = bundle_fault(crd)
    if fault and is_true(old, "Established") and not bundle_fault(old):
        bundle = crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
        yield invalid(f"{_CLIENT}.caBundle", bundle, fault)


def check_conversion(spec: JSONObject) -> Iterator[FieldError]:
    """Field names are those of upstream's internal form, which is what its messages show."""
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
            yield from client_config(_CLIENT, client)
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
