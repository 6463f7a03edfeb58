"""Metadata that the server sets: uid, creation time, generated names, generation, and the fields that updates cannot change.

Source: k8s.io/apiserver pkg/registry/rest (BeforeCreate, BeforeUpdate, FillObjectMetaSystemFields), pkg/storage/names.
"""

from __future__ import annotations

import random
import uuid
from datetime import datetime

from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.endpoints import api_errors
from kubeloop.types import JSONObject

# Duplicate owner references are removed, with a Warning.
# Source: k8s.io/apiserver pkg/endpoints/handlers/rest.go (dedupOwnerReferencesAndAddWarning).


_ADVICE = (
    "API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "
    "duplicate UID(s) observed: "
)


def drop_repeated(metadata: JSONObject, warnings: list[str], *, after_admission: bool) -> None:
    """Remove duplicate owner references; the first one stays.

    Args:
        metadata: Metadata of the object.
        warnings: The Warning is appended.
        after_admission: Whether the duplicate may come from an admission plug-in or webhook; the warning then mentions that.
    """
    references = metadata.get("ownerReferences")
    if not references or len(references) == 1:
        return
    stored: list[JSONObject] = []
    repeated: list[str] = []
    for reference in references:
        if reference in stored:
            repeated.append(reference.get("uid", ""))
        else:
            stored.append(reference)
    if not repeated:
        return
    when = " after mutating admission happens" if after_admission else ""
    warnings.append(f".metadata.ownerReferences contains duplicate entries{when}; {_ADVICE}{', '.join(repeated)}")
    metadata["ownerReferences"] = stored


#: Letters of generated names: no vowels and no similar letters.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_LONGEST = 63


def timestamp(now: datetime) -> str:
    """Format a time in RFC 3339 with seconds, as Kubernetes writes it."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def generate_name(prefix: str) -> str:
    """Return ``prefix`` with five random letters, at most 63 characters."""
    return prefix[: _LONGEST - _SUFFIX] + "".join(random.choices(_LETTERS, k=_SUFFIX))


def metadata_of(obj: JSONObject) -> JSONObject:
    """Return the metadata of an object; add it if it is missing."""
    metadata: JSONObject | None = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    return metadata


def set_namespace(metadata: JSONObject, namespace: str) -> None:
    """Set the namespace of a request in the metadata. An empty namespace (of a cluster-scoped resource) removes the field.

    Raises:
        BadRequest: The object names another namespace.
    """
    requested = metadata.get("namespace") or ""
    if requested and namespace and requested != namespace:
        raise api_errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)


def check_name(metadata: JSONObject, name: str) -> None:
    """Check that the object has the name in the path. Raises BadRequest if it has none or another one."""
    requested = metadata.get("name") or ""
    if not requested:
        raise api_errors.bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if requested != name:
        raise api_errors.bad_request(f"the name of the object ({requested}) does not match the name on the URL ({name})")


def fill_new(metadata: JSONObject, now: datetime) -> None:
    """Set the system fields of a new object, and discard those of the client."""
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(name, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = timestamp(now)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generate_name(metadata["generateName"])


def carry_over(metadata: JSONObject, old: JSONObject) -> None:
    """Copy the system fields that updates cannot change from ``old``. Validation checks uid and names."""
    metadata.pop("selfLink", None)
    for name in ("creationTimestamp", "generation", "deletionTimestamp"):
        if name in old:
            metadata[name] = old[name]
        elif name != "deletionTimestamp":
            metadata.pop(name, None)
    if metadata.get("deletionGracePeriodSeconds") is None and "deletionGracePeriodSeconds" in old:
        metadata["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]
    if not metadata.get("uid"):
        metadata["uid"] = old.get("uid", "")


def increment_generation(resource: ServedResource, obj: JSONObject, old: JSONObject) -> None:
    """Increase the generation if the desired state changed and the strategy has not increased it."""
    strategy = resource.strategy
    if not strategy.has_generation:
        return
    metadata, before = obj["metadata"], old["metadata"].get("generation", 0)
    if metadata.get("generation", 0) == before and strategy.counts_for_generation(obj) != strategy.counts_for_generation(old):
        metadata["generation"] = before + 1
