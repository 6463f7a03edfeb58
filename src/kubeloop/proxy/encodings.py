"""The form in which a client wants an object, and how the proxy obtains and encodes it.

The proxy asks the API server for JSON, also for clients that prefer other types, because rules work on JSON. A client that accepts JSON
gets JSON; client-go decodes by the type of the response. A client that accepts protobuf only gets protobuf.

Source: Kubernetes API concepts, "Alternate representations of resources".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kubeloop.codec import protobuf
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.encoding import encode
from kubeloop.endpoints.negotiation import JSON, PROTOBUF, accepts_json, negotiate, negotiate_plain, require_streamable
from kubeloop.endpoints.tables import partial_object
from kubeloop.meta.errors import ApiError, UnknownKind
from kubeloop.types import JSONObject

#: The Accept header for objects that rules read.
ACCEPT_JSON: Final = "application/json"

TABLE: Final = "Table"
METADATA: Final = ("PartialObjectMetadata", "PartialObjectMetadataList")


@dataclass(frozen=True, slots=True)
class Form:
    """The media type and form of a response.

    Attributes:
        media_type: ``application/json``, or that of protobuf or YAML.
        form: Empty for objects, ``Table``, or one of the names of metadata.
        version: The version of the group meta.k8s.io for Tables and metadata.
        or_objects: Whether a client that wants a Table accepts objects, if the resource has no Tables.
    """

    media_type: str
    form: str = ""
    version: str = "v1"
    or_objects: bool = False

    @property
    def is_table(self) -> bool:
        return self.form == TABLE

    @property
    def is_metadata(self) -> bool:
        return self.form in METADATA

    @property
    def is_plain_json(self) -> bool:
        return self.media_type == JSON and not self.form

    @property
    def api_version(self) -> str:
        """The apiVersion of Tables and metadata."""
        return f"meta.k8s.io/{self.version}"

    @property
    def accept(self) -> str:
        """The Accept header for the API server."""
        if not self.is_table:
            return ACCEPT_JSON
        table = f"{ACCEPT_JSON};as=Table;v={self.version};g=meta.k8s.io"
        return f"{table},{ACCEPT_JSON}" if self.or_objects else table


def form_of(accept: str, verb: str) -> Form:
    """Return the form that a client prefers.

    Args:
        accept: The client's Accept header.
        verb: The verb of the request.

    Raises:
        NotAcceptable: The client accepts no form that the proxy can write.
    """
    accepted = negotiate(accept, verb)
    if verb == "watch":
        require_streamable(accepted)
    if accepted.form in METADATA and accepted.form != METADATA[verb == "list"]:
        raise api_errors.not_acceptable((JSON,))  # as a kube-apiserver: the metadata of a list is a list
    media_type = JSON if accepted.media_type == PROTOBUF and accepts_json(accept) else accepted.media_type
    or_objects = accepted.form == TABLE and accepts_json_objects(accept)
    return Form(media_type, accepted.form, accepted.version or "v1", or_objects=or_objects)


def accepts_json_objects(accept: str) -> bool:
    """Return whether a client accepts whole objects in JSON."""
    try:
        return negotiate_plain(accept).media_type in (JSON, PROTOBUF) and accepts_json(accept)
    except ApiError:
        return False


def shaped(tree: JSONObject, form: Form) -> JSONObject:
    """Return an object in the form of a response: the object, or its metadata."""
    return partial_object(tree) | {"apiVersion": form.api_version} if form.is_metadata else tree


def event_frame(type_: str, tree: JSONObject, form: Form) -> bytes:
    """Return a frame of a watch.

    Args:
        type_: ADDED, MODIFIED, DELETED or ERROR.
        tree: The object, in the form of the response.
        form: The form of the response.

    Raises:
        ApiError: 406: the object has no protobuf form, and the client accepts nothing else.
    """
    if form.media_type == PROTOBUF:
        return protobuf.encode_event(type_, protobuf_of(tree))
    data: bytes = encode(tree)
    return b"".join((b'{"type":"', type_.encode(), b'","object":', data, b"}\n"))


def protobuf_of(tree: JSONObject) -> bytes:
    """Return an object in protobuf, for a client that accepts nothing else.

    Raises:
        ApiError: 406: the object has no protobuf form.
    """
    try:
        return protobuf.encode(tree)
    except (protobuf.EncodeError, UnknownKind):
        raise api_errors.not_acceptable((JSON,)) from None
