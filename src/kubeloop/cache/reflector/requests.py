"""Requests: the lists and watches of one kind and scope, as they stand in the URL. Nothing is sent until one is entered."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from kubeloop.cache.scope import Scope
from kubeloop.client import Client, ListOptions, WatchOptions
from kubeloop.client.options import Match
from kubeloop.meta import ConfigError
from kubeloop.transport import Stream

Request = AbstractAsyncContextManager[Stream]


class Requests:
    """Where the path is not known yet, the server is asked for it first.

    Raises
        ApiError, TransportError, UnknownKind: there is no path. ConfigError: the kind does not fit the namespace.
    """

    def __init__(self, client: Client, scope: Scope[Any], namespace: str | None) -> None:
        """Of a scope's namespaces it takes one, None for all that there are."""
        self._client = client
        self._scope = scope
        self._namespace = namespace
        self._lists = scope.list_options

    async def page(self, version: str, limit: int, token: str = "", match: Match | None = None) -> Request:
        """``version`` "": the newest. A token carries its own."""
        options = msgspec.structs.replace(
            self._lists, limit=limit, resource_version=None if token or not version else version, continue_token=token, match=match
        )
        return await self._get(options, self._scope.keep.accept_list)

    async def watch(self, version: str, seconds: int, *, initial: bool) -> Request:
        """From ``version`` on; ``initial``: the state at it, or at a later one, first."""
        options = WatchOptions(
            labels=self._lists.labels,
            field_selector=self._lists.field_selector,
            resource_version=version or None,
            timeout_seconds=seconds,
            send_initial_events=initial,
        )
        return await self._get(options, self._scope.keep.accept)

    async def _get(self, options: ListOptions | WatchOptions, accept: str) -> Request:
        # Not repeated below: what a refusal means, and how long to wait, the reflector decides, and says so at once.
        return self._client.transport.stream("GET", await self._path(), query=options.query(), accept=accept, retry=False)

    async def _path(self) -> str:
        mapping = await self._client.mapping(self._scope.kind)
        try:
            return mapping.path(self._namespace)
        except ValueError as error:
            raise ConfigError(str(error)) from None
