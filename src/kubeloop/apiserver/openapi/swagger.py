"""OpenAPI version 2 (Swagger): one document for all resources, derived from the version 3 paths and the schema document.

Schemas of custom resources are reduced to the features of version 2: no allOf, anyOf, oneOf and not, no nullable fields, no type where it
is ambiguous.
Source: kube-openapi builder, apiextensions-apiserver controller/openapi/v2.
"""

from __future__ import annotations

import hashlib
import logging
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kubeloop.apiserver.aggregation.api_services import ApiServiceTable
from kubeloop.apiserver.crd.definition import schema_of
from kubeloop.apiserver.openapi import custom
from kubeloop.apiserver.openapi.schemas import COMPONENTS, DEFINITIONS, referenced, to_v2, with_references
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.schema import builtin, openapi_paths, openapi_paths_of
from kubeloop.schema.descriptions import Descriptions
from kubeloop.types import JSONObject

# Merges Swagger documents of other servers into this server's own: their paths, and the definitions and parameters that these use.
#
# Source: kube-openapi pkg/aggregator (FilterSpecByPaths, MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters).


_LOG = logging.getLogger("kubeloop.apiserver.openapi")


_REF: Final = "$ref"
_SECTIONS: Final = ("definitions", "parameters")
_KINDS: Final = "x-kubernetes-group-version-kind"


def merge_documents(server_document: JSONObject, table: ApiServiceTable) -> JSONObject:
    """Return a new tree of ``server_document`` merged with the documents of the table's extension servers.

    An invalid document is logged and left out.
    """
    merged = {**server_document, **{section: dict(server_document.get(section) or {}) for section in ("paths", *_SECTIONS)}}
    for service in sorted(table.remote(), key=lambda api_service: api_service.name):
        document = table.swagger.get(service.name)
        if document is None:
            continue
        try:
            _merge(merged, document, service.path)
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            _LOG.warning("OpenAPI v2 of APIService %s: %s %s", service.name, type(error).__name__, error)
    return {**merged, **{section: dict(sorted(merged[section].items())) for section in ("paths", "definitions")}}


def _merge(merged: JSONObject, document: JSONObject, path: str) -> None:
    requested = {name: item for name, item in document["paths"].items() if name == path or name.startswith(f"{path}/")}
    value: dict[str, JSONObject] = {section: {} for section in _SECTIONS}
    waiting = [requested]
    while waiting:
        for section, name in _references(waiting.pop()):
            if name not in value[section]:
                value[section][name] = document[section][name]
                waiting.append(value[section][name])
    used = [(section, name, tree) for section in _SECTIONS for name, tree in value[section].items()]
    renamed = {f"#/{section}/{name}": f"#/{section}/{_free(merged[section], name, tree)}" for section, name, tree in used}
    for section, name, tree in used:
        merged[section].setdefault(renamed[f"#/{section}/{name}"].rpartition("/")[2], _pointing(tree, renamed))
    for name, item in requested.items():
        merged["paths"].setdefault(name, _pointing(item, renamed))


def _free(taken: JSONObject, name: str, tree: Any) -> str:
    """Return a name for ``tree`` that is unused or already refers to an equal tree."""
    shown, number = name, 1
    while shown in taken and _bare(taken[shown]) != _bare(tree):
        number += 1
        shown = f"{name}_v{number}"
    return shown


def _bare(tree: Any) -> Any:
    """Return a definition without descriptions and group-version-kinds, for comparison."""
    if isinstance(tree, dict):
        return {name: _bare(value) for name, value in tree.items() if name not in ("description", _KINDS)}
    return [_bare(one) for one in tree] if isinstance(tree, list) else tree


def _references(tree: Any) -> Iterator[tuple[str, str]]:
    if isinstance(tree, dict):
        reference = tree.get(_REF)
        if isinstance(reference, str) and reference.startswith("#/"):
            _, section, name = reference.split("/", 2)
            if section not in _SECTIONS:
                raise ValueError(f"a reference to {reference}")
            yield section, name
        for value in tree.values():
            yield from _references(value)
    elif isinstance(tree, list):
        for one in tree:
            yield from _references(one)


def _pointing(tree: Any, renamed: dict[str, str]) -> Any:
    if isinstance(tree, dict):
        return {
            name: renamed[value] if name == _REF and isinstance(value, str) and value in renamed else _pointing(value, renamed)
            for name, value in tree.items()
        }
    return [_pointing(one, renamed) for one in tree] if isinstance(tree, list) else tree


# Parameters that many operations share are written once in a document of version 2, which halves its size.
#
# Source: kube-openapi builder/parameters.go. The parameters that stay in the operations are the same as upstream.


_PARAMETERS: Final = "#/parameters/"
#: Parameters that kubectl expects in the operations; the description of ``name`` contains the kind.
_OWN: Final = frozenset({("query", "name"), ("path", "name"), ("query", "fieldValidation"), ("query", "dryRun")})
_COMMON_TYPES: Final = f"{DEFINITIONS}io.k8s.apimachinery"


def share_parameters(paths: JSONObject) -> JSONObject:
    """Replace shared parameters in ``paths`` with references, in place. Return the parameters by name."""
    shared: JSONObject = {}
    references: dict[bytes, JSONObject] = {}
    for item in paths.values():
        for holder in (item, *item.values()):
            if isinstance(holder, dict) and "parameters" in holder:
                holder["parameters"] = [_reference(one, shared, references) for one in holder["parameters"]]
    return dict(sorted(shared.items()))


def _reference(parameter: JSONObject, shared: JSONObject, references: dict[bytes, JSONObject]) -> JSONObject:
    if (parameter["in"], parameter["name"]) in _OWN:
        return parameter
    if parameter["in"] == "body" and not parameter["schema"].get("$ref", "").startswith(_COMMON_TYPES):
        return parameter
    key = msgspec.json.encode(parameter, order="sorted")
    reference = references.get(key)
    if reference is None:
        name = f"{parameter['name']}-{urlsafe_b64encode(hashlib.sha256(key).digest())[:8].decode()}"
        shared[name] = parameter
        reference = references[key] = {"$ref": _PARAMETERS + name}
    return reference


#: Media types in upstream's order. Those of requests and those of responses are separate lists.
_PRODUCED: Final = ("text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_CONSUMED: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_OF_CUSTOM: Final = ("application/json", "application/yaml")
_OPENID: Final = ("/.well-known/", "/openid/")
_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
_NOT_IN_V2: Final = ("allOf", "anyOf", "oneOf", "not", "nullable", "default")
#: The whole definition of a custom resource whose fields are unknown.
_OF_UNKNOWN: Final = ("type", "x-kubernetes-group-version-kind", "x-kubernetes-selectable-fields")


def swagger(registry: Registry, descriptions: Descriptions | None = None) -> JSONObject:
    """Return the OpenAPI v2 document of the server as a new tree. None for ``descriptions`` leaves descriptions out.

    The document has more than a megabyte, and creating it takes about 0.1 s.
    """
    schemas = builtin()
    paths: JSONObject = {}
    for name in openapi_paths():
        paths |= {path: _path(path, item) for path, item in openapi_paths_of(name).items()}
    used = [name for document in openapi_paths().values() for name in referenced(bytes(document))]
    definitions = {name: to_v2(schemas.definition(name)) for name in with_references(schemas, used)}
    if descriptions is not None:
        for name, definition in definitions.items():
            descriptions.describe(name, definition)
    texts = {} if descriptions is None else descriptions.of_every_kind()
    for one in registry.resources():
        if one.custom:
            paths |= {path: _of_custom(_path(path, item)) for path, item in custom.paths(one).items()}
            made = custom.definitions(one, schema_of(one.extra.get("version", {})), texts)
            definitions |= {name: _definition(schema) for name, schema in made.items()}
    parameters = share_parameters(paths)
    bearer = {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": schemas.version},
        "paths": dict(sorted(paths.items())),
        "definitions": dict(sorted(definitions.items())),
        "parameters": parameters,
        "securityDefinitions": bearer,
        "security": [{"BearerToken": []}],
    }


def _path(path: str, item: JSONObject) -> JSONObject:
    made: JSONObject = {}
    for name, value in item.items():
        if name in _METHODS:
            made[name] = _operation(value, path)
        elif name == "parameters":
            made[name] = [_parameter(one) for one in value]
        else:
            made[name] = value
    return made


def _operation(operation: JSONObject, path: str) -> JSONObject:
    made = {name: value for name, value in operation.items() if name not in ("parameters", "requestBody", "responses")}
    body = operation.get("requestBody")
    parameters = [_parameter(one) for one in operation.get("parameters", [])]
    if body is not None:
        content = body["content"]
        made["consumes"] = sorted(content, key=lambda media_type: _rank(media_type, _CONSUMED))
        required = {"required": True} if body.get("required") else {}
        schema = next(iter(content.values())).get("schema", {})
        parameters.insert(0, {"name": "body", "in": "body", **required, "schema": _moved(schema)})
    if parameters:
        made["parameters"] = parameters
    produced: dict[str, None] = {}
    made["responses"] = {}
    for code, response in operation.get("responses", {}).items():
        produced |= dict.fromkeys(response.get("content", {}))
        schema = next((one["schema"] for one in response.get("content", {}).values() if "schema" in one), None)
        shown = {"description": response.get("description") or ("Unauthorized" if code == "401" else "OK")}
        made["responses"][code] = shown if schema is None else {**shown, "schema": _moved(schema)}
    if produced:
        made["produces"] = sorted(produced, key=lambda media_type: _rank(media_type, _PRODUCED))
    if not path.endswith("/"):
        made.setdefault("consumes", ["*/*"])
    elif not path.startswith(_OPENID):
        made["consumes"] = made.get("produces", [])  # documents about the API itself list the same media types for both
    made["schemes"] = ["https"]
    return made


def _rank(media_type: str, order: tuple[str, ...]) -> tuple[bool, int]:
    """Return the sort key of a media type: plain media types come before streams."""
    plain = media_type.partition(";")[0]
    return ";" in media_type, order.index(plain) if plain in order else len(order)


def _parameter(parameter: JSONObject) -> JSONObject:
    made = {name: value for name, value in parameter.items() if name != "schema"}
    return {**parameter.get("schema", {}), **made}


def _moved(value: Any) -> Any:
    """Return the value with references to version 3 components replaced by references to version 2 definitions."""
    if isinstance(value, dict):
        return {name: _target(one) if name == "$ref" else _moved(one) for name, one in value.items()}
    return [_moved(one) for one in value] if isinstance(value, list) else value


def _target(reference: str) -> str:
    return DEFINITIONS + reference.removeprefix(COMPONENTS)


def _of_custom(item: JSONObject) -> JSONObject:
    """Add the media types of a body to all operations on custom resources, even to those without a body, in place."""
    for operation in item.values():
        if isinstance(operation, dict) and operation.get("consumes") == ["*/*"]:
            operation["consumes"] = list(_OF_CUSTOM)
    return item


def _definition(schema: JSONObject) -> JSONObject:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return {name: schema[name] for name in _OF_UNKNOWN if name in schema}
    return _published(schema)


def _published(schema: JSONObject) -> JSONObject:
    """Return the schema of a custom resource reduced to version 2, as a new tree."""
    reference = next((one["$ref"] for one in schema.get("allOf", []) if "$ref" in one), schema.get("$ref"))
    if reference is not None:
        return {"$ref": _target(reference)} | ({"description": schema["description"]} if "description" in schema else {})
    made = {name: value for name, value in schema.items() if name not in _NOT_IN_V2}
    if schema.get("nullable") or schema.get("x-kubernetes-preserve-unknown-fields"):
        # Clients of version 2 would reject null and unknown fields.
        for name in ("type", "items", "properties", "additionalProperties", "required"):
            made.pop(name, None)
        return made
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = _published(made[name])
    if "properties" in made:
        made["properties"] = {name: _published(below) for name, below in made["properties"].items()}
    return made
