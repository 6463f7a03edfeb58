"""Answers below /api and /apis that are discovery: which groups, versions and resources there are.

Documents are kept, encoded, until the registry changes. Source: Kubernetes documentation "Discovery API", KEP-3352 (ETag, negotiation).
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from kubeloop.apiserver import refusals
from kubeloop.apiserver.discovery import documents
from kubeloop.apiserver.negotiation import negotiate
from kubeloop.apiserver.registry import Registry
from kubeloop.meta.kinds import GroupVersion
from kubeloop.schema import builtin
from kubeloop.serving.answer import Answer
from kubeloop.serving.negotiation import parse_accept
from kubeloop.serving.request import Request

JSONObject = dict[str, Any]

#: Paths of other handlers that ``/`` names.
_OTHERS: Final = ("/healthz", "/healthz/ping", "/livez", "/livez/ping", "/openapi/v2", "/openapi/v3", "/readyz", "/readyz/ping", "/version")
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Discovery:
    """``/``, ``/api``, ``/apis`` and what is below them, down to group and version; always as the registry is now.

    ``server_address`` (``host:port``) is what ``/api`` tells clients.
    """

    def __init__(self, registry: Registry, server_address: str) -> None:
        self._registry = registry
        self._server_address = server_address
        self._revision = -1
        self._kept: dict[str, tuple[bytes, str]] = {}

    def answer(self, request: Request) -> Answer | None:
        """None when the path is no discovery document (and no version of a built-in group, which is refused here).

        Raises:
            NotFound, MethodNotAllowed, NotAcceptable
        """
        parts = request.path.strip("/").split("/")
        known = self._is_known(parts)
        if known is None:
            return None
        if request.method not in ("GET", "HEAD"):
            raise refusals.method_not_allowed()
        if not known:
            raise refusals.no_such_resource()
        if parts[0] and len(parts) == 1 and _wants_aggregated(request.header("accept")):
            return self._aggregated(request, core=parts[0] == "api")
        negotiate(request.header("accept"))
        return Answer(object=self._legacy(parts))

    def _is_known(self, parts: list[str]) -> bool | None:
        match parts:
            case [""] | ["api"] | ["apis"]:
                return True
            case ["api", version]:
                return version == "v1"
            case ["apis", group] if group:
                return True if self._is_served(group) else None
            case ["apis", group, version]:
                if self._is_served(group) and version in documents.versions_in_order(self._registry, group):
                    return True
                # Upstream's built-in groups answer with a Status, all others with the plain page for unknown paths.
                return False if any(info.name == group for info in builtin().groups()) else None
            case _:
                return None

    def _is_served(self, group: str) -> bool:
        return bool(group) and bool(documents.versions_in_order(self._registry, group))

    def _legacy(self, parts: list[str]) -> JSONObject:
        match parts:
            case [""]:
                return documents.root_paths(self._registry, _OTHERS)
            case ["api"]:
                return documents.api_versions(self._server_address)
            case ["apis"]:
                return documents.api_group_list(self._registry)
            case ["api", version]:
                return documents.api_resource_list(self._registry, GroupVersion("", version))
            case ["apis", group]:
                return documents.api_group(self._registry, group)
            case _:
                return documents.api_resource_list(self._registry, GroupVersion(parts[1], parts[2]))

    def _aggregated(self, request: Request, *, core: bool) -> Answer:
        body, tag = self._encoded("api" if core else "apis", core=core)
        headers = [("ETag", tag), ("Cache-Control", "public"), ("Vary", "Accept")]
        if tag in [one.strip().removeprefix("W/") for one in request.header("if-none-match").split(",")]:
            return Answer(304, body=b"", content_type=_AGGREGATED, headers=headers)
        return Answer(body=body, content_type=_AGGREGATED, headers=headers)

    def _encoded(self, name: str, *, core: bool) -> tuple[bytes, str]:
        if self._revision != self._registry.revision:
            self._kept.clear()
            self._revision = self._registry.revision
        if name not in self._kept:
            body = msgspec.json.encode(documents.aggregated(self._registry, core=core))
            self._kept[name] = (body, f'"{hashlib.sha512(body).hexdigest().upper()}"')
        return self._kept[name]


def _wants_aggregated(accept: str) -> bool:
    """Whether the first clause that can be served at all asks for the aggregated form."""
    for clause in parse_accept(accept):
        if clause.media_type not in ("application/json", "application/yaml", "*/*"):
            continue
        if clause.parameter("as") == "APIGroupDiscoveryList":
            if clause.parameter("g") == "apidiscovery.k8s.io" and clause.parameter("v") == "v2" and clause.media_type == "application/json":
                return True
            continue
        return False
    return False
