"""OpenAPI version 3: one document for each group version, created with the first request and cached while its resources are the same.

Source: KEP-2896 (OpenAPI v3), Kubernetes documentation "OpenAPI V3".
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from kubeloop.apiserver.crd.definition import schema_of
from kubeloop.apiserver.openapi import custom
from kubeloop.apiserver.openapi.gnostic import encode_v3
from kubeloop.apiserver.openapi.schemas import referenced, to_v3, with_references
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.meta.kinds import GroupVersion
from kubeloop.schema import builtin, openapi_paths, openapi_paths_of
from kubeloop.schema.descriptions import Descriptions
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

_BEARER: Final = {"securitySchemes": {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}}
#: API groups that upstream's main server does not serve itself: those of webhooks and of its delegates.
_ELSEWHERE: Final = frozenset({"admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io"})
_TEXTS: Final = {"200": "OK", "201": "Created", "202": "Accepted", "401": "Unauthorized"}


class OpenAPIDocuments:
    """The OpenAPI documents by name (``api/v1``, ``apis/apps/v1``, ``version`` ...). They follow the registry.

    If ``descriptions`` is None, built-in kinds have no descriptions.

    Cost: the index does not create documents. Creating the document of a large group takes about 10 ms, once.
    """

    def __init__(self, registry: Registry, clock: Clock, descriptions: Descriptions | None = None) -> None:
        self._registry = registry
        self._descriptions = descriptions
        self._clock = clock
        self._revision = -1
        self._hashes: dict[str, str] = {}
        self._bodies: dict[tuple[str, str, bool], bytes] = {}
        #: Time of the last change of any document.
        self.changed = clock.wall()

    def hashes(self) -> dict[str, str]:
        """Return a hash of each document, by name, sorted."""
        if self._revision != self._registry.revision:
            before = self._hashes
            self._hashes = dict(sorted((name, self._hash(name)) for name in self._names()))
            current = set(self._hashes.items())
            self._bodies = {key: body for key, body in self._bodies.items() if key[:2] in current}
            self._revision = self._registry.revision
            if self._hashes != before:
                self.changed = self._clock.wall()
        return self._hashes

    def body(self, name: str, *, protobuf: bool = False) -> bytes:
        """Return a document as JSON, or as gnostic's protobuf.

        Raises:
            KeyError: There is no document of this name.
        """
        key = (name, self.hashes()[name], protobuf)
        if key not in self._bodies:
            document = self._document(name)
            self._bodies[key] = encode_v3(document) if protobuf else msgspec.json.encode(document)
        return self._bodies[key]

    def _names(self) -> set[str]:
        return {*openapi_paths(), *(_name(one.gvr.group_version) for one in self._registry.resources() if one.custom)}

    def _custom(self, name: str) -> list[ServedResource]:
        return [one for one in self._registry.resources() if one.custom and _name(one.gvr.group_version) == name]

    def _hash(self, name: str) -> str:
        """Return a hash of the sources of a document, which is cheaper than a hash of the document."""
        digest = hashlib.sha512(
            f"{builtin().version} {name} {self._descriptions.digest if self._descriptions is not None else ''}".encode()
        )
        if name in openapi_paths():
            digest.update(bytes(openapi_paths()[name]))
        for one in self._custom(name):
            digest.update(msgspec.json.encode([one.gvr, one.kind, one.list_kind, one.namespaced, one.extra.get("version")]))
        return digest.hexdigest().upper()

    def _document(self, name: str) -> JSONObject:
        resources = self._custom(name)
        known = name in openapi_paths()
        paths = _described(openapi_paths_of(name)) if known else {}
        own: dict[str, JSONObject] = {}
        texts = {} if self._descriptions is None else self._descriptions.of_every_kind()
        for one in resources:
            own |= custom.definitions(one, schema_of(one.extra.get("version", {})), texts)
            paths |= custom.paths(one)
        encoded = msgspec.json.encode([paths, own])
        schemas = dict(sorted({**self._components(encoded), **own}.items()))
        _narrow(schemas, name)
        info = {"title": "Kubernetes", "version": builtin().version} if known else {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
        components = {**({"schemas": schemas} if schemas else {}), **(_BEARER if known else {})}
        return {"openapi": "3.0.0", "info": info, "paths": dict(sorted(paths.items())), "components": components}

    def _components(self, encoded: bytes) -> dict[str, JSONObject]:
        """Return all built-in definitions that a document refers to."""
        result = {name: to_v3(name, builtin().definition(name)) for name in with_references(builtin(), referenced(encoded))}
        if self._descriptions is not None:
            for name, tree in result.items():
                self._descriptions.describe(name, tree)
        return result


def _name(group_version: GroupVersion) -> str:
    return group_version.path.removeprefix("/")


def _narrow(schemas: dict[str, JSONObject], name: str) -> None:
    """Reduce the groups that shared kinds (DeleteOptions) list to the core group and the document's own group, in place.

    In documents of custom resources, these kinds list all groups that upstream's main server registers.
    """
    parts = name.split("/")
    own = {("", "v1"), (parts[-2] if len(parts) == 3 else "", parts[-1])}
    known = name in openapi_paths()
    for schema in schemas.values():
        kinds = schema.get("x-kubernetes-group-version-kind")
        if kinds and len(kinds) > 1:
            schema["x-kubernetes-group-version-kind"] = [
                kind for kind in kinds if ((kind["group"], kind["version"]) in own if known else kind["group"] not in _ELSEWHERE)
            ]


def _described(paths: JSONObject) -> JSONObject:
    """Add the description that OpenAPI requires in every response, in place."""
    for path in paths.values():
        for operation in path.values():
            if isinstance(operation, dict):
                for code, response in operation.get("responses", {}).items():
                    response.setdefault("description", _TEXTS.get(code, "OK"))
    return paths
