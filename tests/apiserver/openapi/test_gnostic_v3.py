"""The protobuf form of OpenAPI v3. Bytes are written out as the encoding guide and the numbers in OpenAPIv3.proto have them."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.apiserver.openapi.documents import Documents
from kubeloop.apiserver.openapi.gnostic import encode_v3
from kubeloop.apiserver.server.bootstrap import builtin_registry
from kubeloop.codec.protobuf.wire import EncodeError
from kubeloop.schema import builtin
from kubeloop.timing import FakeClock


def schema(tree: dict[str, Any]) -> bytes:
    """What ``tree`` becomes as the component "A", without what is around it."""
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
def test_a_schema(tree: dict[str, Any], expected: bytes) -> None:
    assert schema(tree) == expected


def test_what_has_no_place_is_named() -> None:
    with pytest.raises(EncodeError, match="OpenAPI Schema has no place for odd"):
        schema({"odd": []})


@pytest.mark.parametrize("name", ["api/v1", "apis/apps/v1", "apis/apiextensions.k8s.io/v1", "version"])
def test_documents_have_this_form(name: str) -> None:
    documents = Documents(builtin_registry(builtin(), FakeClock()), FakeClock())
    assert documents.body(name, protobuf=True).startswith(b"\x0a\x053.0.0")
