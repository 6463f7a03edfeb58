"""OpenAPI documents, versions 2 and 3, of all resources of the server.

The modules that create them are imported with the first request: many servers never get such a request, and start faster without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from kubeloop.apiserver.aggregation.api_services import ApiServiceTable
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.timing import Clock

if TYPE_CHECKING:
    from kubeloop.apiserver.openapi.handler import OpenAPIHandler


class OpenAPI:
    """The handler of ``/openapi/v2`` and ``/openapi/v3``. The documents follow the registry.

    ``table`` has the documents of extension servers, which are included.

    ``descriptions`` are the descriptions of built-in kinds. None: kubeloop's own short descriptions are used.
    """

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        table: ApiServiceTable | None = None,
        descriptions: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Create the handler; documents are created with the first request.

        Args:
            registry: The served resources.
            clock: The clock for Last-Modified and Expires.
            table: APIServices and the documents of their servers; None for none.
            descriptions: Texts of built-in kinds by definition and field; None uses kubeloop's own short texts.
        """
        self._registry = registry
        self._table = table or ApiServiceTable()
        self._clock = clock
        self._descriptions = descriptions

    def answer(self, request: Request) -> Answer | None:
        """Return the response, or None if the path is not an OpenAPI document."""
        return self._handler.answer(request) if request.path.startswith("/openapi/") else None

    @cached_property
    def _handler(self) -> OpenAPIHandler:
        from kubeloop.apiserver.openapi.handler import OpenAPIHandler
        from kubeloop.schema.descriptions import Descriptions

        return OpenAPIHandler(self._registry, self._clock, self._table, Descriptions(self._descriptions))
