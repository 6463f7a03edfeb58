"""The server's part of an object's metadata: uid, creation time, generated names, generation, and what an update may not touch.

Source: k8s.io/apiserver pkg/registry/rest (BeforeCreate, BeforeUpdate, FillObjectMetaSystemFields), pkg/storage/names.
"""

from __future__ import annotations

import random
import uuid
from datetime import datetime

from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.endpoints import api_errors
from kubeloop.types import JSONObject

# Owner references that are there twice: dropped, with a Warning.
#
# Source: k8s.io/apiserver pkg/endpoints/handlers/rest.go (dedupOwnerReferencesAndAddWarning).


_ADVICE = (
    "API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "
    "duplicate UID(s) observed: "
)


def drop_repeated(metadata: JSONObject, warnings: list[str], *, after_admission: bool) -> None:
    """Keep the first of equal references; ``after_admission``: it may have been a plug-in or webhook that added the second."""
    references = metadata.get("ownerReferences")
    if not references or len(references) == 1:
        return
    kept: list[JSONObject] = []
    repeated: list[str] = []
    for reference in references:
        if reference in kept:
            repeated.append(reference.get("uid", ""))
        else:
            kept.append(reference)
    if not repeated:
        return
    when = " after mutating admission happens" if after_admission else ""
    warnings.append(f".metadata.ownerReferences contains duplicate entries{when}; {_ADVICE}{', '.join(repeated)}")
    metadata["ownerReferences"] = kept


#: Letters of generated names: no vowels and nothing that looks like another letter.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_LONGEST = 63


def timestamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def generate_name(prefix: str) -> str:
    """``prefix`` and five random letters, at most 63 characters in all."""
    return prefix[: _LONGEST - _SUFFIX] + "".join(random.choices(_LETTERS, k=_SUFFIX))


def metadata_of(obj: JSONObject) -> JSONObject:
    """The object's metadata, made when it has none."""
    metadata: JSONObject | None = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    return metadata


def set_namespace(metadata: JSONObject, namespace: str) -> None:
    """The request's namespace counts; an object may repeat it but not contradict it.

    Raises:
        BadRequest
    """
    given = metadata.get("namespace") or ""
    if given and namespace and given != namespace:
        raise api_errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)


def check_name(metadata: JSONObject, name: str) -> None:
    """Raises BadRequest when the object has another name than the path, or none."""
    given = metadata.get("name") or ""
    if not given:
        raise api_errors.bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if given != name:
        raise api_errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")


def fill_new(metadata: JSONObject, now: datetime) -> None:
    """System fields of an object that is to be created; what the client said of them is dropped."""
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(name, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = timestamp(now)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generate_name(metadata["generateName"])


def carry_over(metadata: JSONObject, old: JSONObject) -> None:
    """What an update never changes, whatever the client sent; uid and names are checked by validation instead."""
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


def raise_generation(resource: ServedResource, obj: JSONObject, old: JSONObject) -> None:
    """One more when what counts for the kind changed and its strategy has not done it itself."""
    strategy = resource.strategy
    if not strategy.has_generation:
        return
    metadata, before = obj["metadata"], old["metadata"].get("generation", 0)
    if metadata.get("generation", 0) == before and strategy.counts_for_generation(obj) != strategy.counts_for_generation(old):
        metadata["generation"] = before + 1
