"""Bytes that are not what they should be: an error that says where, never a hang, a crash or a guess."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.codec import protobuf
from kubeloop.codec.protobuf.wire import varint
from kubeloop.meta.errors import DecodeError, UnknownKind
from kubeloop.meta.kinds import GroupVersionKind

CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
DEFINITION = GroupVersionKind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")


def block(number: int, content: bytes) -> bytes:
    """A field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def group(number: int, *parts: bytes) -> bytes:
    return bytes((number << 3 | 3, *b"".join(parts), number << 3 | 4))


def envelope(api_version: bytes, kind: bytes, raw: bytes = b"") -> bytes:
    return b"k8s\0" + block(1, block(1, api_version) + block(2, kind)) + block(2, raw)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(b"", "empty data", id="no bytes at all"),
        pytest.param(b"k8s\0", "empty body", id="nothing after the magic bytes"),
        pytest.param(
            b'{"kind":"Pod"}',
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
            id="JSON under the media type of protobuf",
        ),
        pytest.param(b"k8s\0\xff\xff\xff\xff", "Unknown: unexpected EOF", id="an envelope that ends within a number"),
        pytest.param(envelope(b"v1", b""), "the object has no kind", id="an object without kind"),
    ],
)
def test_an_invalid_envelope_is_refused(data: bytes, error: str) -> None:
    with pytest.raises(DecodeError) as caught:
        protobuf.decode(data)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        pytest.param(b"\x0a\x20a", "proto: ConfigMap.metadata: it ends too early", id="a field longer than its message"),
        pytest.param(b"\x0a", "ConfigMap: unexpected EOF", id="a field without a length"),
        pytest.param(b"\x08\x01", "proto: ConfigMap.metadata: wrong wire type 0", id="a number where a message is expected"),
        pytest.param(b"\x00\x00", "proto: ConfigMap: illegal tag 0 (wire type 0)", id="field number zero"),
        pytest.param(b"\x7f", "proto: ConfigMap: illegal wire type 7 of field 15", id="a wire type that does not exist"),
        pytest.param(b"\x20" + b"\xff" * 10 + b"\x01", "proto: integer overflow", id="a number of more than ten bytes"),
        pytest.param(b"\x7c", "proto: ConfigMap: wire type end group", id="the end of a group that never began"),
        pytest.param(b"\x7b\x7b", "ConfigMap: unexpected EOF", id="a group that never ends"),
        pytest.param(block(2, b"\x0a\x05a"), "proto: ConfigMap.data: it ends too early", id="a truncated entry of a map"),
        pytest.param(block(1, block(8, b"\x0a\x01a")), "proto: Time: wrong wire type 2 of field 1", id="a time that is a text"),
        pytest.param(block(1, block(8, b"\x08" + varint(1 << 60))), f"Time: {1 << 60} s", id="a time far beyond the calendar"),
        pytest.param(block(1, block(17, block(7, block(1, b"{")))), "FieldsV1: its raw bytes are not JSON", id="raw JSON that is none"),
    ],
)
def test_a_malformed_message_is_refused_with_its_place(raw: bytes, error: str) -> None:
    with pytest.raises(DecodeError) as caught:
        protobuf.decode_message(CONFIG_MAP, raw)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing at all"),
        pytest.param(block(99, b"zz"), id="an unknown block"),
        pytest.param(b"\x78" + varint(1 << 63), id="an unknown number"),
        pytest.param(b"\x79" + bytes(8) + b"\x7d" + bytes(4), id="unknown numbers of fixed size"),
        pytest.param(group(15, b"\x08\x01", group(1, b"\x0a\x02ab")), id="an unknown group with a group inside"),
    ],
)
def test_unknown_fields_are_passed_over(raw: bytes) -> None:
    assert protobuf.decode_message(CONFIG_MAP, raw) == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}}


def test_text_that_is_no_utf8_reads_as_go_prints_it() -> None:
    raw = block(2, block(1, b"k") + block(2, b"\xff\xfe"))
    assert protobuf.decode_message(CONFIG_MAP, raw)["data"] == {"k": "\ufffd\ufffd"}


def test_entries_of_maps_may_lack_key_or_value() -> None:
    assert protobuf.decode_message(CONFIG_MAP, block(2, b"") + block(2, block(1, b"a")))["data"] == {"": "", "a": ""}


def test_an_object_field_sent_twice_is_merged() -> None:
    raw = block(1, block(1, b"name")) + block(1, block(3, b"space"))
    assert protobuf.decode_message(CONFIG_MAP, raw)["metadata"] == {"name": "name", "namespace": "space"}


def test_numbers_in_lists_may_be_packed() -> None:
    pod = GroupVersionKind("", "v1", "Pod")
    packed = block(2, block(14, block(4, varint(7) + varint(1 << 40))))
    assert protobuf.decode_message(pod, packed)["spec"]["securityContext"] == {"supplementalGroups": [7, 1 << 40]}


def test_messages_that_nest_without_end_are_refused() -> None:
    schema = b""
    for _ in range(3000):
        schema = block(28, schema)  # "not"
    version = block(1, b"v1") + block(4, block(1, schema))
    raw = block(2, block(7, version))
    with pytest.raises(DecodeError, match="JSONSchemaProps: messages nest more than 128 deep"):
        protobuf.decode_message(DEFINITION, raw)


def test_objects_that_nest_without_end_are_not_written() -> None:
    schema: dict[str, Any] = {}
    for _ in range(500):
        schema = {"not": schema}
    obj = {"apiVersion": DEFINITION.api_version, "kind": DEFINITION.kind, "spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}
    with pytest.raises(protobuf.EncodeError, match="messages nest more than 128 deep"):
        protobuf.encode(obj)


@pytest.mark.parametrize(
    ("obj", "error"),
    [
        pytest.param({"metadata": {}}, "an object without a kind has no protobuf form", id="no kind"),
        pytest.param(
            {"apiVersion": "v1", "kind": "ConfigMap", "dta": {}}, 'ConfigMap: unknown field "dta"', id="a field that the kind does not have"
        ),
        pytest.param({"apiVersion": "v1", "kind": "Secret", "data": {"a": "s3cret!"}}, "Secret.data: ", id="bytes that are not in base64"),
        pytest.param(
            {"apiVersion": "v1", "kind": "Pod", "spec": {"priority": 2**31}},
            "PodSpec.priority: 2147483648 does not fit into 32 bits",
            id="a number that is too large",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Pod", "spec": {"hostNetwork": "yes"}},
            "PodSpec.hostNetwork: expected true or false, not a string",
            id="a text where a boolean is expected",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": 1}},
            "PodSpec.nodeName: expected a string, not a number",
            id="a number where a text is expected",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Pod", "spec": []},
            "Pod.spec: expected an object, not a list",
            id="a list where an object is expected",
        ),
        pytest.param(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"creationTimestamp": "now"}},
            'ObjectMeta.creationTimestamp: "now" is not',
            id="a time that is none",
        ),
    ],
)
def test_what_protobuf_cannot_say_is_refused_with_its_place(obj: dict[str, Any], error: str) -> None:
    with pytest.raises(protobuf.EncodeError) as caught:
        protobuf.encode(obj)
    assert str(caught.value).startswith(error)
    assert "s3cret" not in str(caught.value)


NO_PROTOBUF = re.escape("Foo of example.com/v1 has no protobuf form; send and accept it as application/json")


def test_custom_resources_are_not_read_from_protobuf() -> None:
    with pytest.raises(UnknownKind, match=NO_PROTOBUF):
        protobuf.decode(envelope(b"example.com/v1", b"Foo"))


def test_custom_resources_are_not_written_as_protobuf() -> None:
    with pytest.raises(UnknownKind, match=NO_PROTOBUF):
        protobuf.encode({"apiVersion": "example.com/v1", "kind": "Foo"})


def test_what_an_object_leaves_out_of_its_kind_is_taken_from_the_default() -> None:
    for api_version, kind in ((b"", b""), (b"v1", b""), (b"", b"ConfigMap"), (b"a/b/c", b"ConfigMap")):
        assert protobuf.decode(envelope(api_version, kind), CONFIG_MAP)["apiVersion"] == "v1"


def test_discovery_names_no_version_of_discovery_kinds() -> None:
    versions = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    assert protobuf.decode(protobuf.encode(versions)) == {**versions, "serverAddressByClientCIDRs": None}


def test_options_are_read_in_the_version_of_any_group() -> None:
    data = envelope(b"apps/v1", b"DeleteOptions", b"\x08\x00" + block(4, b"Orphan"))
    assert protobuf.decode(data) == {
        "kind": "DeleteOptions",
        "apiVersion": "apps/v1",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Orphan",
    }


def _samples() -> list[bytes]:
    found = json.loads(Path(__file__).with_name("samples.json").read_text())
    return [base64.b64decode(one["protobuf"]) for one in found]


SAMPLES = _samples()


def _survives(data: bytes) -> None:
    with contextlib.suppress(DecodeError, UnknownKind):
        protobuf.decode(data)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SAMPLES), st.data())
def test_a_damaged_object_is_read_or_refused(sample: bytes, data: st.DataObject) -> None:
    damaged = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(4, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    _survives(bytes(damaged))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SAMPLES), st.data())
def test_a_truncated_object_is_read_or_refused(sample: bytes, data: st.DataObject) -> None:
    _survives(sample[: data.draw(st.integers(0, len(sample)))])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    _survives(envelope(b"v1", b"Pod", data))
