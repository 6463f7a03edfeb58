"""A model of an API server: lists and watches from the cache agree with it after writes, lost connections and changes of rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.proxy.cached.event_log import EventLog
from kubeloop.proxy.cached.lists import ListWriter
from kubeloop.proxy.lists import ListRewriter
from kubeloop.proxy.view import ClientView, RuleCounters
from kubeloop.timing import FakeClock
from kubeloop.types import JSONObject
from tests.proxy.cached.caches import PLAIN, TestCache, TestClient, cache_of, matching, settled
from tests.proxy.rules.rule_texts import rule, selection_of
from tests.proxy.samples import pod, request_for

HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}])
HIDE_BY_CONDITION = rule(when="object.spec.nodeName == 'node-2'", name="condition")
HIDE_A = rule(match=[{"names": ["a"]}], name="a")
MOVE = rule({"set": {"spec.nodeName": "node-1"}}, name="move", match=[{"labelSelector": "tier=front"}])
RELABEL = rule({"set": {"metadata.labels.tier": "front"}}, name="relabel", when="object.spec.nodeName == 'node-1'")

RULES = [(), (HIDE_BACK,), (HIDE_BY_CONDITION,), (HIDE_A,), (MOVE,), (HIDE_BACK, MOVE), (RELABEL,), (HIDE_BY_CONDITION, RELABEL)]
#: Queries with selectors, and what they mean for an object as the client sees it.
SELECTORS: dict[str, Callable[[JSONObject], bool]] = {
    "": lambda tree: True,
    "labelSelector=tier%3Dfront": lambda tree: tree["metadata"]["labels"]["tier"] == "front",
    "labelSelector=tier%21%3Dfront": lambda tree: tree["metadata"]["labels"]["tier"] != "front",
    "fieldSelector=spec.nodeName%3Dnode-1": lambda tree: tree["spec"]["nodeName"] == "node-1",
    "fieldSelector=metadata.name%21%3Db": lambda tree: tree["metadata"]["name"] != "b",
}


@dataclass
class _Watch:
    """A client with the objects that it knows."""

    client: TestClient
    rules: tuple[JSONObject, ...]
    selectors: str
    known: dict[str, JSONObject] = field(default_factory=dict)

    def apply(self, events: list[JSONObject]) -> bool:
        """Apply events as an informer does. Return whether the watch goes on."""
        for event in events:
            if event["type"] == "ERROR":
                assert event["object"]["code"] == 410
                return False
            if event["type"] == "BOOKMARK":
                continue
            name = event["object"]["metadata"]["name"]
            assert (name in self.known) is (event["type"] != "ADDED"), f"{event['type']} of {name}, which is known: {name in self.known}"
            if event["type"] == "DELETED":
                del self.known[name]
            else:
                self.known[name] = event["object"]
        return True


class _Model:
    def __init__(self, cache: TestCache, clock: FakeClock) -> None:
        self.cache = cache
        self.clock = clock
        self.pods: dict[str, JSONObject] = {}
        self.version = 9
        self.watches: list[_Watch] = []
        self.connected = True

    # ---------------------------------------------------------------------------------------------- what the API server does

    def put(self, name: str, tier: str, node: str) -> None:
        self.version += 1
        self.pods[name] = pod(name, tier, version=str(self.version), node=node)
        if self.connected:
            self.cache.put(self.pods[name])

    def delete(self, name: str) -> None:
        if name not in self.pods:
            return
        self.version += 1
        tree = self.pods.pop(name)
        if self.connected:
            self.cache.remove_pod(tree | {"metadata": tree["metadata"] | {"resourceVersion": str(self.version)}})

    def write_elsewhere(self) -> None:
        self.version += 1

    def confirm(self) -> None:
        """The cache learns in another way that it is complete."""
        if self.connected:
            self.cache.objects.advance(self.version)

    def cut(self) -> None:
        self.connected = False

    def list_again(self) -> None:
        self.connected = True
        self.cache.bring_list(*self.pods.values(), version=self.version)

    # ------------------------------------------------------------------------------------------------------ what clients do

    async def watch(self, rules: tuple[JSONObject, ...], selectors: str, *, continues: bool) -> None:
        if continues:
            known = await self.listed(rules, selectors)
            client = TestClient(self.cache, self.clock, *rules, selectors=selectors, version=self.cache.objects.version)
        else:
            known = {}
            client = TestClient(self.cache, self.clock, *rules, selectors=selectors)
        self.watches.append(_Watch(client, rules, selectors, known))

    async def listed(self, rules: tuple[JSONObject, ...], selectors: str) -> dict[str, JSONObject]:
        """Return a list of the cache by name."""
        if rules:
            view = ClientView(
                selection_of(*rules, verb="list", name="", namespace=""), request_for(f"/api/v1/pods?{selectors}"), RuleCounters()
            )
            parts = ListWriter(self.cache, matching(view.query)).rewritten(ListRewriter(view, PLAIN, collect=False))
        else:
            parts = ListWriter(self.cache, matching(selectors)).plain(PLAIN)
        tree = json.loads(b"".join([part async for part in parts]))
        return {item["metadata"]["name"]: {"kind": "Pod", "apiVersion": "v1"} | item for item in tree["items"]}

    async def stop_reading(self, number: int) -> None:
        if self.watches:
            self.watches[number % len(self.watches)].client.stop_reading()

    async def read_again(self, number: int) -> None:
        if self.watches:
            self.watches[number % len(self.watches)].client.read_again()

    # -------------------------------------------------------------------------------------------------------------- checks

    def expected(self, rules: tuple[JSONObject, ...], selectors: str) -> dict[str, JSONObject]:
        """Return what a client sees of the API server."""
        seen = {}
        for name, tree in self.pods.items():
            shown: JSONObject | None = tree
            if rules:
                shown = selection_of(*rules, verb="list", name="", namespace="").rewrite(tree).object
            if shown is not None and SELECTORS[selectors](shown):
                seen[name] = shown
        return seen

    async def check(self) -> None:
        if not self.connected:
            self.list_again()
        for _ in range(8):
            await settled()
        for watch in list(self.watches):
            client = watch.client
            client.read_again()
            for _ in range(8):
                await settled()
            goes_on = watch.apply(await client.events())
            if not goes_on or client.task.done():
                # Too slow, or too far away: the client lists and watches again.
                self.watches.remove(watch)
                await self.watch(watch.rules, watch.selectors, continues=True)
                watch = self.watches[-1]
            assert watch.known == self.expected(watch.rules, watch.selectors)
        for number, rules in enumerate(RULES):
            selectors = sorted(SELECTORS)[number % len(SELECTORS)]
            assert await self.listed(rules, selectors) == self.expected(rules, selectors)


NAMES, TIERS, NODES = st.sampled_from("abcd"), st.sampled_from(["front", "back"]), st.sampled_from(["node-1", "node-2"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, TIERS, NODES),
        st.tuples(st.just("put"), NAMES, TIERS, NODES),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("write_elsewhere")),
        st.tuples(st.just("confirm")),
        st.tuples(st.just("cut")),
        st.tuples(st.just("list_again")),
        st.tuples(st.just("watch"), st.sampled_from(RULES), st.sampled_from(sorted(SELECTORS)), st.booleans()),
        st.tuples(st.just("stop_reading"), st.integers(0, 5)),
        st.tuples(st.just("read_again"), st.integers(0, 5)),
        st.tuples(st.just("turn")),
        st.tuples(st.just("check")),
    ),
    max_size=30,
)


async def _run(steps: list[tuple[Any, ...]], max_events: int) -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock, log=EventLog(max_events=max_events)) as cache:
        model = _Model(cache, clock)
        for rules in RULES[:4]:
            await model.watch(rules, "", continues=False)
        for name, *arguments in steps:
            if name == "turn":
                await settled()
            elif name == "watch":
                await model.watch(arguments[0], arguments[1], continues=arguments[2])
            else:
                result = getattr(model, name)(*arguments)
                if result is not None:
                    await result
        await model.check()
        for watch in model.watches:
            await watch.client.close()
        assert cache.watchers == 0


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from([4, 1000]))
def test_lists_and_watches_agree_with_the_server(steps: list[tuple[Any, ...]], max_events: int) -> None:
    asyncio.run(_run(steps, max_events))
