"""Documents of extension servers: discovery, and OpenAPI in both versions.

Source: kube-aggregator pkg/apiserver/handler_discovery.go, pkg/controllers/openapi{,v3}/aggregator; KEP-3352 (aggregated discovery).
"""

from __future__ import annotations

import json
import logging
from typing import Final

from kubeloop.apiserver.aggregation.api_services import ApiServiceTable, Availability, RegisteredService
from kubeloop.apiserver.aggregation.backend import OPENAPI_READER, PROBER, READER, Backends, ExtensionServerUnreachable
from kubeloop.apiserver.outbound.failure import CallFailed
from kubeloop.http1.headers import Headers
from kubeloop.meta.kinds import GroupVersion
from kubeloop.types import JSONObject

# Conversion of legacy discovery (APIResourceList) to aggregated discovery. Source: k8s.io/apiserver pkg/endpoints/installer.go.


def convert_legacy_list(tree: JSONObject, version: str) -> JSONObject:
    """Convert an APIResourceList to an APIVersionDiscovery.

    Raises:
        KeyError, TypeError: A resource has no name, or ``tree`` is no list.
        ValueError: A subresource and its resource have different scopes.
    """
    resources: dict[str, JSONObject] = {}
    for one in tree["resources"]:
        if "/" not in one["name"]:
            resources[one["name"]] = _legacy_resource(one)
    for one in tree["resources"]:
        name, slash, sub = one["name"].partition("/")
        if not slash:
            continue
        parent = resources.setdefault(
            name, {"resource": name, "responseKind": _legacy_kind({}), "scope": _scope(one), "singularResource": "", "verbs": []}
        )
        if parent["scope"] != _scope(one):
            raise ValueError(f"the scopes of {name} and its subresource {sub} do not match")
        document = {"subresource": sub, "responseKind": _legacy_kind(one), "verbs": list(one.get("verbs") or ())}
        parent.setdefault("subresources", []).append(document)
    return {"version": version, **({"resources": list(resources.values())} if resources else {})}


def _legacy_resource(resource: JSONObject) -> JSONObject:
    document: JSONObject = {
        "resource": resource["name"],
        "responseKind": _legacy_kind(resource),
        "scope": _scope(resource),
        "singularResource": resource.get("singularName", ""),
        "verbs": list(resource.get("verbs") or ()),
    }
    for name in ("shortNames", "categories"):
        if resource.get(name):
            document[name] = list(resource[name])
    return document


def _legacy_kind(resource: JSONObject) -> JSONObject:
    named = bool(resource.get("kind"))
    return {
        "group": resource.get("group", "") if named else "",
        "version": resource.get("version", "") if named else "",
        "kind": resource.get("kind", ""),
    }


def _scope(resource: JSONObject) -> str:
    return "Namespaced" if resource.get("namespaced") else "Cluster"


_LOG = logging.getLogger("kubeloop.apiserver.aggregation")


_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_ACCEPT: Final = ",".join(_AGGREGATED.format(version) for version in ("v2", "v2beta1"))
_JSON: Final = ("Accept", "application/json")
_PLAIN: Final = ("Accept-Encoding", "identity")


class _DocumentError(Exception):
    """A document is missing or malformed."""


class DocumentFetcher:
    """Stores the documents of extension servers in the table."""

    def __init__(self, table: ApiServiceTable, backends: Backends) -> None:
        self._table = table
        self._backends = backends

    async def read(self, service: RegisteredService, availability: Availability) -> bool:
        """Read the documents of a service. Return False if discovery cannot be read, which is marked as stale in the table then."""
        version: JSONObject = {"version": service.version, "freshness": "Stale"}
        if availability.passed:
            try:
                version = {**await self._version(service), "freshness": "Current"}
            except (_DocumentError, CallFailed, ExtensionServerUnreachable) as error:
                _LOG.warning("discovery of APIService %s: %s", service.name, error)
        if self._table.discovered.get(service.name) != version:
            self._table.discovered[service.name] = version
            self._table.changed()
        current = bool(version["freshness"] == "Current")
        if current:
            await self._read_openapi(service)
        return current

    async def _version(self, service: RegisteredService) -> JSONObject:
        """Return the APIVersionDiscovery of a service, from aggregated discovery or else from the legacy list."""
        status, headers, body = await self._backends.get(service, "/apis", PROBER, [("Accept", _ACCEPT), _PLAIN])
        if status == 503:
            raise _DocumentError(f"service {service.server_name} returned non-success response code: {status}")
        if status == 200 and _is_aggregated(headers):
            return _found(_tree(body), GroupVersion(service.group, service.version))
        status, _, body = await self._backends.get(service, service.document, READER, [_JSON, _PLAIN])
        if status != 200:
            raise _DocumentError(f"failed to download legacy discovery for {service.document}: {status}")
        try:
            return convert_legacy_list(_tree(body), service.version)
        except (KeyError, TypeError, ValueError) as error:
            raise _DocumentError(f"legacy discovery at {service.document}: {error}") from None

    async def _read_openapi(self, service: RegisteredService) -> None:
        """Read the OpenAPI documents. Missing documents are not an error."""
        entry = swagger = None
        try:
            index = await self._json(service, "/openapi/v3")
            entry = (index.get("paths") or {}).get(service.path.removeprefix("/"))
            swagger = await self._json(service, "/openapi/v2")
        except (_DocumentError, CallFailed, ExtensionServerUnreachable, AttributeError) as error:
            _LOG.info("OpenAPI of APIService %s: %s", service.name, error)
        for stored, result in ((self._table.openapi, entry), (self._table.swagger, swagger)):
            before = stored.get(service.name)
            if isinstance(result, dict):
                stored[service.name] = result
            else:
                stored.pop(service.name, None)
            if stored.get(service.name) != before:
                self._table.changed()

    async def _json(self, service: RegisteredService, path: str) -> JSONObject:
        status, _, body = await self._backends.get(service, path, OPENAPI_READER, [_JSON, _PLAIN])
        if status != 200:
            raise _DocumentError(f"{path} is answered with {status}")
        return _tree(body)


def _is_aggregated(headers: Headers) -> bool:
    kind = headers.get("Content-Type", "").replace(" ", "")
    return "as=APIGroupDiscoveryList" in kind and "g=apidiscovery.k8s.io" in kind


def _tree(body: bytes) -> JSONObject:
    """Parse a JSON object. Raises _DocumentError."""
    try:
        result = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _DocumentError(f"no JSON: {error}") from None
    if not isinstance(result, dict):
        raise _DocumentError("no JSON object")
    return result


def _found(tree: JSONObject, desired: GroupVersion) -> JSONObject:
    """Return the APIVersionDiscovery of a version in an APIGroupDiscoveryList. It has no resources if the list lacks the version.

    Raises:
        _DocumentError: The list is malformed.
    """
    try:
        for group in tree.get("items") or ():
            if (group.get("metadata") or {}).get("name", "") != desired.group:
                continue
            for version in group.get("versions") or ():
                if version.get("version") == desired.version:
                    return _checked(version)
    except (AttributeError, TypeError, KeyError) as error:
        raise _DocumentError(f"an APIGroupDiscoveryList of another form: {error}") from None
    return {"version": desired.version}


def _checked(version: JSONObject) -> JSONObject:
    """Return an APIVersionDiscovery with known fields only, in the types that clients expect."""
    resources = [_resource(one) for one in version.get("resources") or ()]
    return {"version": str(version["version"]), **({"resources": resources} if resources else {})}


def _resource(resource: JSONObject) -> JSONObject:
    document: JSONObject = {
        "resource": str(resource["resource"]),
        "responseKind": _kind(resource),
        "scope": str(resource.get("scope", "")),
        "singularResource": str(resource.get("singularResource", "")),
        "verbs": _texts(resource, "verbs"),
    }
    for name in ("shortNames", "categories"):
        if resource.get(name):
            document[name] = _texts(resource, name)
    subresources = [
        {"subresource": str(sub["subresource"]), "responseKind": _kind(sub), "verbs": _texts(sub, "verbs")}
        for sub in resource.get("subresources") or ()
    ]
    if subresources:
        document["subresources"] = subresources
    return document


def _kind(resource: JSONObject) -> JSONObject:
    """Return ``responseKind`` with all fields, because old clients fail without them."""
    kind = resource.get("responseKind") or {}
    return {name: str(kind.get(name, "")) for name in ("group", "version", "kind")}


def _texts(resource: JSONObject, name: str) -> list[str]:
    return [str(text) for text in resource.get(name) or ()]
