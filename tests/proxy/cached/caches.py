"""A cache whose list and watch are the test itself, and clients of it, for the tests of caching mode."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.reflector.event_decoder import ReflectorStore
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.proxy.cached.event_log import EventLog
from kubeloop.proxy.cached.objects import CachedObjects
from kubeloop.proxy.cached.queries import ObjectMatcher, ReadQuery, matcher_of
from kubeloop.proxy.cached.resource import CacheableResource, CachedResource
from kubeloop.proxy.cached.watch_group import WatchGroup
from kubeloop.proxy.cached.watchers import CachedWatch
from kubeloop.proxy.encodings import Form
from kubeloop.proxy.upstream import Upstream
from kubeloop.proxy.view import ClientView, RuleCounters
from kubeloop.tasks import Supervisor
from kubeloop.timing import Clock, FakeClock
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import selection_of
from tests.proxy.samples import ScriptedAnswer, ScriptedUpstream, request_for

POD = GroupVersionKind("", "v1", "Pod")
PODS = CacheableResource(POD, "pods", namespaced=True, list_kind="PodList")
PLAIN = Form("application/json")
METADATA = Form("application/json", "PartialObjectMetadata")


class NoSource:
    """A list and watch that does nothing: the test fills the store."""

    watching = True

    async def run(self, store: ReflectorStore) -> None:
        del store
        await asyncio.Event().wait()


def head_of(objects: CachedObjects, tree: JSONObject) -> Head:
    """Return an object as the reflector makes it."""
    document = msgspec.json.encode(tree)
    metadata = tree["metadata"]
    before = objects.before(metadata.get("namespace", ""), metadata["name"])
    return objects.reader.head(objects.reader.projection.object(document), memoryview(document), before)


def matching(query: str = "", namespace: str = "") -> ObjectMatcher:
    found = matcher_of(query, namespace, is_pods=True, namespaced=True)
    assert found is not None
    return found


def unreachable(_: Any) -> ScriptedAnswer:
    raise AssertionError("the cache asked the API server")


class TestCache(CachedResource):
    """A cache of pods.

    Args:
        tasks: Owns its task.
        clock: Its clock.
        upstream: The API server.
        log: Its log.
    """

    __test__ = False

    def __init__(self, tasks: Supervisor, clock: Clock, upstream: Upstream | None = None, log: EventLog | None = None) -> None:
        super().__init__(NoSource(), upstream or ScriptedUpstream(unreachable), PODS, clock, tasks, log)

    def bring_list(self, *trees: JSONObject, version: int = 1) -> None:
        """Bring a list."""
        self.objects.begin_list()
        heads = []
        for tree in trees:
            metadata = tree["metadata"]
            before = self.objects.before(metadata["namespace"], metadata["name"])
            same = before is not None and before.resource_version == metadata["resourceVersion"]
            heads.append(before if same and before is not None else head_of(self.objects, tree))
        self.objects.replace(heads, str(version))

    def put(self, *trees: JSONObject) -> None:
        """Bring added or changed objects in one batch."""
        for tree in trees:
            self.objects.change(head_of(self.objects, tree))
        self.objects.flush()

    def remove_pod(self, tree: JSONObject) -> None:
        """Bring a deletion."""
        self.objects.remove(head_of(self.objects, tree))
        self.objects.flush()

    def bookmark(self, version: int) -> None:
        self.objects.bookmark(str(version))
        self.objects.flush()

    def names(self) -> list[str]:
        return [head.name for head in self.objects.snapshot()]


@asynccontextmanager
async def cache_of(
    *trees: JSONObject, version: int = 9, clock: Clock | None = None, upstream: Upstream | None = None, log: EventLog | None = None
) -> AsyncIterator[TestCache]:
    """Provide a cache of pods at a version."""
    clock = clock or FakeClock()
    async with Supervisor(clock, logging.getLogger("tests")) as tasks:
        cache = TestCache(tasks, clock, upstream, log)
        cache.bring_list(*trees, version=version)
        try:
            yield cache
        finally:
            await cache.close()


class TestClient:
    """A client that watches. It reads while ``reads`` is true.

    Args:
        cache: The cache.
        clock: The clock of the cache.
        rules: Documents of rules.
        selectors: Query with selectors.
        namespace: The namespace; empty: all.
        query: The parameters of the watch.
        form: The form of the response.
    """

    __test__ = False
    chunked = False

    def __init__(
        self,
        cache: CachedResource,
        clock: Clock,
        *rules: JSONObject,
        selectors: str = "",
        namespace: str = "",
        form: Form = PLAIN,
        version: int = 0,
        **query: Any,
    ) -> None:
        self.reads = True
        self.data = b""
        self._reading = asyncio.Event()
        self._writable = asyncio.Event()
        key = (repr(rules), selectors, namespace, form)

        def make() -> WatchGroup:
            if not rules:
                return WatchGroup(cache.objects.log, matching(selectors, namespace), None, None, form)
            selection = selection_of(*rules, verb="watch", name="", namespace=namespace)
            request = request_for(f"/api/v1/pods?{selectors}")
            view, previous = ClientView(selection, request, RuleCounters()), ClientView(selection, request, RuleCounters())
            return WatchGroup(cache.objects.log, matching(view.query, namespace), view, previous, form)

        parameters = ReadQuery("watch", version, version == 0, form, **query)
        self.watcher = CachedWatch(cache, cache.group(key, make), parameters, clock, random.Random(1))
        self.task = asyncio.ensure_future(self.watcher.run(self))

    # -------------------------------------------------------------------------------------------------- as a FrameWriter

    def encode(self, frame: bytes) -> bytes:
        return frame

    def push(self, encoded: bytes) -> bool:
        if not self.reads:
            return False
        self.data += encoded
        return True

    async def write(self, encoded: bytes) -> None:
        self.data += encoded
        await self.drained()

    async def drained(self) -> None:
        while not self.reads:
            self._writable.clear()
            await self._writable.wait()

    # ------------------------------------------------------------------------------------------------------ for the test

    def stop_reading(self) -> None:
        self.reads = False

    def read_again(self) -> None:
        self.reads = True
        self._writable.set()

    async def events(self) -> list[JSONObject]:
        """Return the events since the last call, when nothing more happens at once."""
        await settled()
        data, self.data = self.data, b""
        assert not data or data.endswith(b"\n")
        return [json.loads(line) for line in data.splitlines()]

    async def summaries(self) -> list[str]:
        """Return the events since the last call as texts: type, name, resourceVersion."""
        return [summary_of(event) for event in await self.events()]

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def summary_of(event: JSONObject) -> str:
    tree = event["object"]
    if event["type"] == "ERROR":
        return f"ERROR {tree['code']} {tree['reason']}"
    if event["type"] == "BOOKMARK":
        end = " end" if (tree["metadata"].get("annotations") or {}).get("k8s.io/initial-events-end") == "true" else ""
        return f"BOOKMARK {tree['metadata']['resourceVersion']}{end}"
    return f"{event['type']} {tree['metadata']['name']} {tree['metadata']['resourceVersion']}"


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)
