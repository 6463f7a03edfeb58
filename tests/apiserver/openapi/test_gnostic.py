"""OpenAPI documents as protobuf. The bytes follow the encoding guide and the field numbers in OpenAPIv2.proto and OpenAPIv3.proto."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.apiserver.openapi.documents import OpenAPIDocuments
from kubeloop.apiserver.openapi.gnostic import encode_v2, encode_v3
from kubeloop.apiserver.openapi.swagger import swagger
from kubeloop.apiserver.server.bootstrap import builtin_registry
from kubeloop.codec.protobuf.wire import EncodeError
from kubeloop.schema import builtin
from kubeloop.timing import FakeClock


def schema_v2(tree: dict[str, Any]) -> bytes:
    """Encode ``tree`` as the definition "A"."""
    data = encode_v2({"definitions": {"A": tree}})
    assert data[:1] == b"\x4a"  # field 9, a message
    assert data[2:7] == b"\x0a" + bytes([len(data) - 4]) + b"\x0a\x01A"
    assert data[7:9] == b"\x12" + bytes([len(data) - 9])
    return data[9:]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        pytest.param({"$ref": "#/x"}, b"\x0a\x03#/x", id="a reference"),
        pytest.param({"type": "string", "format": "byte"}, b"\x12\x04byte\xb2\x01\x08\x0a\x06string", id="fields come in order of number"),
        pytest.param({"items": {"type": "a"}}, b"\xba\x01\x08\x0a\x06\xb2\x01\x03\x0a\x01a", id="items are a list of schemas"),
        pytest.param({"additionalProperties": True}, b"\xaa\x01\x02\x10\x01", id="additional properties of any kind"),
        pytest.param({"additionalProperties": {"format": "a"}}, b"\xaa\x01\x05\x0a\x03\x12\x01a", id="additional properties of one kind"),
        pytest.param({"required": ["a", "b"]}, b"\x9a\x01\x01a\x9a\x01\x01b", id="repeated strings"),
        pytest.param({"properties": {"p": {"format": "a"}}}, b"\xca\x01\x0a\x0a\x08\x0a\x01p\x12\x03\x12\x01a", id="properties by name"),
        pytest.param({"maxLength": 300, "uniqueItems": False}, b"\x58\xac\x02", id="numbers, and nothing for false"),
        pytest.param({"minimum": 1.0}, b"\x49\x00\x00\x00\x00\x00\x00\xf0\x3f", id="doubles"),
        pytest.param({"enum": ["a"]}, b"\xa2\x01\x06\x12\x04" + b'"a"\n', id="values of any kind as text"),
        pytest.param({"x-a": [1]}, b"\xfa\x01\x0d\x0a\x03x-a\x12\x06\x12\x04[1]\n", id="extensions"),
    ],
)
def test_a_v2_schema(tree: dict[str, Any], expected: bytes) -> None:
    assert schema_v2(tree) == expected


def test_a_parameter_goes_by_its_place() -> None:
    query = {"in": "query", "name": "q", "uniqueItems": True}
    body = {"in": "body", "name": "b"}
    path = encode_v2({"paths": {"/": {"parameters": [query, body, {"$ref": "#/r"}]}}})
    assert path.endswith(
        b"\x4a\x13\x0a\x11\x12\x0f\x1a\x0d\x12\x05query\x22\x01q\xa0\x01\x01"
        b"\x4a\x0d\x0a\x0b\x0a\x09\x12\x01b\x1a\x04body"
        b"\x4a\x07\x12\x05\x0a\x03#/r"
    )


def test_a_field_of_v2_without_a_number_is_named() -> None:
    with pytest.raises(EncodeError, match="OpenAPI Schema has no place for oneOf"):
        schema_v2({"oneOf": []})


def test_the_document_of_a_server_has_this_form() -> None:
    document = swagger(builtin_registry(builtin(), FakeClock()))
    data = encode_v2(document)
    assert all(name.encode() in data for name in document["definitions"])
    assert all(path.encode() in data for path in document["paths"])


def schema_v3(tree: dict[str, Any]) -> bytes:
    """Encode ``tree`` as the component "A", and return it without the surrounding messages."""
    data = encode_v3({"components": {"schemas": {"A": tree}}})
    assert data[:1] == b"\x2a"  # field 5, a message
    assert data[2:3] == b"\x0a"  # its field 1: schemas by name
    assert data[4:5] == b"\x0a"
    assert data[6:9] == b"\x0a\x01A"
    return data[11:]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        pytest.param({"$ref": "#/x"}, b"\x12\x05\x0a\x03#/x", id="a reference"),
        pytest.param({"type": "string", "format": "a"}, b"\x0a\x0d\xca\x01\x06string\x9a\x02\x01a", id="fields come in order of number"),
        pytest.param({"nullable": True}, b"\x0a\x02\x08\x01", id="a boolean"),
        pytest.param({"default": 0}, b"\x0a\x0c\x8a\x02\x09\x09" + bytes(8), id="a default number, be it zero"),
        pytest.param({"default": False}, b"\x0a\x05\x8a\x02\x02\x10\x00", id="a default boolean, be it false"),
        pytest.param({"default": ""}, b"\x0a\x05\x8a\x02\x02\x1a\x00", id="a default text, be it empty"),
        pytest.param({"default": {}}, b"\x0a\x03\x8a\x02\x00", id="a default object, of which nothing is said"),
        pytest.param({"items": {"$ref": "b"}}, b"\x0a\x0a\xf2\x01\x07\x0a\x05\x12\x03\x0a\x01b", id="items are a list of schemas"),
        pytest.param({"additionalProperties": True}, b"\x0a\x05\x82\x02\x02\x10\x01", id="additional properties of any kind"),
    ],
)
def test_a_v3_schema(tree: dict[str, Any], expected: bytes) -> None:
    assert schema_v3(tree) == expected


def test_a_field_of_v3_without_a_number_is_named() -> None:
    with pytest.raises(EncodeError, match="OpenAPI Schema has no place for odd"):
        schema_v3({"odd": []})


@pytest.mark.parametrize("name", ["api/v1", "apis/apps/v1", "apis/apiextensions.k8s.io/v1", "version"])
def test_documents_have_this_form(name: str) -> None:
    documents = OpenAPIDocuments(builtin_registry(builtin(), FakeClock()), FakeClock())
    assert documents.body(name, protobuf=True).startswith(b"\x0a\x053.0.0")
