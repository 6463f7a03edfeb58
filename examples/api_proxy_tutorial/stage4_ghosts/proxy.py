"""A proxy that rewrites each event of a watch on its own, which is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from examples.api_proxy_tutorial.stage2_get.rewrite import rewrite
from examples.api_proxy_tutorial.stage3_list.proxy import ListProxy
from kubeloop.codec.frames import FrameSplitter
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.serving.answer import Reply
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject


class NaiveWatchProxy(ListProxy):
    """Drops the events of hidden pods."""

    async def pods(self, request: Request, info: RequestInfo) -> Reply:
        if info.verb != "watch":
            return await super().pods(request, info)
        reply = await self.open(request)
        if reply.status == 200:
            reply.chunks = self.events(reply.chunks)
        return reply

    async def events(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for event in events_of(chunks):
            seen = self.event(event)
            if seen is not None:
                yield msgspec.json.encode(seen) + b"\n"

    def event(self, event: JSONObject) -> JSONObject | None:
        """Return an event as clients see it, or None to drop it."""
        if event["type"] in ("BOOKMARK", "ERROR"):
            return event
        seen = rewrite(event["object"])
        return None if seen is None else {**event, "object": seen}


async def events_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[JSONObject]:
    """Yield the events of a watch. A chunk has any number of events, and may end within one."""
    splitter = FrameSplitter()
    async for chunk in chunks:
        for frame in splitter.feed(chunk):
            yield msgspec.json.decode(frame)
