"""Content negotiation: the media type (JSON, YAML, protobuf) and form (object, Table, metadata only) of a response.

Source: Kubernetes API concepts, "Alternate representations of resources"; k8s.io/apiserver pkg/endpoints/handlers/negotiation.
CBOR is not served, which is also upstream's default: a client that accepts only CBOR gets 406.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from kubeloop.endpoints import api_errors
from kubeloop.serving.negotiation import Clause, parse_accept, shortened

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MEDIA_TYPES = (JSON, YAML, PROTOBUF)
STREAM_MEDIA_TYPES = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")

_FORMS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of content negotiation.

    ``form`` is empty for plain objects. Otherwise it is Table, PartialObjectMetadata or PartialObjectMetadataList, in ``version`` of the
    group meta.k8s.io.
    """

    media_type: str = JSON
    form: str = ""
    version: str = ""


#: Returns the result for an Accept clause and a media type that it accepts, or None if the server has no such form.
Fit = Callable[[Clause, str], Accepted | None]


def negotiate(header: str, verb: str = "get", *, custom: bool = False, tables: bool = True) -> Accepted:
    """Return the media type and form of a response.

    Args:
        header: The Accept header of the request; empty accepts everything.
        verb: The verb of the request; lists and watches may be streams.
        custom: Whether the object is a custom resource. Custom resources have no protobuf form, only their metadata has.
        tables: Whether the resource can be returned as a Table.

    Raises:
        NotAcceptable: The server has none of the accepted media types.
    """
    return _negotiated(shortened(header), verb if verb in ("list", "watch") else "", custom=custom, tables=tables)


@lru_cache(maxsize=256)
def _negotiated(header: str, verb: str, *, custom: bool, tables: bool) -> Accepted:
    if not custom:
        check_route(header, MEDIA_TYPES + STREAM_MEDIA_TYPES if verb in ("list", "watch") else MEDIA_TYPES)
    found = _first(header, lambda clause, media_type: _in_form(clause, media_type, custom=custom, tables=tables))
    if found is None:
        raise api_errors.not_acceptable(MEDIA_TYPES)
    return found


def require_streamable(accepted: Accepted) -> None:
    """Check that the media type can be streamed. Watches call this after all other checks.

    Raises:
        NotAcceptable: The media type cannot be streamed.
    """
    if accepted.media_type == YAML:
        raise api_errors.not_acceptable(STREAM_MEDIA_TYPES)


def negotiate_plain(header: str) -> Accepted:
    """Return the media type of a response that has only one form, such as discovery documents and Statuses.

    Raises:
        NotAcceptable: No clause of the header accepts a media type of the server.
    """
    return _negotiated_plain(shortened(header))


@lru_cache(maxsize=256)
def _negotiated_plain(header: str) -> Accepted:
    found = _first(header, _plain)
    if found is None:
        raise api_errors.not_acceptable(MEDIA_TYPES)
    return found


def check_route(header: str, produced: tuple[str, ...]) -> None:
    """Check the Accept header as upstream's router does before it calls a handler.

    The router ignores parameters, and understands no ranges of types other than ``*/*``.

    Raises:
        NotAcceptable: The header names no media type that the route produces.
    """
    if header and not any(part.partition(";")[0].strip() in (*produced, "*/*") for part in header.split(",")):
        raise api_errors.not_acceptable_at_all(produced)


def media_type_for_errors(header: str) -> str:
    """Return the media type for an error's Status, or an empty text if the client accepts no media type of this server."""
    found = _first(header, _plain)
    return found.media_type if found else ""


def asks_for_indented(header: str) -> bool:
    """Return whether the header asks for indented JSON."""
    return "pretty" in header and any(clause.accepts(JSON) and clause.parameter("pretty") == "1" for clause in parse_accept(header))


def accepts_json(header: str) -> bool:
    return not header or any(clause.accepts(JSON) for clause in parse_accept(header))


def _first(header: str, fits: Fit) -> Accepted | None:
    if not header:
        return Accepted()
    clauses = ((clause, media_type) for clause in parse_accept(header) for media_type in MEDIA_TYPES if clause.accepts(media_type))
    return next((found for clause, media_type in clauses if (found := fits(clause, media_type)) is not None), None)


def _plain(clause: Clause, media_type: str) -> Accepted | None:
    asked = dict(clause.parameters)
    if any(name in asked for name in ("as", "g", "v", "sv")) or not _may_stream(asked.get("stream"), media_type):
        return None
    return Accepted(media_type)


def _in_form(clause: Clause, media_type: str, *, custom: bool, tables: bool) -> Accepted | None:
    asked = dict(clause.parameters)
    if not any(name in asked for name in ("as", "g", "v")):
        return None if custom and media_type == PROTOBUF else _plain(clause, media_type)
    form, version = asked.get("as", ""), asked.get("v", "")
    if form not in _FORMS or asked.get("g") != "meta.k8s.io" or version not in ("v1", "v1beta1") or "sv" in asked:
        return None
    if (form == "Table" and (media_type == PROTOBUF or not tables)) or not _may_stream(asked.get("stream"), media_type):
        return None
    return Accepted(media_type, form, version)


def _may_stream(asked: str | None, media_type: str) -> bool:
    return asked is None or (asked == "watch" and media_type != YAML)
