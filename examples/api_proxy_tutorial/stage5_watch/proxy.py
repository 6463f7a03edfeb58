"""A proxy whose watches agree with its lists: it knows which pods each client can see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import urlencode

import msgspec

from examples.api_proxy_tutorial.stage2_get.rewrite import rewrite
from examples.api_proxy_tutorial.stage3_list.proxy import ListProxy, rewritten_list
from examples.api_proxy_tutorial.stage4_ghosts.proxy import events_of
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.serving.answer import Reply
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject

Key = tuple[str, str]


class WatchProxy(ListProxy):
    """Turns changes of visibility into events that keep a client's cache right."""

    async def pods(self, request: Request, info: RequestInfo) -> Reply:
        if info.verb != "watch":
            return await super().pods(request, info)
        visible = await self.visible_at_start(request)
        reply = await self.open(request)
        if reply.status == 200:
            reply.chunks = rewritten_events(reply.chunks, visible)
        return reply

    async def visible_at_start(self, request: Request) -> set[Key]:
        """Return the pods that a client can see when its watch begins."""
        version = request.parameter("resourceVersion")
        if version in ("", "0") or request.parameter("sendInitialEvents") == "true":
            return set()  # the watch begins with an ADDED event for each pod
        selectors = {name: request.parameter(name) for name in ("labelSelector", "fieldSelector") if request.parameter(name)}
        query = urlencode({**selectors, "resourceVersion": version, "resourceVersionMatch": "Exact"})
        status, document = await self.fetch(replace(request, query_string=query))
        if status != 200:
            # 410: the version is too old for a list, so the client must list again, too.
            raise api_errors.refusal(status, document.get("reason", ""), document.get("message", ""))
        return {key_of(pod) for pod in rewritten_list(document)["items"]}


async def rewritten_events(chunks: AsyncIterator[bytes], visible: set[Key]) -> AsyncIterator[bytes]:
    """Yield the events of a watch as a client sees them; ``visible`` changes with them."""
    async for event in events_of(chunks):
        seen = rewritten_event(event, visible)
        if seen is not None:
            yield msgspec.json.encode(seen) + b"\n"


def rewritten_event(event: JSONObject, visible: set[Key]) -> JSONObject | None:
    """Return an event as a client sees it that knows the pods in ``visible``, which changes with the event. None: it gets no event."""
    if event["type"] in ("BOOKMARK", "ERROR"):
        return event
    key, seen = key_of(event["object"]), rewrite(event["object"])
    known = key in visible
    if seen is None or event["type"] == "DELETED":
        visible.discard(key)
        # A hidden pod may look like a deleted one only to a client that knows it.
        return {"type": "DELETED", "object": seen or _stump(event["object"])} if known else None
    visible.add(key)
    return {"type": event["type"] if known else "ADDED", "object": seen}


def key_of(pod: JSONObject) -> Key:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _stump(pod: JSONObject) -> JSONObject:
    """Return the part of a hidden pod that a client needs to forget it."""
    metadata = {name: pod["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion")}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"containers": []}}
