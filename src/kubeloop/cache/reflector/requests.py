"""Requests: the lists and watches of one kind and scope, as they stand in the URL. Nothing is sent until one is entered."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, cast

import msgspec

from kubeloop.cache.reflector.event_decoder import EventDecoder
from kubeloop.cache.reflector.stall_detection import Watchdog
from kubeloop.cache.scope import Scope
from kubeloop.client import Client, ListOptions, WatchOptions
from kubeloop.client.options import Match
from kubeloop.codec.list_pages import ListSplitter
from kubeloop.codec.projection import Projected, Projection
from kubeloop.meta import ConfigError, DecodeError
from kubeloop.meta.object_meta import ListMeta
from kubeloop.timing import Clock
from kubeloop.transport import Stream

#: A list from which nothing comes for so long, in seconds, is given up; so is a stream that has not shown everything yet.
SILENCE = 60.0


Take = Callable[[Projected, memoryview | bytes], None]
"""Uses an item; the bytes are the page's own, copy what stays."""


async def read_page(
    request: AbstractAsyncContextManager[Stream], intake: EventDecoder, projection: Projection, take: Take, clock: Clock
) -> ListMeta:
    """Hand over the page's items as they come; returns the list's metadata.

    Raises:
        ApiError, TransportError: refused, or broken. WatchStalled: for a minute nothing came. DecodeError: the answer is no list.
    """
    splitter = ListSplitter(intake.item_reader(projection))
    watchdog = Watchdog(clock, lambda: SILENCE, lambda: f"nothing came from the server for {SILENCE:g} s; the request was given up")
    try:
        async with watchdog.attend(), request as stream, aclosing(cast("AsyncGenerator[bytes]", stream.chunks())) as chunks:
            async for chunk in chunks:
                watchdog.heard()
                for (projected, document), _ in splitter.feed(chunk):
                    if projected is not None:
                        take(projected, document)
        items, metadata, kind = splitter.finish()
    except (UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"a list answer cannot be read: {error}") from None
    # A Table, which is a server's list for people, holds no objects. Behaviour A11.
    if kind and not kind.endswith("List"):
        raise DecodeError(f"asked for a list, the server answered with a {kind}")
    for (projected, document), _ in items:
        if projected is not None:
            take(projected, document)
    return metadata


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
            self._lists,
            limit=limit,
            resource_version=None if token or not version else version,
            continue_token=token,
            resource_version_match=match,
        )
        return await self._get(options, self._scope.keep.accept_list)

    async def watch(self, version: str, seconds: int, *, initial: bool) -> Request:
        """From ``version`` on; ``initial``: the state at it, or at a later one, first."""
        options = WatchOptions(
            label_selector=self._lists.label_selector,
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
