"""A CustomResourceDefinition as the server reads it: names, versions, subresources, conditions. Reads and sets plain JSON trees.

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
    return str(crd["spec"].get("group") or "")


def names_of(crd: JSONObject) -> JSONObject:
    """``spec.names``; ``accepted_names`` are those in force."""
    names: JSONObject = crd["spec"].get("names") or {}
    return names


def accepted_names(crd: JSONObject) -> JSONObject:
    return (crd.get("status") or {}).get("acceptedNames") or {}


def versions_of(crd: JSONObject) -> list[JSONObject]:
    return crd["spec"].get("versions") or []


def storage_version(crd: JSONObject) -> str:
    """Name of the version that is stored; empty for a faulty definition."""
    return next((str(version["name"]) for version in versions_of(crd) if version.get("storage")), "")


def schema_of(version: JSONObject) -> JSONObject | None:
    schema: JSONObject | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema


def has_status_subresource(version: JSONObject) -> bool:
    return (version.get("subresources") or {}).get("status") is not None


def scale_subresource(version: JSONObject) -> JSONObject | None:
    scale: JSONObject | None = (version.get("subresources") or {}).get("scale")
    return scale


def is_namespaced(crd: JSONObject) -> bool:
    return bool(crd["spec"].get("scope") == "Namespaced")


def condition(crd: JSONObject, type_: str) -> JSONObject | None:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one.get("type") == type_), None)


def is_true(crd: JSONObject, type_: str) -> bool:
    return (condition(crd, type_) or {}).get("status") == "True"


def set_condition(crd: JSONObject, type_: str, status: str, reason: str, message: str, now: datetime) -> None:
    """Set or replace a condition; its time changes only with its status."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    found = condition(crd, type_)
    if found is None:
        holder = crd.setdefault("status", {})
        holder["conditions"] = [*(holder.get("conditions") or []), found := {"type": type_}]
        found["lastTransitionTime"] = stamp
    elif found.get("status") != status:
        found["lastTransitionTime"] = stamp
    found.update(status=status, reason=reason, message=message)


def is_served(crd: JSONObject) -> bool:
    """Whether requests for its objects are answered: once its names were accepted, unless its webhook cannot be trusted."""
    if is_true(crd, "Established"):
        return True
    return is_true(crd, "NamesAccepted") and (condition(crd, "Established") or {}).get("reason") != "InvalidCABundle"


def shared(crd: JSONObject, read: Callable[[JSONObject], Any]) -> bool:
    """Whether all versions say the same: upstream then reports faults of it once, at ``spec`` instead of each version."""
    found = [read(version) for version in versions_of(crd)]
    return bool(found) and all(one == found[0] for one in found)


# Defaults of a CustomResourceDefinition. Source: apiextensions.k8s.io/v1 defaults.go.


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
