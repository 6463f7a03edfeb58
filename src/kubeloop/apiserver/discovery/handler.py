"""The handler of discovery requests for ``/``, ``/api`` and ``/apis``.

Encoded documents are cached until the registry changes. Source: Kubernetes documentation "Discovery API", KEP-3352 (ETag, negotiation).
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from kubeloop.apiserver.aggregation.api_services import ApiServiceTable
from kubeloop.apiserver.discovery import documents
from kubeloop.apiserver.discovery.documents import Order
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.negotiation import MEDIA_TYPES, PROTOBUF, YAML, check_route, negotiate_plain
from kubeloop.endpoints.responses import indented
from kubeloop.meta.kinds import GroupVersion
from kubeloop.schema import builtin
from kubeloop.serving.answer import Answer
from kubeloop.serving.negotiation import parse_accept
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject

#: Paths of other handlers in the document of ``/``.
_OTHERS: Final = ("/healthz", "/healthz/ping", "/livez", "/livez/ping", "/openapi/v2", "/openapi/v3", "/readyz", "/readyz/ping", "/version")
_AGGREGATED: Final = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Discovery:
    """Serves ``/``, ``/api``, ``/apis`` and paths below, down to group and version, from the current registry.

    ``server_address`` (``host:port``) is in the document of ``/api``; ``table`` has the documents of extension servers.
    """

    def __init__(self, registry: Registry, server_address: str, table: ApiServiceTable | None = None) -> None:
        self._registry = registry
        self._order = Order(registry, table)
        self._server_address = server_address
        self._revision = (-1, -1)
        self._kept: dict[tuple[str, str], tuple[bytes, str]] = {}

    def answer(self, request: Request) -> Answer | None:
        """Return a discovery document, or None if the path has none. An unknown version of a built-in group is rejected here.

        Raises:
            NotFound: The version of a built-in group is unknown.
            MethodNotAllowed: The path allows only GET.
            NotAcceptable: The client does not accept the media types of the document.
        """
        parts = request.path.strip("/").split("/")
        known = self._is_known(parts)
        if known is None:
            return None
        if not known:
            raise api_errors.no_such_resource()
        accept = request.header("accept")
        if self._is_routed(parts):
            if request.method != "GET":
                raise api_errors.method_not_allowed()
            check_route(accept, MEDIA_TYPES)
        if not parts[0]:
            return indented(documents.root_paths(self._order, _OTHERS))
        if len(parts) == 1:
            media_type = _aggregated_form(accept)
            if media_type:
                return self._aggregated(request, media_type, core=parts[0] == "api")
        return Answer(object=self._legacy(parts), content_type=negotiate_plain(accept).media_type)

    @staticmethod
    def _is_routed(parts: list[str]) -> bool:
        """Return whether upstream's router restricts the path to GET. Other documents are served for any method."""
        match parts:
            case ["api", *_]:
                return True
            case ["apis", group, _]:
                return any(info.name == group for info in builtin().groups())
            case _:
                return False

    def _is_known(self, parts: list[str]) -> bool | None:
        match parts:
            case [""] | ["api"] | ["apis"]:
                return True
            case ["api", version]:
                return version == "v1"
            case ["apis", group] if group:
                return True if self._is_served(group) else None
            case ["apis", group, version]:
                if self._registry.resources(GroupVersion(group, version)):
                    return True
                # Upstream answers with a Status for built-in groups, with the plain page for unknown paths for all others.
                return False if any(info.name == group for info in builtin().groups()) else None
            case _:
                return None

    def _is_served(self, group: str) -> bool:
        return bool(group) and bool(self._order.versions(group))

    def _legacy(self, parts: list[str]) -> JSONObject:
        match parts:
            case ["api"]:
                return documents.api_versions(self._server_address)
            case ["apis"]:
                return documents.api_group_list(self._order)
            case ["api", version]:
                return documents.api_resource_list(self._registry, GroupVersion("", version))
            case ["apis", group]:
                return documents.api_group(self._order, group)
            case _:
                return documents.api_resource_list(self._registry, GroupVersion(parts[1], parts[2]))

    def _aggregated(self, request: Request, media_type: str, *, core: bool) -> Answer:
        body, tag = self._encoded("api" if core else "apis", media_type, core=core)
        content_type = f"{media_type};{_AGGREGATED}"
        headers = [("ETag", tag), ("Cache-Control", "public"), ("Vary", "Accept")]
        if tag in [one.strip().removeprefix("W/") for one in request.header("if-none-match").split(",")]:
            return Answer(304, body=b"", content_type=content_type, headers=headers)
        return Answer(body=body, content_type=content_type, headers=headers)

    def _encoded(self, name: str, media_type: str, *, core: bool) -> tuple[bytes, str]:
        revision = (self._registry.revision, self._order.table.revision)
        if self._revision != revision:
            self._kept.clear()
            self._revision = revision
        if (name, media_type) not in self._kept:
            tree = documents.aggregated(self._registry, self._order, core=core)
            body = msgspec.json.encode(tree)
            tag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
            if media_type == PROTOBUF:
                from kubeloop.apiserver.discovery.documents import encode_discovery

                body = encode_discovery(tree)
            elif media_type == YAML:
                from kubeloop.endpoints.yaml_body import dump_yaml

                body = dump_yaml(tree)
            self._kept[name, media_type] = body, tag  # all forms of a document have the same ETag
        return self._kept[name, media_type]


def _aggregated_form(accept: str) -> str:
    """Return the first media type in the header that requests the aggregated document, or "" if there is none.

    Such a media type counts even if it comes after media types of plain documents.
    """
    for clause in parse_accept(accept):
        requested = (clause.parameter("as"), clause.parameter("g"), clause.parameter("v"))
        if requested == ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"):
            result = next((media_type for media_type in MEDIA_TYPES if clause.accepts(media_type)), "")
            if result:
                return result
    return ""
