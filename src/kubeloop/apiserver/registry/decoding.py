"""Decoding of request bodies (JSON, YAML, protobuf) to objects of the resource's kind, with the errors and warnings of Kubernetes.

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

#: Maximum bytes of a body (upstream's MaxRequestBodyBytes). JSON may be larger than the stored form.
BODY_LIMIT = 3 * 1024 * 1024

_ACCEPTED = "the body of the request was in an unknown format - accepted media types include: "
_SCALES = ("autoscaling/v1", "extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")
#: Name of upstream's scheme in error texts, which clients show.
SCHEME = 'scheme "pkg/runtime/scheme.go:111"'
_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded body.

    ``problems`` are the messages of strict decoding about unknown and repeated fields. ``sent`` is the body before it was conformed.
    """

    obj: JSONObject
    problems: list[str]
    sent: JSONObject
    #: Error that rejects the body after its problems were reported.
    refused: ApiError | None = None


class _Unreadable(Exception):
    """The body does not even have a readable kind and apiVersion."""


def media_type_of(content_type: str) -> str:
    """Return the media type of a body: JSON, YAML or protobuf; JSON without a Content-Type.

    Raises:
        UnsupportedMediaType: The Content-Type is another one.
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
    """Decode the body of a create or update.

    Args:
        data: The body.
        media_type: Result of ``media_type_of``.
        resource: The resource.
        gvk: Expected kind; None: that of the resource. A subresource may have another kind.
        field_validation: The request's fieldValidation. It affects only the error for a custom object without a kind.
        also: Other API versions that the body may have, with the same fields.

    Returns:
        The object, its problems, and the body as it was sent.

    Raises:
        BadRequest: The body is malformed, of another kind or version, or a field has the wrong type.
        UnsupportedMediaType: A custom resource in protobuf.
    """
    desired = gvk or resource.gvk
    try:
        if media_type == PROTOBUF:
            if resource.custom and desired == resource.gvk:
                raise _unsupported(JSON, YAML)
            tree, actual = _read_protobuf(data, desired)
        else:
            tree = _read(data, media_type)
            actual = _met(tree, desired)
            if resource.custom and desired == resource.gvk:
                actual = _said(tree, actual, data, strict=field_validation != "Ignore")
    except _Unreadable as error:
        summary = _summary(data)
        raise api_errors.bad_request(f"the object provided is unrecognized (must be of type {desired.kind}): {error} ({summary})") from None
    if actual.api_version in also and actual.kind == desired.kind:
        actual = desired
    decoded = conform(tree, actual, desired, resource, lambda reason: api_errors.bad_request(_unhandled(actual, desired, reason)))
    # A custom object is decoded by the kind that it names, not by the path.
    return replace(decoded, refused=_other_version(actual, desired)) if actual.group_version != desired.group_version else decoded


def _other_version(actual: GroupVersionKind, desired: GroupVersionKind) -> ApiError:
    return api_errors.bad_request(
        f"the API version in the data ({actual.api_version}) does not match the expected API version ({desired.api_version})"
    )


def conform(
    tree: JSONObject,
    actual: GroupVersionKind,
    desired: GroupVersionKind,
    resource: ServedResource,
    refuse: Any,
    *,
    applied: bool = False,
    merged: bool = False,
) -> Decoded:
    """Convert a tree to the schema of its kind.

    Args:
        tree: The decoded body.
        actual: The kind that the body names.
        desired: The expected kind.
        resource: The resource.
        refuse: Creates the error for a tree that does not fit, from the error text.
        applied: The tree is the result of an apply: nothing is pruned, and validation rejects nulls later.
        merged: The tree is the result of a patch, not of text; upstream converts these two differently (``schema.converted``).

    Returns:
        The object and its problems.

    Raises:
        ApiError: The error of ``refuse``; BadRequest for another version of the kind.
    """
    decoded = _conform(tree, actual, desired, resource, refuse, applied, merged or applied)
    if _nests_deeper(decoded.obj, DEEPEST):
        raise refuse(f"exceeded max depth of {DEEPEST}")
    metadata = tree.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") == [] and not (resource.custom and desired == resource.gvk):
        # An empty list of managedFields is a reset, a missing list is not. For custom objects upstream loses this difference.
        decoded.obj["metadata"]["managedFields"] = []
    return decoded


def _nests_deeper(tree: JSONObject, levels: int) -> bool:
    """Return whether a tree has more than ``levels`` levels. The function is not recursive: deep trees exceed the recursion limit."""
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
    tree: JSONObject,
    actual: GroupVersionKind,
    desired: GroupVersionKind,
    resource: ServedResource,
    refuse: Any,
    applied: bool,
    merged: bool,
) -> Decoded:
    foreign = _foreign(actual, desired, resource)
    if foreign:
        raise refuse(foreign)
    try:
        if resource.custom and desired == resource.gvk:
            return _conform_custom(tree, actual, resource, applied)
        if actual.group_version != desired.group_version:
            raise _other_version(actual, desired)
        conformed = strict.conform(converted(tree, desired) if merged else tree, desired)
    except DecodeError as error:
        raise refuse(str(error)) from None
    obj = conformed.obj
    obj["apiVersion"], obj["kind"] = desired.api_version, desired.kind
    return Decoded(obj, conformed.problems, tree)


#: Maximum nesting of an object. Far below upstream's 10,000, because reads of stored objects are recursive.
DEEPEST = 256


def _conform_custom(tree: JSONObject, actual: GroupVersionKind, resource: ServedResource, applied: bool) -> Decoded:
    """Convert a custom object: metadata by its Go type, the rest by the structural schema."""
    if "apiVersion" in tree and tree["apiVersion"] is None:
        raise DecodeError(".apiVersion accessor error: <nil> is of the type <nil>, expected string")
    conformed = conform_metadata(tree.get("metadata"), drop_malformed=applied)
    obj: JSONObject = {"apiVersion": actual.api_version, "kind": actual.kind, "metadata": conformed.metadata}
    unknown = list(conformed.unknown)
    for name, value in tree.items():
        if name not in obj:
            obj[name] = plain(value)
    if not applied:
        unknown += resource.strategy.conform(obj)
    return Decoded(obj, repeated_fields(tree, "") + [f"unknown field {go_quoted(path)}" for path in unknown], tree)


def repeated_fields(value: Any, path: str) -> list[str]:
    """Return the messages of strict decoding about repeated keys of an untyped tree."""
    result: list[str] = []
    if isinstance(value, dict):
        result += [f"duplicate field {go_quoted(f'{path}.{name}' if path else name)}" for name in getattr(value, "repeated", ())]
        for name, one in value.items():
            result += repeated_fields(one, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for at, one in enumerate(value):
            result += repeated_fields(one, f"{path}[{at}]")
    return result


def plain(value: Any) -> Any:
    """Return a copy of a tree with plain dicts, lists and numbers.

    Raises:
        DecodeError: A number does not fit into a float64.
    """
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
    """Return an integer beyond int64 as a float, as Go decodes it."""
    try:
        return float(value)
    except OverflowError:
        raise DecodeError(f"json: cannot unmarshal number {value} into Go value of type float64") from None


def kind_of(tree: JSONObject, desired: GroupVersionKind) -> GroupVersionKind:
    """Return the kind that a tree names. Missing parts are taken from ``desired``.

    Raises:
        DecodeError: ApiVersion or kind is malformed. The message is that of Go.
    """
    try:
        return _met(tree, desired)
    except _Unreadable as error:
        raise DecodeError(str(error)) from None


def _read_protobuf(data: bytes, desired: GroupVersionKind) -> tuple[JSONObject, GroupVersionKind]:
    from kubeloop.codec import protobuf

    try:
        envelope = protobuf.open_envelope(data)
    except DecodeError as error:
        raise _Unreadable(str(error)) from None
    actual = protobuf.kind_of(envelope, desired)
    if not protobuf.has_protobuf(actual):
        return {}, actual  # which is rejected later as an unknown kind
    try:
        return protobuf.decode_message(actual, envelope.raw), actual
    except DecodeError as error:
        raise api_errors.bad_request(_unhandled(actual, desired, str(error))) from None


def _read(data: bytes, media_type: str) -> JSONObject:
    if media_type == YAML:
        try:
            tree = read_yaml(data)
        except DecodeError as error:
            raise _Unreadable(str(error)) from None
    else:
        try:
            tree = strict.parse_json(data)
        except (ValueError, RecursionError):
            reason = json_fault(data) or "invalid UTF-8"
            raise _Unreadable(f"couldn't get version/kind; json parse error: {reason}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise _Unreadable(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {_type(tree)} into Go value of type {_TYPE_META}"
        )
    return tree


def read_yaml(data: bytes) -> Any:
    """Decode one YAML 1.1 document to a JSON tree. Dates stay strings.

    Raises:
        DecodeError: The document is malformed.
    """
    from kubeloop.endpoints.yaml_body import parse_yaml

    return parse_yaml(data)


def read_protobuf(data: bytes, desired: GroupVersionKind) -> JSONObject:
    """Decode options in Kubernetes protobuf, of any group version. If the kind is missing, it is ``desired``.

    Raises:
        DecodeError: The message is malformed or has another kind.
    """
    from kubeloop.codec import protobuf

    envelope = protobuf.open_envelope(data)
    actual = protobuf.kind_of(envelope, desired)
    if actual.kind != desired.kind:
        raise DecodeError(f'no kind "{actual.kind}" is registered for version "{actual.api_version}" in {SCHEME}')
    return protobuf.decode_message(actual, envelope.raw)


def _met(tree: JSONObject, desired: GroupVersionKind) -> GroupVersionKind:
    for name in ("apiVersion", "kind"):
        value = tree.get(name)
        if value is not None and not isinstance(value, str):
            reason = f"json: cannot unmarshal {_type(value)} into Go struct field .{name} of type string"
            raise _Unreadable(f"couldn't get version/kind; json parse error: {reason}")
    api_version, kind = tree.get("apiVersion") or "", tree.get("kind") or ""
    if not api_version:
        return desired._replace(kind=kind or desired.kind)
    if api_version.count("/") > 1:
        raise _Unreadable(f"unexpected GroupVersion string: {api_version}")
    group, _, version = api_version.rpartition("/")
    return GroupVersionKind(group, version, kind or desired.kind)


def _said(tree: JSONObject, actual: GroupVersionKind, data: bytes, *, strict: bool) -> GroupVersionKind:
    """Return the kind of a body. A custom object must name its kind, because no Go type implies it."""
    reported = actual if tree.get("apiVersion") else GroupVersionKind("", "", actual.kind)
    if not tree.get("kind"):
        reason = kind_missing(data.decode("utf-8", "replace"))
        raise _Unreadable(reason) if strict else api_errors.bad_request(_unhandled(reported, actual, reason))
    return reported


def kind_missing(view: str) -> str:
    """Return the error text for an object without a kind."""
    return f"Object 'Kind' is missing in '{view}'"


def _foreign(actual: GroupVersionKind, desired: GroupVersionKind, resource: ServedResource) -> str:
    """Return why a body of another kind is rejected, or "" if it is the expected kind in any existing version."""
    if resource.custom and desired == resource.gvk:
        return ""  # any kind and version is decoded; validation follows
    if actual == desired:
        return ""
    if resource.custom:
        # The scheme of custom resources has only Scale, in all its versions.
        if actual.kind == desired.kind and actual.api_version in _SCALES:
            return f"converting ({actual.version}.{actual.kind}) to (v1.{desired.kind}): unknown conversion"
        return f'no kind "{actual.kind}" is registered for version "{actual.api_version}" in {SCHEME}'
    if not strict.is_builtin(actual):
        return f'no kind "{actual.kind}" is registered for version "{actual.api_version}" in {SCHEME}'
    if actual.group_kind != desired.group_kind:
        return f"converting ({actual.version}.{actual.kind}) to ({_package(desired)}.{desired.kind}): unknown conversion"
    return ""


def _package(gvk: GroupVersionKind) -> str:
    return gvk.group.partition(".")[0] or "core"


def _unhandled(actual: GroupVersionKind, desired: GroupVersionKind, reason: str) -> str:
    return f'{actual.kind} in version "{actual.version}" cannot be handled as a {desired.kind}: {reason}'


def _summary(data: bytes) -> str:
    if not data:
        return "<empty>"
    view = data[:30].decode("utf-8", "replace") if data.startswith(b"{") else data[:30].hex()
    return f"{view} ..." if len(data) > 30 else view


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"
