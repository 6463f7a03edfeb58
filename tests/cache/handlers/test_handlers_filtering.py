"""Handlers behind a predicate (``where=``): objects that do not match do not exist for them."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.api.core.v1 import ConfigMap, Pod
from kubeloop.cache import HandlerFailed, Head, InformerEvent
from kubeloop.cache.handlers.event import EventFilter, EventType
from kubeloop.cache.lister.view import CacheView
from kubeloop.cache.store.store import Store
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.timing import FakeClock
from tests.cache.handlers.test_handlers import Seen, informers_of
from tests.cache.heads import head
from tests.cache.source import Source, until

ADDED, MODIFIED, DELETED, RESYNC = EventType.ADDED, EventType.MODIFIED, EventType.DELETED, EventType.RESYNC
VIEW: CacheView[Pod] = CacheView(Store(), Pod, "test")


def event(kind: EventType, new: Head, old: Head | None = None, initial: bool = False) -> InformerEvent[Pod]:
    return InformerEvent(kind, new, old, VIEW, initial)


OUT, IN, IN_LATER = head("a", 1, node="n1"), head("a", 2, node="mine"), head("a", 3, node="mine")


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param([event(ADDED, IN, initial=True)], ["initial ADDED 2"], id="an event that matches is delivered unchanged"),
        pytest.param(
            [event(ADDED, OUT), event(MODIFIED, OUT, OUT), event(DELETED, OUT, OUT)], [], id="an object that never matches causes no event"
        ),
        pytest.param([event(ADDED, OUT, initial=True), event(MODIFIED, IN, OUT)], ["ADDED 2"], id="out to in is added, not initial [E69]"),
        pytest.param([event(ADDED, IN), event(MODIFIED, OUT, IN)], ["ADDED 2", "DELETED 2"], id="in to out is deleted, as it was [E69]"),
        pytest.param([event(ADDED, IN), event(MODIFIED, IN_LATER, IN)], ["ADDED 2", "MODIFIED 3"], id="in to in is updated"),
        pytest.param(
            [event(ADDED, IN), event(MODIFIED, OUT, IN), event(DELETED, OUT, OUT)],
            ["ADDED 2", "DELETED 2"],
            id="a deletion is delivered once",
        ),
        pytest.param([event(ADDED, OUT), event(RESYNC, IN, IN)], ["ADDED 2"], id="a resync shows what has come to match"),
        pytest.param([event(DELETED, IN, IN)], [], id="no end of what was not known"),
    ],
)
def test_a_predicate_turns(history: list[InformerEvent[Pod]], expected: list[str]) -> None:
    shown = EventFilter[Pod](lambda each: each.value("spec.nodeName") == "mine")
    answers = [answer for one in history if (answer := shown(one)) is not None]
    assert [f"{'initial ' if one.initial else ''}{one.type.value} {one.head.resource_version}" for one in answers] == expected


@given(st.lists(st.tuples(st.sampled_from(["put", "delete", "RESYNC"]), st.sampled_from([True, False, None])), max_size=30))
def test_a_predicate_that_changes_its_mind_or_raises_never_adds_twice_nor_ends_what_it_did_not_show(
    steps: list[tuple[str, bool | None]],
) -> None:
    opinion: bool | None = True

    def fickle(each: Head) -> bool:
        if opinion is None:
            raise RuntimeError("boom")
        return opinion

    shown = EventFilter[Pod](fickle)
    now: Head | None = None
    known = False
    for version, (step, says) in enumerate(steps, start=1):
        opinion = says
        if step == "put":
            old, now = now, head("a", version)
            one = event(MODIFIED if old else ADDED, now, old)
        elif now is None:
            continue
        else:
            one = event(DELETED if step == "delete" else RESYNC, now, now)
            now = None if step == "delete" else now
        try:
            answer = shown(one)
        except RuntimeError:
            continue
        if answer is not None:
            assert known is (answer.type is not ADDED)
            known = answer.type is not DELETED
    if now is None:
        assert not known
        assert not shown._shown, "what has gone is not remembered [T238]"


async def test_a_handler_behind_a_predicate_sees_its_own_cache_and_nothing_is_decoded_for_that(
    source: Source, api: Client, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E69]"""

    def decode(*_: object) -> None:
        raise AssertionError("decoded")

    for name in ("web-1", "db-1"):
        source.put(name, label_app=name[:-2], team="x")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, paths=["data.team"], namespace=ALL_NAMESPACES)
        monkeypatch.setattr(CacheView, "decode", decode)
        web, team = Seen(), Seen()
        maps.on_event(added=web, updated=web, deleted=web, predicate=lambda each: each.labels.get("app") == "web")
        maps.on_event(added=team, updated=team, deleted=team, predicate=lambda each: each.value("data.team") == "x")
        await until(lambda: source.watches == 1)
        source.put("db-1", label_app="web", team="y")
        source.put("web-1", label_app="db", team="x")
        source.put("web-1", label_app="db", team="y")
        source.delete("db-1")
        source.delete("web-1")
        source.put("last", label_app="web", team="x")
        await until(lambda: web.lines[-1:] == team.lines[-1:] == ["ADDED last"])
        assert web.lines == ["initial ADDED web-1", "ADDED db-1", "DELETED web-1", "DELETED db-1", "ADDED last"]
        assert sorted(team.lines[:2]) == ["initial ADDED db-1", "initial ADDED web-1"]
        assert team.lines[2:] == ["DELETED db-1", "MODIFIED web-1", "DELETED web-1", "ADDED last"]
        late = Seen()
        await maps.on_event(added=late, predicate=lambda each: each.name == "last").wait_synced()
        assert late.lines == ["initial ADDED last"]


async def test_a_predicate_that_raises_affects_no_other_handler(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """[E69]"""
    caplog.set_level(logging.ERROR)

    def fragile(each: Head) -> bool:
        if each.name == "bad":
            raise RuntimeError("boom")
        return True

    source.put("good")
    source.put("bad")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        behind, other = Seen(), Seen()
        registration = maps.on_event(added=behind, updated=behind, predicate=fragile, name="picky")
        maps.on_event(added=other, updated=other)
        with pytest.raises(HandlerFailed, match="handler picky failed on default/bad: RuntimeError: boom"):
            await registration.wait_synced()
        await until(lambda: source.watches == 1)
        source.put("good", k="2")
        await until(lambda: behind.lines[-1:] == other.lines[-1:] == ["MODIFIED good"])
        assert behind.lines == ["initial ADDED good", "MODIFIED good"]
        assert "handler picky failed on ADDED default/bad" in caplog.text


async def test_predicate_and_coalescing_together_give_a_slow_handler_only_the_remaining_events(
    source: Source, api: Client, clock: FakeClock
) -> None:
    go = asyncio.Event()
    delivered: list[str] = []

    async def slow(event: InformerEvent[ConfigMap]) -> None:
        await go.wait()
        delivered.append(f"{event.type.value} {event.key.name} {event.object.data.get('n', '')}".rstrip())

    source.put("first", label_app="web")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        registration = maps.on_event(
            added=slow, updated=slow, deleted=slow, coalesce=True, predicate=lambda each: each.labels.get("app") == "web"
        )
        seen = Seen()
        maps.on_event(added=seen, updated=seen, deleted=seen)
        await until(lambda: source.watches == 1 and registration.meter.key != "")
        for number in range(200):
            source.put("busy", label_app="web", n=str(number))
            source.put("other", label_app="db", n=str(number))
        source.put("brief", label_app="web")
        source.delete("brief")
        await until(lambda: len(seen.events) == 403)
        assert registration.pending == 2, "one for each object that is there"
        assert registration.merged == 399
        go.set()
        await until(lambda: registration.pending == 0 and registration.meter.key == "")
    assert delivered == ["ADDED first", "ADDED busy 199"]
