"""Defaults of a CustomResourceDefinition. Source: apiextensions.k8s.io/v1 defaults.go."""

from __future__ import annotations

from kubeloop.apiserver.crd.definition import names_of, storage_version
from kubeloop.types import JSONObject


def apply(crd: JSONObject) -> None:
    """Names derived from the kind, conversion, and the first stored version; in place."""
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = str(names_of(crd).get("kind") or "")
    if not names.get("singular") and kind:
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    if spec.get("conversion") is None:
        spec["conversion"] = {"strategy": "None"}
    webhook = spec["conversion"].get("webhook") or {}
    if webhook.get("clientConfig") is None and webhook.get("conversionReviewVersions") is None:
        # Upstream's internal form holds its members only, so that nothing is left of an empty one.
        spec["conversion"].pop("webhook", None)
    service = (webhook.get("clientConfig") or {}).get("service")
    if service is not None and service.get("port") is None:
        service["port"] = 443
    if not (crd.get("status") or {}).get("storedVersions"):
        add_stored_version(crd)


def add_stored_version(crd: JSONObject) -> None:
    """The storage version joins ``status.storedVersions``: from now on objects of it may lie in storage."""
    version = storage_version(crd)
    status = crd.setdefault("status", {})
    stored = status.get("storedVersions") or []
    if version and version not in stored:
        status["storedVersions"] = [*stored, version]
