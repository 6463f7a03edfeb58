"""A client that lists, watches and lists again on 410 ends with the objects that the rules leave, also under faults."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.endpoints.access import User
from kubeloop.meta.selectors import parse_label_selector
from kubeloop.proxy.rules import RewriteContext
from kubeloop.serving.answer import Aborted, Answer, StreamingResponse
from kubeloop.types import JSONObject
from tests.proxy.model_server import ModelServer
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import PODS, ScriptedProxy, body_of, pod

ANN = User("ann", ("devs",))
#: Turns of the loop until everything that happened has reached the client.
_TURNS = 3000

names = st.sampled_from("abcd")
tiers = st.sampled_from(["front", "back", "none"])
pods = st.builds(
    lambda name, tier, node, count: (name, pod(name, tier, node=node) | {"count": count}),
    names,
    tiers,
    st.sampled_from("xy"),
    st.integers(0, 2),
)

MATCHES: st.SearchStrategy[JSONObject] = st.sampled_from(
    [{}, {"labelSelector": "tier=back"}, {"labelSelector": "tier!=none"}, {"names": ["a", "b"]}, {"userGroups": ["ops"]}]
)
CONDITIONS: st.SearchStrategy[JSONObject] = st.sampled_from(
    [{}, {"when": "object.count > 1"}, {"when": "object.metadata.name == 'c'"}, {"when": "'ops' in user.groups"}]
)
ACTIONS: st.SearchStrategy[list[JSONObject]] = st.sampled_from(
    [
        [{"drop": True}],
        [{"set": {"spec.nodeName": "hidden"}}],
        [{"set": {"metadata.labels.tier": "front"}}],
        [{"remove": ["metadata.labels"]}],
        [{"mergePatch": {"metadata": {"annotations": {"seen": "yes"}}}}, {"remove": ["count"]}],
        [{"python": {"callable": "tests.proxy.hiding:hide_back"}}],
    ]
)
rule_lists = st.lists(st.tuples(MATCHES, CONDITIONS, ACTIONS), max_size=3).map(
    lambda drawn: [rule(*actions, name=f"r{number}", match=[match], **when) for number, (match, when, actions) in enumerate(drawn)]
)
HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}], name="hide-back")
rule_sets = st.one_of(st.just([HIDE_BACK]), rule_lists)
step = st.one_of(
    st.tuples(st.just("write"), pods),
    st.tuples(st.just("write and catch up"), pods),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("reload"), rule_sets),
    st.tuples(st.just("turns"), st.integers(1, 40)),
    st.sampled_from([("cut", None), ("compact", None), ("catch up", None)]),
)
steps = st.lists(step, min_size=6, max_size=16)
INITIAL = [pod("a", "front"), pod("b", "back"), pod("c", "none")]


class ModelClient:
    """A client as client-go's reflector. ``streams``: it gets its objects from the watch (WatchList), not from a list.

    An event that does not fit the client's objects fails the test: a watch never adds an object twice, and never changes a missing object.
    """

    def __init__(self, proxy: ScriptedProxy, *, selector: str, limit: int, streams: bool) -> None:
        self._proxy = proxy
        self._query = f"labelSelector={quote(selector)}" if selector else ""
        self._limit = limit
        self._streams = streams
        self.store: dict[str, JSONObject] = {}
        self.faults: list[str] = []
        self._version = ""

    async def run(self) -> None:
        while True:
            if not self._version:
                if self._streams:
                    await self._watch(f"{PODS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&{self._query}")
                    continue
                await self._list()
                continue
            await self._watch(f"{PODS}?watch=true&resourceVersion={self._version}&{self._query}")

    async def _list(self) -> None:
        found: dict[str, JSONObject] = {}
        token = ""
        while True:
            reply = await self._proxy(f"{PODS}?limit={self._limit}&{self._query}" + (f"&continue={quote(token)}" if token else ""))
            tree = json.loads(await body_of(reply))
            if tree["kind"] == "Status":
                assert tree["code"] == 410
                return
            found |= {item["metadata"]["name"]: item for item in tree["items"]}
            token = tree["metadata"].get("continue", "")
            if not token:
                break
        self.store, self._version = found, tree["metadata"]["resourceVersion"]

    async def _watch(self, target: str) -> None:
        reply = await self._proxy(target)
        if isinstance(reply, Answer):
            assert reply.status == 410
            self._version = ""
            return
        assert isinstance(reply, StreamingResponse)
        initial: dict[str, JSONObject] | None = {} if "sendInitialEvents" in target else None
        try:
            async for chunk in reply.chunks:
                for line in chunk.splitlines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        assert event["object"]["code"] == 410
                        self._version = ""
                        return
                    initial = self._apply(event, initial)
        except Aborted:
            if initial is not None:
                self._version = ""
        finally:
            await reply.chunks.aclose()  # type: ignore[attr-defined]  # it is a generator
            reply.close()

    def _apply(self, event: JSONObject, initial: dict[str, JSONObject] | None) -> dict[str, JSONObject] | None:
        type_, tree = event["type"], event["object"]
        metadata = tree["metadata"]
        if type_ == "BOOKMARK":
            if initial is not None and "k8s.io/initial-events-end" in (metadata.get("annotations") or {}):
                self.store, initial = initial, None
            self._version = metadata["resourceVersion"]
            return initial
        store, name = self.store if initial is None else initial, metadata["name"]
        if (type_ == "ADDED") == (name in store):
            self.faults.append(f"{type_} {name} at {metadata['resourceVersion']}, which the client {'has' if name in store else 'has not'}")
        if type_ == "DELETED":
            store.pop(name, None)
        else:
            store[name] = tree
        if initial is None:
            self._version = metadata["resourceVersion"]
        return initial


async def expected(proxy: ScriptedProxy, server: ModelServer, selector: str) -> dict[str, JSONObject]:
    """Return what the rules in force leave of the server's objects."""
    context = RewriteContext(ANN, "list", "", "v1", "pods", "", "shop", "", "")
    selection = proxy.in_force.rules.select(context)
    found: dict[str, JSONObject] = {}
    for name, tree in server.objects.items():
        seen = tree if selection is None else (await selection.rewrite_async(tree)).object
        if seen is not None and parse_label_selector(selector).matches(seen["metadata"].get("labels") or {}):
            found[name] = without_kind(seen)
    return found


def without_kind(tree: JSONObject) -> JSONObject:
    return {name: value for name, value in tree.items() if name not in ("kind", "apiVersion")}


async def caught_up(server: ModelServer, task: asyncio.Task[None]) -> None:
    """Let the client run until it waits for the server."""
    idle = 0
    for _ in range(_TURNS):
        await asyncio.sleep(0)
        if task.done():
            task.result()
        idle = idle + 1 if server.is_idle else 0
        if idle > 20:
            return
    raise AssertionError("the client does not come to rest")


async def play(rules: Sequence[JSONObject], script: Sequence[tuple[str, Any]], *, selector: str, limit: int, streams: bool) -> None:
    server = ModelServer()
    for tree in INITIAL:
        await server.write(tree["metadata"]["name"], tree | {"count": 1})
    proxy = ScriptedProxy(server, *rules, user=ANN)
    client = ModelClient(proxy, selector=selector, limit=limit, streams=streams)
    task = asyncio.create_task(client.run())
    try:
        for verb, value in script:
            match verb:
                case "write" | "write and catch up":
                    await server.write(value[0], value[1])
                case "delete":
                    await server.write(value, None)
                case "reload":
                    proxy.reload(*value)
                    await server.wake()  # as a closed connection wakes its reader
                case "cut":
                    await server.cut()
                case "turns":
                    for _ in range(value):
                        await asyncio.sleep(0)
                case "compact":
                    server.compact()
            if "catch up" in verb:
                await caught_up(server, task)
        await caught_up(server, task)
        assert client.faults == []
        assert {name: without_kind(tree) for name, tree in client.store.items()} == await expected(proxy, server, selector)
        assert len(proxy.services.watches) == 1
    finally:
        task.cancel()
        await asyncio.wait((task,))


@settings(max_examples=250)
@given(rule_sets, steps, st.sampled_from(["", "", "tier=front", "tier!=back"]), st.sampled_from([1, 2, 500]), st.booleans())
async def test_the_client_ends_with_the_rewritten_state_of_the_server(
    rules: list[JSONObject], script: list[tuple[str, Any]], selector: str, limit: int, streams: bool
) -> None:
    await play(rules, script, selector=selector, limit=limit, streams=streams)
