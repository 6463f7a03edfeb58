"""OpenAPI documents, versions 2 and 3, of everything that the server serves.

What makes them is imported when the first is asked for: many servers are never asked, and all are to start fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from kubeloop.apiserver.aggregation.api_services import Table
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.timing import Clock

if TYPE_CHECKING:
    from kubeloop.apiserver.openapi.handler import Handler


class OpenAPI:
    """``/openapi/v2`` and ``/openapi/v3``; always as the registry is now, and ``table``, which holds what other servers serve.

    ``descriptions`` are the texts of built-in kinds; None: our own short ones.
    """

    def __init__(
        self, registry: Registry, clock: Clock, table: Table | None = None, descriptions: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self._registry = registry
        self._table = table or Table()
        self._clock = clock
        self._descriptions = descriptions

    def answer(self, request: Request) -> Answer | None:
        """None when the path is no OpenAPI document."""
        return self._handler.answer(request) if request.path.startswith("/openapi/") else None

    @cached_property
    def _handler(self) -> Handler:
        from kubeloop.apiserver.openapi.handler import Handler
        from kubeloop.schema.descriptions import Descriptions

        return Handler(self._registry, self._clock, self._table, Descriptions(self._descriptions))
