"""Bodies: from bytes (JSON, YAML, protobuf) to an object of the resource's kind, with the complaints that Kubernetes makes on the way.

Source: k8s.io/apimachinery pkg/runtime/serializer/json, k8s.io/apiserver pkg/endpoints/handlers (transformDecodeError), recorded answers.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.go_json_errors import json_fault
from kubeloop.endpoints.negotiation import JSON, MEDIA_TYPES, PROTOBUF, YAML
from kubeloop.meta.errors import ApiError, DecodeError
from kubeloop.meta.field_error import fits_int64
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.meta.strconv import go_quoted
from kubeloop.schema import strict
from kubeloop.schema.converted import converted
from kubeloop.schema.object_metadata import conform_metadata
from kubeloop.schema.strict_scalars import number_text
from kubeloop.serving.negotiation import content_media_type
from kubeloop.types import JSONObject

#: Bytes of a body that the server reads (upstream's MaxRequestBodyBytes): JSON may be larger than what etcd stores of it.
BODY_LIMIT = 3 * 1024 * 1024

_ACCEPTED = "the body of the request was in an unknown format - accepted media types include: "
_SCALES = ("autoscaling/v1", "extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")
#: Upstream names the file in which its scheme was built; clients show the text.
SCHEME = 'scheme "pkg/runtime/scheme.go:111"'
_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


@dataclass(frozen=True, slots=True)
class Decoded:
    """``problems`` is what strict decoding says: unknown and repeated fields. ``sent`` is the body before it was conformed."""

    obj: JSONObject
    problems: list[str]
    sent: JSONObject
    #: Why it is refused after its problems have been told.
    refused: ApiError | None = None


class _Unreadable(Exception):
    """Not even kind and apiVersion could be read."""


def media_type_of(content_type: str) -> str:
    """JSON, YAML or protobuf; no Content-Type at all means JSON.

    Raises:
        UnsupportedMediaType
    """
    media_type = content_media_type(content_type) if content_type else JSON
    if media_type in MEDIA_TYPES:
        return media_type
    raise _unsupported(*MEDIA_TYPES)


def _unsupported(*accepted: str) -> ApiError:
    return api_errors.refusal(415, "UnsupportedMediaType", f"{_ACCEPTED}{', '.join(accepted)}")


def decode_object(
    data: bytes,
    media_type: str,
    resource: ServedResource,
    gvk: GroupVersionKind | None = None,
    *,
    field_validation: str = "",
    also: Collection[str] = (),
) -> Decoded:
    """The body of a create or update as an object of ``gvk`` (default: the resource's kind; a subresource may have another).

    ``field_validation`` is the request's; it makes a difference in the words about a custom object that does not say its kind.
    ``also``: other API versions in which the kind may come, with the same fields.

    Raises:
        BadRequest: malformed, another kind or version, or a field of the wrong type.
        UnsupportedMediaType: a custom resource in protobuf.
    """
    wanted = gvk or resource.gvk
    try:
        if media_type == PROTOBUF:
            if resource.custom and wanted == resource.gvk:
                raise _unsupported(JSON, YAML)
            tree, met = _read_protobuf(data, wanted)
        else:
            tree = _read(data, media_type)
            met = _met(tree, wanted)
            if resource.custom and wanted == resource.gvk:
                met = _said(tree, met, data, strict=field_validation != "Ignore")
    except _Unreadable as fault:
        summary = _summary(data)
        raise api_errors.bad_request(f"the object provided is unrecognized (must be of type {wanted.kind}): {fault} ({summary})") from None
    if met.api_version in also and met.kind == wanted.kind:
        met = wanted
    decoded = conform(tree, met, wanted, resource, lambda why: api_errors.bad_request(_unhandled(met, wanted, why)))
    # A custom object is read by what it says it is, whatever the path says.
    return replace(decoded, refused=_other_version(met, wanted)) if met.group_version != wanted.group_version else decoded


def _other_version(met: GroupVersionKind, wanted: GroupVersionKind) -> ApiError:
    return api_errors.bad_request(
        f"the API version in the data ({met.api_version}) does not match the expected API version ({wanted.api_version})"
    )


def conform(
    tree: JSONObject,
    met: GroupVersionKind,
    wanted: GroupVersionKind,
    resource: ServedResource,
    refuse: Any,
    *,
    applied: bool = False,
    merged: bool = False,
) -> Decoded:
    """A tree as the kind's schema has it. ``refuse(why)`` makes the error for a tree that does not fit.

    ``merged``: it was made of maps and never was text, which to upstream are two ways to the object (``schema.converted``).
    ``applied``: moreover, with what somebody applied, by its schema; nothing is pruned then, and nulls stay for validation to refuse.

    Raises:
        ApiError: what ``refuse`` made; BadRequest for another version of the kind.
    """
    decoded = _conform(tree, met, wanted, resource, refuse, applied, merged or applied)
    if _nests_deeper(decoded.obj, DEEPEST):
        raise refuse(f"exceeded max depth of {DEEPEST}")
    metadata = tree.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") == [] and not (resource.custom and wanted == resource.gvk):
        # No owners at all asks for a reset; no word about owners does not. Upstream's way to custom objects loses the difference.
        decoded.obj["metadata"]["managedFields"] = []
    return decoded


def _nests_deeper(tree: JSONObject, levels: int) -> bool:
    """Without recursion, for that is what would fail."""
    row: list[Any] = [tree]
    for _ in range(levels):
        row = [
            one
            for holder in row
            for one in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(one, dict | list) and one
        ]
        if not row:
            return False
    return True


def _conform(
    tree: JSONObject, met: GroupVersionKind, wanted: GroupVersionKind, resource: ServedResource, refuse: Any, applied: bool, merged: bool
) -> Decoded:
    foreign = _foreign(met, wanted, resource)
    if foreign:
        raise refuse(foreign)
    try:
        if resource.custom and wanted == resource.gvk:
            return _conform_custom(tree, met, resource, applied)
        if met.group_version != wanted.group_version:
            raise _other_version(met, wanted)
        conformed = strict.conform(converted(tree, wanted) if merged else tree, wanted)
    except DecodeError as fault:
        raise refuse(str(fault)) from None
    obj = conformed.obj
    obj["apiVersion"], obj["kind"] = wanted.api_version, wanted.kind
    return Decoded(obj, conformed.problems, tree)


#: Levels of an object. Far below upstream's 10,000: what is stored is walked by recursion, by whoever lists or watches it.
DEEPEST = 256


def _conform_custom(tree: JSONObject, met: GroupVersionKind, resource: ServedResource, applied: bool) -> Decoded:
    """Metadata as its Go type has it, the rest as the structural schema has it."""
    if "apiVersion" in tree and tree["apiVersion"] is None:
        raise DecodeError(".apiVersion accessor error: <nil> is of the type <nil>, expected string")
    conformed = conform_metadata(tree.get("metadata"), drop_malformed=applied)
    obj: JSONObject = {"apiVersion": met.api_version, "kind": met.kind, "metadata": conformed.metadata}
    unknown = list(conformed.unknown)
    for name, value in tree.items():
        if name not in obj:
            obj[name] = plain(value)
    if not applied:
        unknown += resource.strategy.conform(obj)
    return Decoded(obj, repeated_fields(tree, "") + [f"unknown field {go_quoted(path)}" for path in unknown], tree)


def repeated_fields(value: Any, path: str) -> list[str]:
    """What strict decoding says of repeated keys of an untyped tree."""
    found: list[str] = []
    if isinstance(value, dict):
        found += [f"duplicate field {go_quoted(f'{path}.{name}' if path else name)}" for name in getattr(value, "repeated", ())]
        for name, one in value.items():
            found += repeated_fields(one, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for at, one in enumerate(value):
            found += repeated_fields(one, f"{path}[{at}]")
    return found


def plain(value: Any) -> Any:
    """A fresh tree of plain dicts, lists and numbers."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, float):
        if math.isinf(value):
            raise DecodeError(f"json: cannot unmarshal number {number_text(value)} into Go value of type float64")
        return float(value)
    if type(value) is int and not fits_int64(value):
        return _beyond_int64(value)
    return value


def _beyond_int64(value: int) -> float:
    """Go reads an integer that int64 does not hold as a float64."""
    try:
        return float(value)
    except OverflowError:
        raise DecodeError(f"json: cannot unmarshal number {value} into Go value of type float64") from None


def kind_of(tree: JSONObject, wanted: GroupVersionKind) -> GroupVersionKind:
    """What a tree says it is; what it leaves out is taken from ``wanted``.

    Raises:
        DecodeError: apiVersion or kind are malformed; Go's text.
    """
    try:
        return _met(tree, wanted)
    except _Unreadable as fault:
        raise DecodeError(str(fault)) from None


def _read_protobuf(data: bytes, wanted: GroupVersionKind) -> tuple[JSONObject, GroupVersionKind]:
    from kubeloop.codec import protobuf

    try:
        envelope = protobuf.open_envelope(data)
    except DecodeError as fault:
        raise _Unreadable(str(fault)) from None
    met = protobuf.kind_of(envelope, wanted)
    if not protobuf.has_protobuf(met):
        return {}, met  # which is then found to be no kind of the API
    try:
        return protobuf.decode_message(met, envelope.raw), met
    except DecodeError as fault:
        raise api_errors.bad_request(_unhandled(met, wanted, str(fault))) from None


def _read(data: bytes, media_type: str) -> JSONObject:
    if media_type == YAML:
        try:
            tree = read_yaml(data)
        except DecodeError as fault:
            raise _Unreadable(str(fault)) from None
    else:
        try:
            tree = strict.parse_json(data)
        except (ValueError, RecursionError):
            why = json_fault(data) or "invalid UTF-8"
            raise _Unreadable(f"couldn't get version/kind; json parse error: {why}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise _Unreadable(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {_type(tree)} into Go value of type {_TYPE_META}"
        )
    return tree


def read_yaml(data: bytes) -> Any:
    """YAML 1.1, one document, as JSON trees: dates stay text.

    Raises:
        DecodeError
    """
    from kubeloop.endpoints.yaml_body import parse_yaml

    return parse_yaml(data)


def read_protobuf(data: bytes, wanted: GroupVersionKind) -> JSONObject:
    """Options in Kubernetes' protobuf, in the version of whatever group; what they do not say of their kind is ``wanted``.

    Raises:
        DecodeError: malformed, or another kind.
    """
    from kubeloop.codec import protobuf

    envelope = protobuf.open_envelope(data)
    met = protobuf.kind_of(envelope, wanted)
    if met.kind != wanted.kind:
        raise DecodeError(f'no kind "{met.kind}" is registered for version "{met.api_version}" in {SCHEME}')
    return protobuf.decode_message(met, envelope.raw)


def _met(tree: JSONObject, wanted: GroupVersionKind) -> GroupVersionKind:
    for name in ("apiVersion", "kind"):
        value = tree.get(name)
        if value is not None and not isinstance(value, str):
            why = f"json: cannot unmarshal {_type(value)} into Go struct field .{name} of type string"
            raise _Unreadable(f"couldn't get version/kind; json parse error: {why}")
    api_version, kind = tree.get("apiVersion") or "", tree.get("kind") or ""
    if not api_version:
        return wanted._replace(kind=kind or wanted.kind)
    if api_version.count("/") > 1:
        raise _Unreadable(f"unexpected GroupVersion string: {api_version}")
    group, _, version = api_version.rpartition("/")
    return GroupVersionKind(group, version, kind or wanted.kind)


def _said(tree: JSONObject, met: GroupVersionKind, data: bytes, *, strict: bool) -> GroupVersionKind:
    """A custom object must say itself what it is: no Go type says it."""
    said = met if tree.get("apiVersion") else GroupVersionKind("", "", met.kind)
    if not tree.get("kind"):
        why = kind_missing(data.decode("utf-8", "replace"))
        raise _Unreadable(why) if strict else api_errors.bad_request(_unhandled(said, met, why))
    return said


def kind_missing(shown: str) -> str:
    return f"Object 'Kind' is missing in '{shown}'"


def _foreign(met: GroupVersionKind, wanted: GroupVersionKind, resource: ServedResource) -> str:
    """Why another kind cannot stand for the wanted one; empty when it is the same kind in whatever version that exists."""
    if resource.custom and wanted == resource.gvk:
        return ""  # any kind and version is read; they are validated afterwards
    if met == wanted:
        return ""
    if resource.custom:
        # Served by the scheme of custom resources, which knows Scale in all its versions, and nothing else.
        if met.kind == wanted.kind and met.api_version in _SCALES:
            return f"converting ({met.version}.{met.kind}) to (v1.{wanted.kind}): unknown conversion"
        return f'no kind "{met.kind}" is registered for version "{met.api_version}" in {SCHEME}'
    if not strict.is_builtin(met):
        return f'no kind "{met.kind}" is registered for version "{met.api_version}" in {SCHEME}'
    if met.group_kind != wanted.group_kind:
        return f"converting ({met.version}.{met.kind}) to ({_package(wanted)}.{wanted.kind}): unknown conversion"
    return ""


def _package(gvk: GroupVersionKind) -> str:
    return gvk.group.partition(".")[0] or "core"


def _unhandled(met: GroupVersionKind, wanted: GroupVersionKind, why: str) -> str:
    return f'{met.kind} in version "{met.version}" cannot be handled as a {wanted.kind}: {why}'


def _summary(data: bytes) -> str:
    if not data:
        return "<empty>"
    shown = data[:30].decode("utf-8", "replace") if data.startswith(b"{") else data[:30].hex()
    return f"{shown} ..." if len(data) > 30 else shown


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"
