"""A scripted API server for one kind, over real sockets, whose faults are one line each. For faults only: it implements no Kubernetes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from kubeloop.client import Client
from kubeloop.config import ClusterConfig
from kubeloop.transport import Transport

JSON = dict[str, Any]
PATH = "/api/v1/configmaps"


def status(code: int, reason: str, message: str = "", causes: list[JSON] | None = None) -> JSON:
    body: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason}
    return body | {"message": message or reason} | ({"details": {"causes": causes}} if causes else {})


def refuse(body: JSON) -> web.Response:
    """A Status as an answer; the time that it names stands in the header too, as Kubernetes does it."""
    seconds = body.get("details", {}).get("retryAfterSeconds")
    return web.json_response(body, status=body["code"], headers={"Retry-After": str(seconds)} if seconds else {})


@dataclass
class Source:
    """Objects by name (all in namespace ``default``), the events so far, and what to do wrong next."""

    objects: dict[str, JSON] = field(default_factory=dict)
    events: list[tuple[int, str, JSON]] = field(default_factory=list)
    version: int = 10
    #: Whether it streams the first state (KEP-3157). Else it refuses to, as a server without.
    streams: bool = False
    #: Answers for the next streams, as below; and the frames of the next stream, replacing the default ones.
    stream_faults: list[JSON | None] = field(default_factory=list)
    stream_frames: list[JSON | bytes] | None = None
    #: What was asked: ("list", "watch", "stream", or "check" for the list of one object that asks whether a version is known; query).
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    #: Answers for the next lists and watches, first come first served; None: behave.
    list_faults: list[JSON | bytes | None] = field(default_factory=list)
    watch_faults: list[JSON | None] = field(default_factory=list)
    #: The server has forgotten events up to this version.
    compacted: int = 0
    #: Lists are answered in pages of this many, also at version 0.
    page: int = 0
    #: Watches take events from here on only; what lies before is hidden from them.
    hidden: set[int] = field(default_factory=set)
    spaced: bool = False
    #: Items of lists carry their kind and apiVersion.
    whole: bool = False
    #: What stands in a body or frame for what Python cannot put there.
    replace: tuple[bytes, bytes] = (b"", b"")
    #: Lists are answered only when this is set.
    lists: asyncio.Event = field(default_factory=asyncio.Event)
    #: Watches get no answer, not even a header.
    silent: bool = False
    #: Watches are closed as soon as they are open, after the frames that were waiting and this one.
    short: JSON | None = None
    _watchers: list[tuple[web.StreamResponse, asyncio.Queue[bytes | None], web.Request]] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self.lists.set()

    # ---------------------------------------------------------------------------------------------------------- the world

    def put(self, name: str, hide: bool = False, **data: str) -> JSON:
        self.version += 1
        new = name not in self.objects
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}-{self.version if new else 0}",
            "resourceVersion": str(self.version),
        }
        if not new:
            metadata["uid"] = self.objects[name]["metadata"]["uid"]
        labels = {key.removeprefix("label_"): value for key, value in data.items() if key.startswith("label_")}
        obj: JSON = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {**metadata, "labels": labels}}
        obj["data"] = {key: value for key, value in data.items() if not key.startswith("label_")}
        self.objects[name] = obj
        self._tell("ADDED" if new else "MODIFIED", obj, hide)
        return obj

    def delete(self, name: str, hide: bool = False) -> None:
        self.version += 1
        obj = self.objects.pop(name)
        self._tell("DELETED", {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}, hide)

    def _tell(self, kind: str, obj: JSON, hide: bool) -> None:
        self.events.append((self.version, kind, obj))
        if hide:
            self.hidden.add(self.version)
        else:
            self.send({"type": kind, "object": obj})

    # -------------------------------------------------------------------------------------------------------------- faults

    def send(self, frame: JSON | bytes) -> None:
        """To all open watches, as it is."""
        for _, queue, _ in self._watchers:
            queue.put_nowait(self._bytes(frame))

    def bookmark(self) -> None:
        metadata = {"resourceVersion": str(self.version), "creationTimestamp": None}
        self.send({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}})

    def error_event(self, error: JSON) -> None:
        self.send({"type": "ERROR", "object": error})

    def close_watches(self) -> None:
        """End them as a server does that has reached its timeout."""
        for _, queue, _ in self._watchers:
            queue.put_nowait(None)

    def reset_watches(self) -> None:
        """Cut the connections."""
        for _, _, request in self._watchers:
            if request.transport is not None:
                request.transport.abort()

    def compact(self) -> None:
        self.compacted = self.version

    @property
    def watches(self) -> int:
        """Open ones."""
        return len(self._watchers)

    def asked(self, kind: str, *fields: str) -> list[Any]:
        """Of each list or watch, in order, these parameters ("" if not sent); one alone is not a tuple."""
        found = [tuple(query.get(name, "") for name in fields) for asked, query in self.requests if asked == kind]
        return [each[0] for each in found] if len(fields) == 1 else found

    # -------------------------------------------------------------------------------------------------------------- HTTP

    def _bytes(self, body: JSON | bytes) -> bytes:
        if isinstance(body, bytes):
            return body
        encoded = msgspec.json.encode(body)
        if self.replace[0]:
            encoded = encoded.replace(*self.replace)
        return (msgspec.json.format(encoded, indent=1).replace(b"\n", b" ") if self.spaced else encoded) + b"\n"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        if query.get("sendInitialEvents") == "true":
            self.requests.append(("stream", query))
            return await self._show(request)
        if query.get("watch") == "true":
            self.requests.append(("watch", query))
            return await self._watch(request, query)
        if (query.get("limit"), query.get("resourceVersionMatch")) == ("1", "NotOlderThan"):
            self.requests.append(("check", query))
            return self._check(int(query["resourceVersion"]))
        self.requests.append(("list", query))
        fault = self.list_faults.pop(0) if self.list_faults else None
        if isinstance(fault, bytes):
            return web.Response(body=fault, content_type="application/json")
        if fault is not None:
            return refuse(fault)
        await self.lists.wait()
        return self._list(query)

    def _check(self, version: int) -> web.Response:
        if version <= self.version:
            return self._list({"limit": "1"})
        too_large = status(504, "Timeout", f"Too large resource version: {version}, current: {self.version}")
        return refuse(too_large)

    def _list(self, query: dict[str, str]) -> web.Response:
        items = sorted(self.objects.items())
        start = int(query.get("continue", "0"))
        limit = int(query.get("limit", "0"))
        size = min(limit or len(items) or 1, self.page or len(items) or 1)
        metadata: JSON = {"resourceVersion": str(self.version)}
        if start + size < len(items):
            metadata["continue"] = str(start + size)
        dropped = () if self.whole else ("kind", "apiVersion")
        bare = [{key: value for key, value in obj.items() if key not in dropped} for _, obj in items[start : start + size]]
        body = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": bare}
        return web.Response(body=self._bytes(body), content_type="application/json")

    async def _watch(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        if self.silent:
            await asyncio.Event().wait()
        fault = self.watch_faults.pop(0) if self.watch_faults else None
        since = int(query.get("resourceVersion", "0"))
        if fault is None and since < self.compacted:
            fault = status(410, "Expired", f"too old resource version: {since}")
        if fault is not None:
            return refuse(fault)
        frames: list[JSON | bytes | None] = []
        for version, kind, obj in self.events:
            if version > since and version not in self.hidden:
                frames.append({"type": kind, "object": obj})
        if self.short is not None:
            frames += [self.short, None]
        return await self._send(request, frames)

    async def _show(self, request: web.Request) -> web.StreamResponse:
        invalid = status(
            422, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature is on"
        )
        fault = self.stream_faults.pop(0) if self.stream_faults else None if self.streams else invalid
        if fault is not None:
            return refuse(fault)
        if self.stream_frames is not None:
            frames, self.stream_frames = self.stream_frames, None
            return await self._send(request, [*frames])
        shown: list[JSON | bytes | None] = [{"type": "ADDED", "object": obj} for _, obj in sorted(self.objects.items())]
        return await self._send(request, [*shown, self.end()])

    def end(self, value: str = "true", version: str = "") -> JSON:
        """The bookmark that ends the initial events."""
        metadata = {"resourceVersion": version or str(self.version), "annotations": {"k8s.io/initial-events-end": value}}
        return {"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}}

    async def _send(self, request: web.Request, frames: list[JSON | bytes | None]) -> web.StreamResponse:
        """These frames, and then what happens. None ends it."""
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for each in frames:
            queue.put_nowait(None if each is None else self._bytes(each))
        watcher = (answer, queue, request)
        self._watchers.append(watcher)
        try:
            while (frame := await queue.get()) is not None:
                await answer.write(frame)
        except ConnectionError:
            pass
        finally:
            self._watchers.remove(watcher)
        return answer

    def client(self) -> Client:
        return Client(Transport(ClusterConfig(server=self.url, name="test")))


async def serve(source: Source, port: int = 0) -> web.AppRunner:
    """Serve ``source`` on loopback; the caller cleans the runner up."""
    app = web.Application()
    app.router.add_get(PATH, source.handle)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
    await site.start()
    host, number = runner.addresses[0][:2]
    source.url = f"http://{host}:{number}"
    return runner


async def until(condition: Any, description: str = "") -> None:
    """Let real I/O happen until ``condition()``; fail after five seconds."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)
