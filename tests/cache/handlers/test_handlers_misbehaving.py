"""Handlers and index functions that do what they should not: others must not notice, and nothing may die without a word."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerEvent, Registration
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import KubeloopError
from kubeloop.timing import FakeClock
from tests.cache.handlers.test_handlers import everything, informers_of
from tests.cache.source import Source, until


async def test_a_handler_that_waits_for_something_cancelled_goes_on_with_the_next_event(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    names: list[str] = []

    async def handler(event: InformerEvent[ConfigMap]) -> None:
        names.append(event.key.name)
        if event.key.name == "a":
            task = asyncio.create_task(asyncio.sleep(10))
            task.cancel()
            await task

    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        registration = maps.on_event(added=handler, name="waiter")
        await until(lambda: source.watches == 1)
        source.put("a")
        source.put("b")
        await until(lambda: names == ["a", "b"])
        assert registration.pending == 0
        assert "handler waiter failed on ADDED default/a" in caplog.text


async def test_a_handler_may_remove_itself_and_gets_no_further_event(source: Source, api: Client, clock: FakeClock) -> None:
    names: list[str] = []
    registrations: list[Registration[ConfigMap]] = []

    def once(event: InformerEvent[ConfigMap]) -> None:
        names.append(event.key.name)
        registrations[0].remove()

    for name in "abc":
        source.put(name)
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        registrations.append(maps.on_event(added=once, resync=3600))
        seen = everything(maps)
        await until(lambda: source.watches == 1)
        source.put("d")
        await until(lambda: len(seen.events) == 4)
        await registrations[0].wait_removed()
        assert names == ["a"]
        assert not [task for task in asyncio.all_tasks() if "once" in task.get_name() or "resync" in task.get_name()]


async def test_a_handler_may_remove_its_informer(source: Source, api: Client, clock: FakeClock) -> None:
    ended = asyncio.Event()

    async def handler(event: InformerEvent[ConfigMap]) -> None:
        try:
            await informers.remove(maps)
        finally:
            ended.set()

    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        maps.on_event(added=handler)
        await until(lambda: source.watches == 1)
        source.put("a")
        await asyncio.wait_for(ended.wait(), 5)
        await until(lambda: source.watches == 0)
        assert list(informers) == []
        again = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        assert len(again.lister) == 1


async def test_a_handler_may_add_another_one_which_sees_everything_once(source: Source, api: Client, clock: FakeClock) -> None:
    late: list[str] = []

    def first(event: InformerEvent[ConfigMap]) -> None:
        if event.key.name == "b":
            maps.on_event(added=lambda event: late.append(event.key.name), name="late")

    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        maps.on_event(added=first)
        await until(lambda: source.watches == 1)
        for name in "abcd":
            source.put(name)
        await until(lambda: len(late) == 4)
        await asyncio.sleep(0)
        assert late == ["a", "b", "c", "d"]


async def test_a_handler_added_while_a_list_is_under_way_misses_nothing_and_sees_nothing_twice(
    source: Source, api: Client, clock: FakeClock
) -> None:
    for name in "abcd":
        source.put(name)
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        early = everything(maps)
        await until(lambda: source.watches == 1)
        source.put("b", k="2", hide=True)
        source.delete("c", hide=True)
        source.put("e", hide=True)
        source.error_event({"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "x"})
        await until(lambda: source.watches == 0 and clock.waiting > 0)
        source.lists.clear()
        await clock.advance(3)
        await until(lambda: len(source.asked("list", "limit")) == 2)
        late = everything(maps)
        source.lists.set()
        await until(lambda: source.watches == 1)
        source.put("f")
        await until(lambda: late.lines[-1:] == ["ADDED f"] and early.lines[-1:] == ["ADDED f"])
        assert late.lines == [*(f"initial ADDED {name}" for name in "abcd"), "DELETED c", "MODIFIED b", "ADDED e", "ADDED f"]


async def test_waiting_for_a_handler_that_failed_on_an_initial_object_ends_at_once(source: Source, api: Client, clock: FakeClock) -> None:
    def fragile(event: InformerEvent[ConfigMap]) -> None:
        raise RuntimeError("boom")

    source.put("a")
    async with informers_of(api, clock) as informers:
        broken = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES).on_event(added=fragile, name="fragile")
        with pytest.raises(KubeloopError, match="handler fragile failed on default/a: RuntimeError: boom"):
            await asyncio.wait_for(broken.wait_synced(), 5)


async def test_log_records_of_a_handler_carry_cluster_handler_and_key(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    from kubeloop.transport import logger_with_context

    log = logger_with_context("test.of.handlers")

    async def handler(event: InformerEvent[ConfigMap]) -> None:
        await asyncio.sleep(0)
        log.warning("at work")

    source.put("a")
    async with informers_of(api, clock) as informers:
        await informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES).on_event(added=handler, name="mine").wait_synced()
    (record,) = [record for record in caplog.records if record.name == "test.of.handlers"]
    fields = record.kubeloop  # type: ignore[attr-defined]  # the filter put it there
    assert (fields["cluster"], fields["handler"], fields["key"]) == ("test", "mine", "default/a")


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(itertools.count().__next__, id="each time another value"),
        pytest.param(iter([["x"], None, ["y", "y"], "z", [], ["x"]] * 10).__next__, id="now this, now that"),
        pytest.param(lambda: 5, id="a number"),
        pytest.param(lambda: [1, None, {}], id="a list of anything"),
    ],
)
async def test_an_index_function_may_answer_differently_each_time_or_nonsense(
    source: Source, api: Client, clock: FakeClock, answers: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    source.put("a")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, indexes={"odd": lambda _: answers()}, namespace=ALL_NAMESPACES)  # type: ignore[operator]
        seen = everything(maps)
        await until(lambda: source.watches == 1)
        for number in range(6):
            source.put("a", n=str(number))
            source.put("b", n=str(number))
        source.delete("a")
        source.delete("b")
        source.put("c")
        await until(lambda: seen.lines[-1:] == ["ADDED c"])
        source.delete("c")
        await until(lambda: seen.lines[-1:] == ["DELETED c"])
        assert maps.lister.index_values("odd") == []


async def test_an_index_function_is_called_once_for_each_state(source: Source, api: Client, clock: FakeClock) -> None:
    calls: list[str] = []

    def values(config_map: ConfigMap) -> str:
        calls.append(config_map.metadata.resource_version)
        return config_map.metadata.name

    source.put("a")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, indexes={"name": values}, namespace=ALL_NAMESPACES)
        seen = everything(maps)
        await until(lambda: source.watches == 1)
        source.put("a", n="1")
        source.delete("a")
        await until(lambda: len(seen.events) == 3)
        assert calls == ["11", "12"]
