"""List request: reads one page of a list while it arrives."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import cast

from kubeloop.cache.reflector.intake import Intake
from kubeloop.cache.reflector.silence import Watchdog
from kubeloop.codec.list_pages import ListSplitter
from kubeloop.codec.projection import Projected, Projection
from kubeloop.meta import DecodeError
from kubeloop.meta.object_meta import ListMeta
from kubeloop.timing import Clock
from kubeloop.transport import Stream

#: A list from which nothing comes for so long, in seconds, is given up; so is a stream that has not shown everything yet.
SILENCE = 60.0


Take = Callable[[Projected, memoryview | bytes], None]
"""Uses an item; the bytes are the page's own, copy what stays."""


async def read_page(
    request: AbstractAsyncContextManager[Stream], intake: Intake, projection: Projection, take: Take, clock: Clock
) -> ListMeta:
    """Hand over the page's items as they come; returns the list's metadata.

    Raises:
        ApiError, TransportError: refused, or broken. WentSilent: for a minute nothing came. DecodeError: the answer is no list.
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
