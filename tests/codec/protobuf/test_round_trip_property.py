"""Whatever a kind can hold comes back from protobuf as it went in: objects are drawn from the table of messages itself."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubeloop.codec import protobuf
from kubeloop.codec.protobuf.table import Count, MessageDefinition, MessageField, MessageForm, Scalar, ZeroInJSON, table
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.meta.time import format_micro_time, format_time
from kubeloop.types import JSONObject

Draw = st.DrawFn

_KINDS = [
    GroupVersionKind("", "v1", "Pod"),
    GroupVersionKind("", "v1", "Secret"),
    GroupVersionKind("", "v1", "PersistentVolume"),
    GroupVersionKind("", "v1", "Event"),
    GroupVersionKind("", "v1", "ServiceList"),
    GroupVersionKind("", "v1", "Status"),
    GroupVersionKind("", "v1", "DeleteOptions"),
    GroupVersionKind("apps", "v1", "Deployment"),
    GroupVersionKind("autoscaling", "v2", "HorizontalPodAutoscaler"),
    GroupVersionKind("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"),
    GroupVersionKind("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    GroupVersionKind("authorization.k8s.io", "v1", "SubjectAccessReview"),
    GroupVersionKind("resource.k8s.io", "v1", "ResourceClaim"),
    GroupVersionKind("meta.k8s.io", "v1", "PartialObjectMetadataList"),
]

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants naive limits
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)
_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    Scalar.STRING: _TEXT,
    Scalar.INT32: st.integers(-(2**31), 2**31 - 1),
    Scalar.INT64: st.integers(-(2**63), 2**63 - 1),
    Scalar.BOOL: st.booleans(),
    Scalar.BYTES: st.binary(max_size=8).map(lambda data: base64.b64encode(data).decode()),
    Scalar.DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
}
_FORMS: dict[MessageForm, st.SearchStrategy[Any]] = {
    MessageForm.TIME: _TIMES.map(format_time),
    MessageForm.MICRO_TIME: _TIMES.map(format_micro_time),
    MessageForm.QUANTITY: st.sampled_from(["0", "100m", "1Gi", "-3", "12e6"]),
    MessageForm.INT_OR_STRING: st.integers(-(2**31), 2**31 - 1) | _TEXT,
    MessageForm.RAW: _JSON.filter(lambda value: value is not None),
    MessageForm.LIST: st.lists(_TEXT, max_size=3),
}


@st.composite
def messages(draw: Draw, message: MessageDefinition, room: int) -> Any:
    """The JSON of a message, as Kubernetes prints it; ``room`` is how many messages deep it may still go."""
    if message.form in _FORMS:
        return draw(_FORMS[message.form])
    fields = {field.name: field for field in message.fields}
    if message.form == MessageForm.OBJECT:
        return draw(objects(message, room))
    if message.form == MessageForm.SCHEMA_OR_BOOL and (room <= 0 or draw(st.booleans())):
        return draw(st.booleans())
    if message.form == MessageForm.SCHEMA_OR_STRINGS and (room <= 0 or draw(st.booleans())):
        return draw(st.lists(_TEXT, min_size=1, max_size=2))
    inner = fields["schema"].message
    assert inner is not None
    if message.form == MessageForm.SCHEMA_OR_ARRAY and draw(st.booleans()):
        return draw(st.lists(objects(inner, room - 1), min_size=1, max_size=2))
    return draw(objects(inner, room - 1))


@st.composite
def objects(draw: Draw, message: MessageDefinition, room: int) -> JSONObject:
    tree: JSONObject = message.empty()
    fields = list(message.fields)
    chosen = draw(st.lists(st.sampled_from(fields), max_size=5, unique_by=lambda field: field.number)) if fields and room > 0 else []
    for field in chosen:
        if field.count == Count.INLINE:
            assert field.message is not None
            tree |= draw(objects(field.message, room))
            continue
        tree[field.name] = draw(values(field, room))
    return tree


@st.composite
def values(draw: Draw, field: MessageField, room: int) -> Any:
    one = _SCALARS[field.type] if field.message is None else messages(field.message, room - 1)
    if field.count == Count.REPEATED:
        return draw(st.lists(one, min_size=1, max_size=2))
    if field.count == Count.MAP:
        return draw(st.dictionaries(_TEXT, one, min_size=1, max_size=2))
    if field.zero == ZeroInJSON.LEFT_OUT:
        one = one.filter(bool)
    return draw(one)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_an_object_of_any_kind_comes_back_as_it_was(data: st.DataObject) -> None:
    gvk = data.draw(st.sampled_from(_KINDS))
    obj = {"kind": gvk.kind, "apiVersion": gvk.api_version, **data.draw(objects(table().kind(gvk), 6))}
    written = protobuf.encode(obj)
    read = protobuf.decode(written)
    if read.get("items") == [] and obj.get("items") is None:
        read["items"] = None
    assert read == obj
    assert protobuf.encode(read) == written
