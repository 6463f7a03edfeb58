"""Paths and schemas of custom resources, for the OpenAPI documents. Source: apiextensions-apiserver controller/openapi/builder."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any, Final

from kubeloop.apiserver.openapi.schemas import COMPONENTS
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.types import JSONObject

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_MEDIA: Final = ("application/json", "application/yaml")
_LIST: Final = (
    "allowWatchBookmarks:boolean", "continue", "fieldSelector", "labelSelector", "limit:integer", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents:boolean", "shardSelector", "timeoutSeconds:integer", "watch:boolean",
)  # fmt: skip
_DELETE: Final = (
    "dryRun", "gracePeriodSeconds:integer", "ignoreStoreReadErrorWithClusterBreakingPotential:boolean", "orphanDependents:boolean",
    "propagationPolicy",
)  # fmt: skip
_WRITE: Final = ("dryRun", "fieldManager", "fieldValidation")
_PATCH: Final = (*_WRITE, "force:boolean")


def definition_name(resource: ServedResource) -> str:
    """Return the name of a definition, such as ``com.example.stable.v1.Widget``: OpenAPI names begin with the reversed group."""
    return ".".join([*reversed(resource.gvr.group.split(".")), resource.gvr.version, resource.kind])


def list_name(resource: ServedResource) -> str:
    """Return the name of the definition of the resource's list, such as ``com.example.stable.v1.WidgetList``."""
    return definition_name(resource).removesuffix(resource.kind) + resource.list_kind


def definitions(resource: ServedResource, published: JSONObject | None, texts: Mapping[str, str]) -> dict[str, JSONObject]:
    """Return the schemas of the object (a copy of ``published`` with metadata added) and of its list, by name.

    Args:
        resource: The custom resource, in one version.
        published: The schema of its definition; None if it has none.
        texts: Descriptions of apiVersion, kind and metadata; empty leaves them out.
    """
    name = definition_name(resource)
    schema = copy.deepcopy(published or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    _fill_metadata(schema, texts)
    _publish(schema, texts)
    schema["x-kubernetes-group-version-kind"] = [_kind(resource, resource.kind)]
    items = {"type": "array", "items": {"$ref": COMPONENTS + name}}
    fields: JSONObject = {"apiVersion": {"type": "string"}, "items": items, "kind": {"type": "string"}, "metadata": _reference("ListMeta")}
    listed = {
        "type": "object",
        "required": ["items"],
        "properties": {name: _described(field, texts.get(name)) for name, field in fields.items()},
        "x-kubernetes-group-version-kind": [_kind(resource, resource.list_kind)],
    }
    selectable = resource.extra.get("version", {}).get("selectableFields")
    if selectable:
        for one in (schema, listed):
            one["x-kubernetes-selectable-fields"] = [{"fieldPath": field["jsonPath"].removeprefix(".")} for field in selectable]
    return {name: schema, list_name(resource): listed}


def _kind(resource: ServedResource, kind: str) -> JSONObject:
    return {"group": resource.gvr.group, "kind": kind, "version": resource.gvr.version}


def _reference(name: str) -> JSONObject:
    return {"allOf": [{"$ref": f"{COMPONENTS}{_META}.{name}"}]}


def _described(schema: JSONObject, text: str | None) -> JSONObject:
    return {"description": text, **schema} if text else schema


def _fill_metadata(schema: JSONObject, texts: Mapping[str, str]) -> None:
    fields = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _reference("ObjectMeta")}
    schema.setdefault("properties", {}).update({name: _described(field, texts.get(name)) for name, field in fields.items()})


def _publish(schema: Any, texts: Mapping[str, str]) -> None:
    """Add metadata to embedded resources, and both types to int-or-string fields, in place."""
    if not isinstance(schema, dict):
        return
    for below in [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]:
        _publish(below, texts)
    if schema.get("x-kubernetes-embedded-resource"):
        _fill_metadata(schema, texts)
        schema["required"] = list(dict.fromkeys([*(schema.get("required") or ()), "kind", "apiVersion"]))
    if schema.get("x-kubernetes-int-or-string") and "anyOf" not in schema and "type" not in schema:
        schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]


def paths(resource: ServedResource) -> dict[str, JSONObject]:
    """Return all operations on the resource and its subresources, by path."""
    return dict(sorted(_Paths(resource).all().items()))


class _Paths:
    def __init__(self, resource: ServedResource) -> None:
        self.resource = resource
        self.reference = {"$ref": COMPONENTS + definition_name(resource)}
        self.list_reference = {"$ref": COMPONENTS + list_name(resource)}
        group, version = "".join(word[:1].upper() + word[1:] for word in re.split(r"[.-]", resource.gvr.group)), resource.gvr.version
        self.group = group + version[:1].upper() + version[1:]
        self.tag = f"{group[:1].lower()}{group[1:]}_{version}"
        self.scope = "Namespaced" if resource.namespaced else ""

    def all(self) -> dict[str, JSONObject]:
        """Return the operations by path."""
        resource = self.resource
        prefix = resource.gvr.group_version.path
        within = "namespaces/{namespace}/" if resource.namespaced else ""
        collection = f"{prefix}/{within}{resource.gvr.resource}"
        scope = [_parameter("namespace", "path")] if resource.namespaced else []
        pretty = _parameter("pretty")
        result = {
            collection: {**self._collection(), "parameters": [*scope, pretty]},
            f"{collection}/{{name}}": {**self._item(), "parameters": [_parameter("name", "path"), *scope, pretty]},
        }
        for name in resource.subresources:
            below = {**self._subresource(name), "parameters": [_parameter("name", "path"), *scope, pretty]}
            result[f"{collection}/{{name}}/{name}"] = below
        if resource.namespaced:
            everywhere = self._operation("list", "list", f"{resource.kind}ForAllNamespaces", answer=self.list_reference)
            parameters = sorted((*_LIST, "pretty"))
            result[f"{prefix}/{resource.gvr.resource}"] = {"get": everywhere, "parameters": [_parameter(one) for one in parameters]}
        return result

    def _collection(self) -> JSONObject:
        return {
            "get": self._operation("list", "list", parameters=_LIST, answer=self.list_reference),
            "post": self._operation("create", "post", parameters=_WRITE, body=self.reference, codes=("200", "201", "202")),
            "delete": self._operation("delete", "deletecollection", parameters=_LIST, answer=_status(), infix="Collection"),
        }

    def _item(self) -> JSONObject:
        options = {"$ref": f"{COMPONENTS}{_META}.DeleteOptions"}
        codes = ("200", "202")
        removal = self._operation("delete", "delete", parameters=_DELETE, body=options, answer=_status(), codes=codes, optional=True)
        return {**self._read_and_write(""), "delete": removal}

    def _subresource(self, name: str) -> JSONObject:
        scale = {"$ref": f"{COMPONENTS}io.k8s.api.autoscaling.v1.Scale"}
        return self._read_and_write(name[:1].upper() + name[1:], scale if name == "scale" else None)

    def _read_and_write(self, suffix: str, reference: JSONObject | None = None) -> JSONObject:
        shown = reference or self.reference
        noun = self.resource.kind + suffix
        patch = self._operation("patch", "patch", noun, parameters=_PATCH, answer=shown)
        patched = {"schema": {"$ref": f"{COMPONENTS}{_META}.Patch"}}
        types = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
        patch["requestBody"] = {"content": dict.fromkeys(types, patched), "required": True}
        return {
            "get": self._operation("read", "get", noun, parameters=("resourceVersion",), answer=shown),
            "put": self._operation("replace", "put", noun, parameters=_WRITE, body=shown, answer=shown, codes=("200", "201")),
            "patch": patch,
        }

    def _operation(
        self,
        verb: str,
        action: str,
        noun: str = "",
        *,
        parameters: tuple[str, ...] = (),
        body: JSONObject | None = None,
        answer: JSONObject | None = None,
        codes: tuple[str, ...] = ("200",),
        infix: str = "",
        optional: bool = False,
    ) -> JSONObject:
        scope = "" if noun.endswith("ForAllNamespaces") else self.scope
        operation: JSONObject = {
            "tags": [self.tag],
            "operationId": f"{verb}{self.group}{infix}{scope}{noun or self.resource.kind}",
        }
        if parameters:
            operation["parameters"] = [_parameter(one) for one in parameters]
        if body is not None:
            operation["requestBody"] = {"content": _content(body), **({} if optional else {"required": True})}
        texts = {"200": "OK", "201": "Created", "202": "Accepted"}
        responses: JSONObject = {code: {"description": texts[code], "content": _content(answer or self.reference)} for code in codes}
        operation["responses"] = {**responses, "401": {"description": "Unauthorized"}}
        kind = {"group": self.resource.gvr.group, "version": self.resource.gvr.version, "kind": self.resource.kind}
        return {**operation, "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind}


def _status() -> JSONObject:
    return {"$ref": f"{COMPONENTS}{_META}.Status"}


def _content(reference: JSONObject) -> JSONObject:
    return {media_type: {"schema": reference} for media_type in _MEDIA}


def _parameter(text: str, place: str = "query") -> JSONObject:
    name, _, type_ = text.partition(":")
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, **required, "schema": {"type": type_ or "string", "uniqueItems": True}}
