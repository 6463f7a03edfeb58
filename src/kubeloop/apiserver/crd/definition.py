"""Reads and sets parts of a CustomResourceDefinition (a JSON tree): names, versions, subresources, conditions.

Source: apiextensions.k8s.io/v1 types; apiextensions-apiserver pkg/apihelpers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from kubeloop.types import JSONObject

CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
APPROVAL_ANNOTATION: Final = "api-approved.kubernetes.io"


def group_of(crd: JSONObject) -> str:
    """Return the API group."""
    return str(crd["spec"].get("group") or "")


def names_of(crd: JSONObject) -> JSONObject:
    """Return ``spec.names``. ``accepted_names`` returns the names that are in use."""
    names: JSONObject = crd["spec"].get("names") or {}
    return names


def accepted_names(crd: JSONObject) -> JSONObject:
    """Return the names that the server accepted (``status.acceptedNames``)."""
    return (crd.get("status") or {}).get("acceptedNames") or {}


def versions_of(crd: JSONObject) -> list[JSONObject]:
    """Return the versions in the order of the definition."""
    return crd["spec"].get("versions") or []


def storage_version(crd: JSONObject) -> str:
    """Return the name of the storage version, or an empty text for an invalid definition."""
    return next((str(version["name"]) for version in versions_of(crd) if version.get("storage")), "")


def schema_of(version: JSONObject) -> JSONObject | None:
    """Return the OpenAPI schema of a version, or None if it has none."""
    schema: JSONObject | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema


def has_status_subresource(version: JSONObject) -> bool:
    """Return whether a version has the subresource ``status``."""
    return (version.get("subresources") or {}).get("status") is not None


def scale_subresource(version: JSONObject) -> JSONObject | None:
    """Return the configuration of the subresource ``scale``, or None if the version has none."""
    scale: JSONObject | None = (version.get("subresources") or {}).get("scale")
    return scale


def is_namespaced(crd: JSONObject) -> bool:
    """Return whether the objects are in namespaces."""
    return bool(crd["spec"].get("scope") == "Namespaced")


def condition(crd: JSONObject, type_: str) -> JSONObject | None:
    """Return the condition of a type, or None if it is not set."""
    conditions = (crd.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one.get("type") == type_), None)


def is_true(crd: JSONObject, type_: str) -> bool:
    """Return whether a condition has the status True."""
    return (condition(crd, type_) or {}).get("status") == "True"


def set_condition(crd: JSONObject, type_: str, status: str, reason: str, message: str, now: datetime) -> None:
    """Add or replace a condition. Its lastTransitionTime changes only with its status.

    Args:
        crd: The definition; it is changed in place.
        type_: Type of the condition, such as Established.
        status: True, False or Unknown.
        reason: A word in CamelCase.
        message: A sentence for people.
        now: Time of the transition.
    """
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    value = condition(crd, type_)
    if value is None:
        holder = crd.setdefault("status", {})
        holder["conditions"] = [*(holder.get("conditions") or []), value := {"type": type_}]
        value["lastTransitionTime"] = stamp
    elif value.get("status") != status:
        value["lastTransitionTime"] = stamp
    value.update(status=status, reason=reason, message=message)


def is_served(crd: JSONObject) -> bool:
    """Return whether the server serves the objects: the names are accepted, and the CA bundle of a conversion webhook is valid."""
    if is_true(crd, "Established"):
        return True
    return is_true(crd, "NamesAccepted") and (condition(crd, "Established") or {}).get("reason") != "InvalidCABundle"


def shared(crd: JSONObject, read: Callable[[JSONObject], Any]) -> bool:
    """Return whether ``read`` returns the same value for all versions.

    Upstream then reports errors in the value once, at ``spec`` instead of at each version.
    """
    value = [read(version) for version in versions_of(crd)]
    return bool(value) and all(one == value[0] for one in value)


# Defaults of a CustomResourceDefinition. Source: apiextensions.k8s.io/v1 defaults.go.


def apply(crd: JSONObject) -> None:
    """Set the defaults in place: names derived from the kind, conversion, and the first stored version."""
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
        # Upstream's internal type has no field for an empty value here, so it is dropped.
        spec["conversion"].pop("webhook", None)
    service = (webhook.get("clientConfig") or {}).get("service")
    if service is not None and service.get("port") is None:
        service["port"] = 443
    if not (crd.get("status") or {}).get("storedVersions"):
        add_stored_version(crd)


def add_stored_version(crd: JSONObject) -> None:
    """Add the storage version to ``status.storedVersions``, because storage may contain objects in this version after the write."""
    version = storage_version(crd)
    status = crd.setdefault("status", {})
    stored = status.get("storedVersions") or []
    if version and version not in stored:
        status["storedVersions"] = [*stored, version]
