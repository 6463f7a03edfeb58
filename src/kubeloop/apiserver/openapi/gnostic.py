"""OpenAPI documents, versions 2 and 3, as protobuf. Fields that hold YAML upstream hold JSON here.

kubectl requests version 2 only in this form, to check a manifest of kind List or of an unknown kind.
Source: openapiv2/OpenAPIv2.proto of github.com/google/gnostic-models (for the field numbers).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kubeloop.codec.protobuf.wire import EncodeError, varint

#: Key in a table for all extensions: fields whose names begin with ``x-``.
EXTENSION: Final = "x-*"

#: Message -> JSON name -> field number and type. A type is a scalar, a message, [type] for a repeated field, or {message}/number for a map:
#: a message with that number as the field of its entries (name 1, value 2).
Messages = Mapping[str, Mapping[str, tuple[int, str]]]
#: Message with a oneof -> function that encodes its content.
Choices = Mapping[str, Callable[[Any], bytes]]


class MessageEncoder:
    """Encodes JSON trees as protobuf messages, whose fields a table describes.

    Raises
        EncodeError: A tree has a field that its message lacks.
    """

    def __init__(self, messages: Messages, choices: Choices) -> None:
        self._messages = messages
        self._choices = choices

    def message(self, name: str, tree: Mapping[str, Any]) -> bytes:
        """Encode a tree as the fields of the message ``name``."""
        fields = self._messages[name]
        out = []
        for key, value in tree.items():
            if key.startswith("x-"):
                number, _ = fields[EXTENSION]
                out.append((number, block(number, string(1, key) + block(2, anything(value)))))
                continue
            if key not in fields:
                raise EncodeError(f"OpenAPI {name} has no place for {key}")
            number, kind = fields[key]
            out.append((number, self.field(number, kind, value)))
        out.sort(key=lambda encoded_field: encoded_field[0])
        return b"".join(data for _, data in out)

    def field(self, number: int, kind: str, value: Any) -> bytes:
        """Encode one field of a message. ``kind`` is the field's type as in ``Messages``."""
        if kind[0] == "[":
            return b"".join(self.field(number, kind[1:-1], one) for one in value)
        if kind[0] == "{":
            message, _, entries = kind[1:].partition("}/")
            named = (block(int(entries), string(1, key) + self.field(2, message, one)) for key, one in value.items())
            return block(number, b"".join(named))
        if kind in _SCALAR_TYPES:
            return scalar(number, kind, value) if value or kind == "string" else b""
        if kind == "any":
            return block(number, anything(value))
        choose = self._choices.get(kind)
        return block(number, choose(value) if choose else self.message(kind, value))


_SCALAR_TYPES: Final = frozenset({"string", "bool", "int", "double"})


def scalar(number: int, kind: str, value: Any) -> bytes:
    """Encode a scalar field, even if the value is zero, because a message with a oneof must show which field is set."""
    if kind == "string":
        return string(number, value)
    if kind == "double":
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3) + varint(int(value))


def block(number: int, data: bytes) -> bytes:
    """Encode a length-delimited field, such as a nested message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def string(number: int, text: str) -> bytes:
    """Encode a string field."""
    return block(number, text.encode())


def anything(value: Any) -> bytes:
    """Encode a value of any type as the content of gnostic's ``Any``: JSON in its field ``yaml``."""
    return block(2, msgspec.json.encode(value) + b"\n")


V2_MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
#: The Content-Type of kube-apiserver's response.
V2_CONTENT_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_EXTENSION = EXTENSION

_VALIDATION = "maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern maxItems minItems uniqueItems enum multipleOf"
_V2_SCALARS = {
    "maximum": "double", "exclusiveMaximum": "bool", "minimum": "double", "exclusiveMinimum": "bool", "maxLength": "int",
    "minLength": "int", "pattern": "string", "maxItems": "int", "minItems": "int", "uniqueItems": "bool", "enum": "[any]",
    "multipleOf": "double", "maxProperties": "int", "minProperties": "int", "required": "bool", "allowEmptyValue": "bool",
    "items": "PrimitivesItems", "default": "any", _EXTENSION: "extensions",
}  # fmt: skip


def _numbered(names: str, types: Mapping[str, str], start: int = 1) -> dict[str, tuple[int, str]]:
    """Return a table with consecutive numbers. A field without a type is the scalar of that name, or a string."""
    return {name: (number, types.get(name) or _V2_SCALARS.get(name, "string")) for number, name in enumerate(names.split(), start)}


_SUBSCHEMA = f"type format items collectionFormat default {_VALIDATION} {_EXTENSION}"
_V2_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Document": _numbered(
        f"swagger info host basePath schemes consumes produces paths definitions parameters responses security securityDefinitions tags "
        f"externalDocs {_EXTENSION}",
        {
            "info": "Info", "schemes": "[string]", "consumes": "[string]", "produces": "[string]", "paths": "{PathItem}/2",
            "definitions": "{Schema}/1", "parameters": "{Parameter}/1", "responses": "{Response}/1", "security": "[Requirement]",
            "securityDefinitions": "{Security}/1", "externalDocs": "Documentation",
        },
    ),
    "Documentation": _numbered("description url", {}),
    "Info": _numbered("title version description termsOfService", {}),
    "PathItem": _numbered(
        f"$ref get put post delete options head patch parameters {_EXTENSION}",
        {**dict.fromkeys(("get", "put", "post", "delete", "options", "head", "patch"), "Operation"), "parameters": "[ParametersItem]"},
    ),
    "Operation": _numbered(
        "tags summary description externalDocs operationId produces consumes parameters responses schemes deprecated security "
        f"{_EXTENSION}",
        {
            "tags": "[string]", "produces": "[string]", "consumes": "[string]", "parameters": "[ParametersItem]",
            "responses": "{ResponseValue}/1", "schemes": "[string]", "deprecated": "bool", "security": "[Requirement]",
            "externalDocs": "Documentation",
        },
    ),
    "Body": _numbered(f"description name in required schema {_EXTENSION}", {"schema": "Schema"}),
    "Header": _numbered(f"required in description name {_SUBSCHEMA}", {}),
    "Query": _numbered(f"required in description name allowEmptyValue {_SUBSCHEMA}", {}),
    "PrimitivesItems": _numbered(_SUBSCHEMA, {}),
    "Response": _numbered("description schema", {"schema": "SchemaItem"}),
    "Reference": _numbered("$ref description", {}),
    "ApiKey": _numbered("type name in description", {}),
    "Schema": _numbered(
        "$ref format title description default multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern "
        "maxItems minItems uniqueItems maxProperties minProperties required enum additionalProperties type items allOf properties "
        f"discriminator readOnly xml externalDocs example {_EXTENSION}",
        {
            "required": "[string]", "additionalProperties": "Additional", "type": "Types", "items": "Items", "allOf": "[Schema]",
            "properties": "{Schema}/1", "externalDocs": "Documentation", "readOnly": "bool", "example": "any",
        },
    ),
}  # fmt: skip
_NON_BODY = {"header": (1, "Header"), "formData": (2, "Query"), "query": (3, "Query"), "path": (4, "Header")}


def encode_v2(document: Mapping[str, Any]) -> bytes:
    """Encode a JSON tree of OpenAPI v2.

    Raises:
        EncodeError: The tree has a field that its message lacks.
    """
    return _V2_FORM.message("Document", document)


def _parameter(value: Mapping[str, Any]) -> bytes:
    if value["in"] == "body":
        return block(1, _V2_FORM.message("Body", value))
    number, message = _NON_BODY[value["in"]]
    return block(2, block(number, _V2_FORM.message(message, value)))


def _security(value: Mapping[str, Any]) -> bytes:
    if value["type"] != "apiKey":
        raise EncodeError(f"OpenAPI security of type {value['type']} has no protobuf form here")
    return block(2, _V2_FORM.message("ApiKey", value))


def _reference_or(message: str, value: Mapping[str, Any]) -> bytes:
    return block(2, _V2_FORM.message("Reference", value)) if "$ref" in value else _V2_FORM.field(1, message, value)


def _requirement(value: Mapping[str, Any]) -> bytes:
    return b"".join(block(1, string(1, key) + block(2, _V2_FORM.field(1, "[string]", one))) for key, one in value.items())


#: Messages with a oneof.
_V2_FORM: MessageEncoder = MessageEncoder(
    _V2_MESSAGES,
    {
        "Additional": lambda value: scalar(2, "bool", value) if isinstance(value, bool) else _V2_FORM.field(1, "Schema", value),
        "Items": lambda value: _V2_FORM.field(1, "[Schema]", value if isinstance(value, list) else [value]),
        "Types": lambda value: _V2_FORM.field(1, "[string]", value if isinstance(value, list) else [value]),
        "SchemaItem": lambda value: _V2_FORM.field(1, "Schema", value),
        "Parameter": _parameter,
        "ParametersItem": lambda value: _reference_or("Parameter", value),
        "ResponseValue": lambda value: _reference_or("Response", value),
        "Requirement": _requirement,
        "Security": _security,
    },
)


# Documents of OpenAPI v3, which Go clients may request.
#
# Source: openapiv3/OpenAPIv3.proto of github.com/google/gnostic-models (for the field numbers). Messages that no document of an API server
# contains (links, callbacks, examples, servers) are left out.


V3_MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
#: The Content-Type of kube-apiserver's response.
V3_CONTENT_TYPE: Final = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"


def _row(fields: str) -> dict[str, tuple[int, str]]:
    """Parse ``name number type`` for each field, separated by commas."""
    return {name: (int(number), kind) for name, number, kind in (field.split() for field in fields.split(","))}


_X = f"{EXTENSION} %d extensions"
_OPERATIONS = ", ".join(
    f"{method} {number} Operation" for number, method in enumerate(("get", "put", "post", "delete", "options", "head", "patch", "trace"), 4)
)
_V3_MESSAGES: Messages = {
    "Document": _row(f"openapi 1 string, info 2 Info, paths 4 Paths, components 5 Components, {_X % 9}"),
    "Info": _row(f"title 1 string, description 2 string, version 6 string, {_X % 7}"),
    "PathItem": _row(f"$ref 1 string, summary 2 string, description 3 string, {_OPERATIONS}, parameters 13 [Parameters], {_X % 14}"),
    "Operation": _row(
        "tags 1 [string], summary 2 string, description 3 string, operationId 5 string, parameters 6 [Parameters], requestBody 7 Body, "
        f"responses 8 {{Response}}/2, deprecated 10 bool, {_X % 13}"
    ),
    "Parameter": _row(
        "name 1 string, in 2 string, description 3 string, required 4 bool, deprecated 5 bool, allowEmptyValue 6 bool, style 7 string, "
        f"explode 8 bool, allowReserved 9 bool, schema 10 SchemaOr, {_X % 14}"
    ),
    "RequestBody": _row(f"description 1 string, content 2 {{MediaType}}/1, required 3 bool, {_X % 4}"),
    "OneResponse": _row(f"description 1 string, content 3 {{MediaType}}/1, {_X % 5}"),
    "MediaType": _row(f"schema 1 SchemaOr, {_X % 5}"),
    "Components": _row(f"schemas 1 {{SchemaOr}}/1, securitySchemes 7 {{SecurityOr}}/1, {_X % 10}"),
    "Security": _row(f"type 1 string, description 2 string, name 3 string, in 4 string, scheme 5 string, bearerFormat 6 string, {_X % 9}"),
    "Reference": _row("$ref 1 string, summary 2 string, description 3 string"),
    "Schema": _row(
        "nullable 1 bool, readOnly 3 bool, writeOnly 4 bool, externalDocs 6 Documentation, example 7 any, deprecated 8 bool, "
        "title 9 string, multipleOf 10 double, "
        "maximum 11 double, exclusiveMaximum 12 bool, minimum 13 double, exclusiveMinimum 14 bool, maxLength 15 int, "
        "minLength 16 int, pattern 17 string, maxItems 18 int, minItems 19 int, uniqueItems 20 bool, maxProperties 21 int, "
        "minProperties 22 int, required 23 [string], enum 24 [any], type 25 string, allOf 26 [SchemaOr], oneOf 27 [SchemaOr], "
        "anyOf 28 [SchemaOr], not 29 Schema, items 30 Items, properties 31 {SchemaOr}/1, additionalProperties 32 Additional, "
        f"default 33 Default, description 34 string, format 35 string, {_X % 36}"
    ),
    "Documentation": _row(f"description 1 string, url 2 string, {_X % 3}"),
}


def encode_v3(document: Mapping[str, Any]) -> bytes:
    """Encode a JSON tree of OpenAPI v3.

    Raises:
        EncodeError: The tree has a field that its message lacks.
    """
    return _V3_FORM.message("Document", document)


def _or_reference(message: str, value: Mapping[str, Any]) -> bytes:
    return block(2, _V3_FORM.message("Reference", value)) if "$ref" in value else _V3_FORM.field(1, message, value)


def _default(value: Any) -> bytes:
    """Encode a default. Objects and lists have no field for it and are left out, as upstream does."""
    if isinstance(value, bool):
        return scalar(2, "bool", value)
    if isinstance(value, int | float):
        return scalar(1, "double", value)
    return scalar(3, "string", value) if isinstance(value, str) else b""


def _paths(value: Mapping[str, Any]) -> bytes:
    return b"".join(block(1, scalar(1, "string", path) + _V3_FORM.field(2, "PathItem", item)) for path, item in value.items())


#: Messages with a oneof, and the message that is a map itself.
_V3_FORM: MessageEncoder = MessageEncoder(
    _V3_MESSAGES,
    {
        "Paths": _paths,
        "SchemaOr": lambda value: _or_reference("Schema", value),
        "SecurityOr": lambda value: _or_reference("Security", value),
        "Parameters": lambda value: _or_reference("Parameter", value),
        "Body": lambda value: _or_reference("RequestBody", value),
        "Response": lambda value: _or_reference("OneResponse", value),
        "Items": lambda value: _V3_FORM.field(1, "[SchemaOr]", value if isinstance(value, list) else [value]),
        "Additional": lambda value: scalar(2, "bool", value) if isinstance(value, bool) else _V3_FORM.field(1, "SchemaOr", value),
        "Default": _default,
    },
)
