"""Owner references that are there twice: dropped, with a Warning.

Source: k8s.io/apiserver pkg/endpoints/handlers/rest.go (dedupOwnerReferencesAndAddWarning).
"""

from __future__ import annotations

from kubeloop.types import JSONObject

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
