"""Documents of OpenAPI v3 as protobuf, which Go clients may ask for.

Source: openapiv3/OpenAPIv3.proto of github.com/google/gnostic-models, whose field numbers these are; of messages that no document of an API
server holds (links, callbacks, examples, servers) there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubeloop.apiserver.openapi.gnostic_form import EXTENSION, Form, Messages, block, scalar

MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
#: As kube-apiserver names it in its answer.
ANSWERED_TYPE: Final = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"


def _row(fields: str) -> dict[str, tuple[int, str]]:
    """``name number type`` for each field, separated by commas."""
    return {name: (int(number), kind) for name, number, kind in (field.split() for field in fields.split(","))}


_X = f"{EXTENSION} %d extensions"
_OPERATIONS = ", ".join(
    f"{method} {number} Operation" for number, method in enumerate(("get", "put", "post", "delete", "options", "head", "patch", "trace"), 4)
)
_MESSAGES: Messages = {
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


def encode(document: Mapping[str, Any]) -> bytes:
    """``document``, a JSON tree of OpenAPI v3.

    Raises:
        EncodeError: it holds what the form has no place for.
    """
    return _FORM.message("Document", document)


def _or_reference(message: str, value: Mapping[str, Any]) -> bytes:
    return block(2, _FORM.message("Reference", value)) if "$ref" in value else _FORM.field(1, message, value)


def _default(value: Any) -> bytes:
    """Objects and lists have no place in it: nothing is said of them, as upstream."""
    if isinstance(value, bool):
        return scalar(2, "bool", value)
    if isinstance(value, int | float):
        return scalar(1, "double", value)
    return scalar(3, "string", value) if isinstance(value, str) else b""


def _paths(value: Mapping[str, Any]) -> bytes:
    return b"".join(block(1, scalar(1, "string", path) + _FORM.field(2, "PathItem", item)) for path, item in value.items())


#: Messages that hold one of several, and the one that is a map of its own.
_FORM: Form = Form(
    _MESSAGES,
    {
        "Paths": _paths,
        "SchemaOr": lambda value: _or_reference("Schema", value),
        "SecurityOr": lambda value: _or_reference("Security", value),
        "Parameters": lambda value: _or_reference("Parameter", value),
        "Body": lambda value: _or_reference("RequestBody", value),
        "Response": lambda value: _or_reference("OneResponse", value),
        "Items": lambda value: _FORM.field(1, "[SchemaOr]", value if isinstance(value, list) else [value]),
        "Additional": lambda value: scalar(2, "bool", value) if isinstance(value, bool) else _FORM.field(1, "SchemaOr", value),
        "Default": _default,
    },
)
