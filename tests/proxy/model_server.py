"""An API server for pods of one namespace, without sockets: lists at any version, pages, watches, history that is compacted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote

from kubeloop.meta.errors import TransportError
from kubeloop.meta.selectors import Selector, parse_label_selector
from kubeloop.transport.round_tripper import OutgoingRequest
from kubeloop.types import JSONObject
from tests.proxy.samples import PODS, ScriptedAnswer, frame, list_of


@dataclass(frozen=True)
class Change:
    """A change of one object. ``before`` and ``after`` are its states; None: it did not exist."""

    version: int
    before: JSONObject | None
    after: JSONObject | None

    def event(self, selector: Selector) -> bytes | None:
        """Return the event for a watch with a selector."""
        was, now = _selects(selector, self.before), _selects(selector, self.after)
        if now:
            assert self.after is not None
            return frame("MODIFIED" if was else "ADDED", self.after)
        if not was:
            return None
        last = self.after or self.before
        assert last is not None
        return frame("DELETED", last | {"metadata": last["metadata"] | {"resourceVersion": str(self.version)}})


def _selects(selector: Selector, tree: JSONObject | None) -> bool:
    return tree is not None and selector.matches(tree["metadata"].get("labels") or {})


class ModelWatch(ScriptedAnswer):
    """A watch of the model server, which waits for changes."""

    def __init__(self, server: ModelServer, version: int, selector: Selector, first: list[bytes]) -> None:
        super().__init__()
        self._server = server
        self._version = version
        self._selector = selector
        self._first = first
        self._broken = False
        server.watches.append(self)

    @property
    def has_more(self) -> bool:
        return self.closed or self._broken or bool(self._first) or self._version < self._server.version

    async def chunk(self, read_timeout: float | None = None) -> bytes:
        del read_timeout
        while True:
            if self.closed or self._broken:
                self._server.watches.remove(self)
                raise TransportError("the watch is closed")
            if self._first:
                first, self._first = b"".join(self._first), []
                return first
            changes = [change for change in self._server.history if change.version > self._version]
            self._version = self._server.version
            if events := [event for change in changes if (event := change.event(self._selector)) is not None]:
                return b"".join(events)
            async with self._server.changed:
                await self._server.changed.wait_for(lambda: self.has_more)

    def close(self) -> None:
        self.closed = True

    def cut(self) -> None:
        self._broken = True


class ModelServer:
    """The server: call it with a request, as the script of a ``ScriptedUpstream``."""

    def __init__(self) -> None:
        self.version = 1
        self.history: list[Change] = []
        self.oldest = 0
        self.watches: list[ModelWatch] = []
        self.changed = asyncio.Condition()

    @property
    def objects(self) -> dict[str, JSONObject]:
        return self.at(self.version)

    def at(self, version: int) -> dict[str, JSONObject]:
        """Return the objects at a version by name."""
        found: dict[str, JSONObject] = {}
        for change in self.history:
            if change.version > version:
                break
            name = (change.after or change.before or {})["metadata"]["name"]
            if change.after is None:
                del found[name]
            else:
                found[name] = change.after
        return found

    async def write(self, name: str, tree: JSONObject | None) -> None:
        """Create, change or delete an object. A deletion of a missing one does nothing."""
        before = self.objects.get(name)
        if before is None and tree is None:
            return
        self.version += 1
        after = tree and tree | {"metadata": tree["metadata"] | {"resourceVersion": str(self.version)}}
        self.history.append(Change(self.version, before, after))
        await self.wake()

    def compact(self) -> None:
        """Forget the history: older versions are answered with 410."""
        self.oldest = self.version

    async def wake(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def cut(self) -> None:
        """Break all watches off."""
        for watch in self.watches:
            watch.cut()
        await self.wake()

    @property
    def is_idle(self) -> bool:
        return bool(self.watches) and not any(watch.has_more for watch in self.watches)

    def __call__(self, request: OutgoingRequest) -> Any:
        path, _, text = request.target.partition("?")
        query = {name: values[0] for name, values in parse_qs(text).items()}
        if request.method == "GET" and path == PODS:
            return self._watch(query) if query.get("watch") else self._list(query)
        name = unquote(path.removeprefix(PODS + "/"))
        return self._single(request, name)

    def _list(self, query: dict[str, str]) -> ScriptedAnswer:
        version, after = self.version, ""
        if token := query.get("continue"):
            at, after = json.loads(token)
            version = int(at)
        elif query.get("resourceVersionMatch") == "Exact":
            version = int(query["resourceVersion"])
        if version < self.oldest:
            return gone()
        selector = parse_label_selector(query.get("labelSelector", ""))
        found = [tree for name, tree in sorted(self.at(version).items()) if name > after and _selects(selector, tree)]
        limit = int(query.get("limit", 0)) or len(found)
        rest: dict[str, Any] = {}
        if len(found) > limit:
            rest = {"continue": json.dumps([version, found[limit - 1]["metadata"]["name"]]), "remainingItemCount": len(found) - limit}
        body = list_of(*found[:limit], version=str(version), **rest)
        return ScriptedAnswer(chunks=[body[at : at + 50] for at in range(0, len(body), 50)])

    def _watch(self, query: dict[str, str]) -> ScriptedAnswer:
        selector = parse_label_selector(query.get("labelSelector", ""))
        text = query.get("resourceVersion", "")
        first: list[bytes] = []
        version = self.version
        if query.get("sendInitialEvents") == "true" or text in ("", "0"):
            first = [frame("ADDED", tree) for tree in self.objects.values() if _selects(selector, tree)]
        else:
            version = int(text)
            if version < self.oldest:
                return gone()
        if query.get("sendInitialEvents") == "true":
            metadata = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
            first.append(frame("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}))
        return ModelWatch(self, version, selector, first)

    def _single(self, request: OutgoingRequest, name: str) -> Any:
        tree = self.objects.get(name)
        if tree is None:
            body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404}
            return ScriptedAnswer(404, [json.dumps(body).encode()])
        if request.method == "GET":
            return ScriptedAnswer(chunks=[json.dumps(tree).encode()])
        assert request.method in ("PUT", "PATCH", "DELETE", "POST")
        written = json.loads(request.body) if request.method == "PUT" and request.body else None
        return self._written(name, written or tree)

    async def _written(self, name: str, tree: JSONObject) -> ScriptedAnswer:
        await self.write(name, tree)
        return ScriptedAnswer(chunks=[json.dumps(self.objects[name]).encode()])


def gone() -> ScriptedAnswer:
    body = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","message":"too old","code":410}'
    return ScriptedAnswer(410, [body])
