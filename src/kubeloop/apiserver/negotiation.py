"""In which media type and form an answer goes out: JSON or YAML; objects, Tables or metadata only.

Source: Kubernetes API concepts, "Alternate representations of resources"; k8s.io/apiserver pkg/endpoints/handlers/negotiation.
Protobuf and CBOR are not served: a client that accepts nothing else gets 406.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from kubeloop.apiserver import refusals
from kubeloop.serving.negotiation import Clause, parse_accept

JSON = "application/json"
YAML = "application/yaml"
MEDIA_TYPES = (JSON, YAML)
STREAM_MEDIA_TYPES = (f"{JSON};stream=watch",)

_FORMS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})


@dataclass(frozen=True, slots=True)
class Accepted:
    """``form`` is empty for plain objects; else Table, PartialObjectMetadata or PartialObjectMetadataList in ``version`` of meta.k8s.io."""

    media_type: str = JSON
    form: str = ""
    version: str = ""


@lru_cache(maxsize=256)
def negotiate(header: str, *, stream: bool = False) -> Accepted:
    """What to answer with.

    Raises:
        NotAcceptable: no clause fits.
    """
    clauses = parse_accept(header)
    if not clauses:
        return Accepted()
    offered = MEDIA_TYPES + STREAM_MEDIA_TYPES if stream else MEDIA_TYPES
    if not any(clause.media_type in (*MEDIA_TYPES, "*/*") for clause in clauses):
        raise refusals.not_acceptable_at_all(offered)
    for clause in clauses:
        found = _fit(clause)
        if found is not None and not (stream and found.media_type != JSON):
            return found
    raise refusals.not_acceptable(STREAM_MEDIA_TYPES if stream else MEDIA_TYPES)


def _fit(clause: Clause) -> Accepted | None:
    media_type = JSON if clause.media_type == "*/*" else clause.media_type
    if media_type not in MEDIA_TYPES:
        return None
    form = clause.parameter("as")
    if not form:
        return Accepted(media_type)
    version = clause.parameter("v")
    if form not in _FORMS or clause.parameter("g") != "meta.k8s.io" or version not in ("v1", "v1beta1"):
        return None
    return Accepted(media_type, form, version)


def media_type_for_errors(header: str) -> str:
    """YAML where a client asks for it first; JSON otherwise, also for whoever accepts neither."""
    for clause in parse_accept(header):
        if clause.media_type in MEDIA_TYPES:
            return clause.media_type
    return JSON
