"""In which media type and form an answer goes out: JSON, YAML or protobuf; objects, Tables or metadata only.

Source: Kubernetes API concepts, "Alternate representations of resources"; k8s.io/apiserver pkg/endpoints/handlers/negotiation.
CBOR is not served, as by default upstream: a client that accepts nothing else gets 406.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from kubeloop.apiserver import refusals
from kubeloop.serving.negotiation import Clause, parse_accept

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MEDIA_TYPES = (JSON, YAML, PROTOBUF)
STREAM_MEDIA_TYPES = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")

_FORMS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})


@dataclass(frozen=True, slots=True)
class Accepted:
    """``form`` is empty for plain objects; else Table, PartialObjectMetadata or PartialObjectMetadataList in ``version`` of meta.k8s.io."""

    media_type: str = JSON
    form: str = ""
    version: str = ""


@lru_cache(maxsize=256)
def negotiate(header: str, verb: str = "get", *, custom: bool = False) -> Accepted:
    """What to answer with. Custom resources have no protobuf form, but their metadata has.

    Raises:
        NotAcceptable: no clause fits.
    """
    clauses = parse_accept(header)
    if not clauses:
        return Accepted()
    # Upstream's router looks at the header before the handler does; custom resources do not pass through it.
    if not custom and not any(clause.media_type in (*MEDIA_TYPES, "*/*") for clause in clauses):
        raise refusals.not_acceptable_at_all(MEDIA_TYPES + STREAM_MEDIA_TYPES if verb in ("list", "watch") else MEDIA_TYPES)
    found = next((fit for clause in clauses if (fit := _fit(clause, custom)) is not None), None)
    if found is None:
        raise refusals.not_acceptable(MEDIA_TYPES)
    if verb == "watch" and found.media_type == YAML:
        raise refusals.not_acceptable(STREAM_MEDIA_TYPES)
    return found


def _fit(clause: Clause, custom: bool) -> Accepted | None:
    media_type = JSON if clause.media_type in ("*/*", "application/*") else clause.media_type
    if media_type not in MEDIA_TYPES:
        return None
    form = clause.parameter("as")
    if media_type == PROTOBUF and (form == "Table" or (custom and not form)):
        return None
    if not form:
        return Accepted(media_type)
    version = clause.parameter("v")
    if form not in _FORMS or clause.parameter("g") != "meta.k8s.io" or version not in ("v1", "v1beta1"):
        return None
    return Accepted(media_type, form, version)


def media_type_for_errors(header: str) -> str:
    """What a client asks for first among plain objects; JSON for whoever accepts nothing of ours."""
    for clause in parse_accept(header):
        if clause.media_type in MEDIA_TYPES and not clause.parameter("as"):
            return clause.media_type
    return JSON


def accepts_json(header: str) -> bool:
    return not header or any(clause.media_type in (JSON, "*/*") for clause in parse_accept(header))
