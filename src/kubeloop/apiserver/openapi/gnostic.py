"""/openapi/v2 as protobuf, the only form of it that kubectl asks for: to check a manifest of kind List, or of a kind that is not served.

Source: openapiv2/OpenAPIv2.proto of github.com/google/gnostic-models, whose field numbers these are. What it holds as YAML is JSON here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubeloop.apiserver.openapi.gnostic_form import EXTENSION, Form, block, scalar, string
from kubeloop.codec.protobuf.wire import EncodeError

MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
#: As kube-apiserver names it in its answer.
ANSWERED_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_EXTENSION = EXTENSION

_VALIDATION = "maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern maxItems minItems uniqueItems enum multipleOf"
_SCALARS = {
    "maximum": "double", "exclusiveMaximum": "bool", "minimum": "double", "exclusiveMinimum": "bool", "maxLength": "int",
    "minLength": "int", "pattern": "string", "maxItems": "int", "minItems": "int", "uniqueItems": "bool", "enum": "[any]",
    "multipleOf": "double", "maxProperties": "int", "minProperties": "int", "required": "bool", "allowEmptyValue": "bool",
    "items": "PrimitivesItems", "default": "any", _EXTENSION: "extensions",
}  # fmt: skip


def _numbered(names: str, types: Mapping[str, str], start: int = 1) -> dict[str, tuple[int, str]]:
    """Consecutive numbers; a type that is not given is the scalar of that name, or a string."""
    return {name: (number, types.get(name) or _SCALARS.get(name, "string")) for number, name in enumerate(names.split(), start)}


_SUBSCHEMA = f"type format items collectionFormat default {_VALIDATION} {_EXTENSION}"
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
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


def encode(document: Mapping[str, Any]) -> bytes:
    """``document``, a JSON tree of OpenAPI v2.

    Raises:
        EncodeError: it holds what the form has no place for.
    """
    return _FORM.message("Document", document)


def _parameter(value: Mapping[str, Any]) -> bytes:
    if value["in"] == "body":
        return block(1, _FORM.message("Body", value))
    number, message = _NON_BODY[value["in"]]
    return block(2, block(number, _FORM.message(message, value)))


def _security(value: Mapping[str, Any]) -> bytes:
    if value["type"] != "apiKey":
        raise EncodeError(f"OpenAPI security of type {value['type']} has no protobuf form here")
    return block(2, _FORM.message("ApiKey", value))


def _reference_or(message: str, value: Mapping[str, Any]) -> bytes:
    return block(2, _FORM.message("Reference", value)) if "$ref" in value else _FORM.field(1, message, value)


def _requirement(value: Mapping[str, Any]) -> bytes:
    return b"".join(block(1, string(1, key) + block(2, _FORM.field(1, "[string]", one))) for key, one in value.items())


#: Messages that hold one of several.
_FORM: Form = Form(
    _MESSAGES,
    {
        "Additional": lambda value: scalar(2, "bool", value) if isinstance(value, bool) else _FORM.field(1, "Schema", value),
        "Items": lambda value: _FORM.field(1, "[Schema]", value if isinstance(value, list) else [value]),
        "Types": lambda value: _FORM.field(1, "[string]", value if isinstance(value, list) else [value]),
        "SchemaItem": lambda value: _FORM.field(1, "Schema", value),
        "Parameter": _parameter,
        "ParametersItem": lambda value: _reference_or("Parameter", value),
        "ResponseValue": lambda value: _reference_or("Response", value),
        "Requirement": _requirement,
        "Security": _security,
    },
)
