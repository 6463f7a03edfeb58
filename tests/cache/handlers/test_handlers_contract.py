"""The contract of handlers, by the numbers of the behaviours that it is made of."""

from __future__ import annotations

import asyncio
import random

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerEvent, InformerStopped, Registration
from kubeloop.cache.tasks import all_synced
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import DeadlineError, Forbidden
from kubeloop.timing import FakeClock
from tests.cache.handlers.test_handlers import everything, informers_of
from tests.cache.source import Source, until


async def test_handlers_added_in_the_middle_of_a_storm_see_everything_once_and_in_order(
    source: Source, api: Client, clock: FakeClock
) -> None:
    """[F74]"""
    rng = random.Random(5)
    histories: list[dict[str, list[InformerEvent[ConfigMap]]]] = []
    for number in range(150):
        source.put(f"m{number}")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        await until(lambda: source.watches == 1)
        registrations: list[Registration[ConfigMap]] = []
        for round_ in range(25):
            for _ in range(40):
                name = f"m{rng.randrange(200)}"
                if name in source.objects and rng.random() < 0.3:
                    source.delete(name)
                else:
                    source.put(name, n=str(round_))
            history: dict[str, list[InformerEvent[ConfigMap]]] = {}
            histories.append(history)

            def note(event: InformerEvent[ConfigMap], history: dict[str, list[InformerEvent[ConfigMap]]] = history) -> None:
                history.setdefault(event.key.name, []).append(event)

            registrations.append(maps.on_event(added=note, updated=note, deleted=note))
            await asyncio.sleep(0)
        await until(lambda: maps.resource_version == str(source.version))
        for registration in registrations:
            await registration.wait_drained()
    for history in histories:
        for name, events in history.items():
            known = False
            versions = [int(event.head.resource_version) for event in events]
            assert versions == sorted(set(versions)), "each state once, in order"
            for event in events:
                assert known is (event.type != "ADDED")
                known = event.type != "DELETED"
            assert known is (name in source.objects)
        assert {name for name, events in history.items() if events[-1].type != "DELETED"} == set(source.objects)


async def test_the_replay_of_a_large_cache_to_a_late_handler_does_not_hold_up_the_loop(
    source: Source, api: Client, clock: FakeClock
) -> None:
    """[F74]"""
    for number in range(3000):
        source.put(f"m{number}")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        delivered = 0

        def count(event: InformerEvent[ConfigMap]) -> None:
            nonlocal delivered
            delivered += 1

        registration = maps.on_event(added=count)
        most, before = 0, 0
        while not registration.synced:
            await asyncio.sleep(0)
            most, before = max(most, delivered - before), delivered
        assert delivered == 3000
        assert most <= 100, "others have their turn after every hundred events"


async def test_removing_a_handler_twice_or_after_its_informer_ended_does_nothing_and_touches_no_other(
    source: Source, api: Client, clock: FakeClock
) -> None:
    """[F77] [F80]"""
    async with informers_of(api, clock) as informers:
        maps, others = (
            informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES),
            informers.for_kind(ConfigMap, label_selector="app=web", namespace=ALL_NAMESPACES),
        )
        seen = everything(maps)
        mine = maps.on_event(added=lambda _: None)
        foreign = others.on_event(added=lambda _: None)
        await until(lambda: source.watches == 2)
        foreign.remove()
        foreign.remove()
        mine.remove()
        assert len(maps.registrations) == 1
        assert others.registrations == []
        source.put("a")
        await until(lambda: seen.lines == ["ADDED a"])
        (left,) = maps.registrations
    left.remove()
    left.remove()
    assert not left.active


async def test_a_callback_in_flight_may_finish_after_its_removal_and_can_be_waited_for(
    source: Source, api: Client, clock: FakeClock
) -> None:
    """[F78]"""
    go, finished = asyncio.Event(), asyncio.Event()

    async def slow(event: InformerEvent[ConfigMap]) -> None:
        await go.wait()
        finished.set()

    source.put("a")
    source.put("b")
    async with informers_of(api, clock) as informers:
        registration = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES).on_event(added=slow, name="slow")
        await until(lambda: registration.meter.key == "default/a")
        registration.remove()
        waiting = asyncio.create_task(registration.wait_removed(10))
        await clock.advance(10)
        with pytest.raises(DeadlineError, match="handler slow is still processing default/a"):
            await waiting
        assert not finished.is_set()
        go.set()
        await registration.wait_removed()
        assert finished.is_set()


async def test_waiting_for_the_end_of_a_handler_that_never_began_returns_at_once(source: Source, api: Client, clock: FakeClock) -> None:
    """[F79]"""
    informers = informers_of(api, clock)
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    before = maps.on_event(added=lambda _: None)
    before.remove()
    await before.wait_removed()
    async with informers:
        after = maps.on_event(added=lambda _: None)
        await until(lambda: source.watches == 1)
        after.remove()
        await after.wait_removed()


async def test_a_handler_cannot_wait_for_its_own_end(source: Source, api: Client, clock: FakeClock) -> None:
    """[F78]"""
    errors: list[str] = []

    async def handler(event: InformerEvent[ConfigMap]) -> None:
        registration.remove()
        try:
            await registration.wait_removed()
        except RuntimeError as error:
            errors.append(str(error))

    source.put("a")
    async with informers_of(api, clock) as informers:
        registration = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES).on_event(added=handler, name="selfish")
        await until(lambda: bool(errors))
        await registration.wait_removed()
    assert errors == ["handler selfish waits for its own end; let it return, and wait in another task"]


async def test_a_removed_informer_answers_from_its_last_state_and_a_wait_for_its_sync_ends_at_once(
    source: Source, api: Client, clock: FakeClock
) -> None:
    source.put("a")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        await informers.remove(maps)
        with pytest.raises(InformerStopped, match="of configmaps in all namespaces has stopped; its lister stays as it was"):
            await maps.wait_synced()
        source.put("b")
        assert [each.metadata.name for each in maps.lister.list()] == ["a"]


async def test_a_stopped_informer_takes_no_handler_cannot_start_again_and_says_so(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """[F80] [F81] [X7]"""
    informers = informers_of(api, clock)
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    states = [maps.stopped]
    async with informers:
        await informers.wait_synced()
        states.append(maps.stopped)
        assert informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES) is maps, "asking again starts nothing again"
        with pytest.raises(InformerStopped, match="can be entered once"):
            await informers.__aenter__()
        other = informers.for_kind(ConfigMap, label_selector="app=web", namespace=ALL_NAMESPACES)
        await maps.wait_synced()
        await informers.remove(other)
        await informers.remove(other)
        await until(lambda: source.watches == 1)
    assert [*states, maps.stopped] == [False, False, True]
    with pytest.raises(InformerStopped, match="the informer of configmaps in all namespaces has stopped; handlers must be added before"):
        maps.on_event(added=lambda _: None, name="late")
    assert "handler late was not added: the informer of configmaps in all namespaces has stopped" in caplog.text
    await maps._runner.stop()
    with pytest.raises(InformerStopped):
        await informers.wait_synced()
    await informers.__aexit__()
    assert len(source.asked("list", "limit")) <= 3


async def test_an_informer_that_was_never_started_stops_at_once(api: Client, clock: FakeClock) -> None:
    """[F82]"""
    maps = informers_of(api, clock).for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    maps.on_event(added=lambda _: None, resync=5)
    await maps._runner.stop()
    assert maps.stopped
    assert clock.waiting == 0
    with pytest.raises(InformerStopped, match="has stopped; it had not synced"):
        await maps.wait_synced()


async def test_a_handler_that_raises_costs_no_pause_and_no_other_handler_an_event(source: Source, api: Client, clock: FakeClock) -> None:
    """[F83] Ours: client-go pauses for a second after each panic, which holds back the good events behind a bad one."""
    delivered: list[str] = []

    def broken(event: InformerEvent[ConfigMap]) -> None:
        delivered.append(event.key.name)
        raise RuntimeError("boom")

    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        registration = maps.on_event(added=broken)
        seen = everything(maps)
        await registration.wait_synced()
        await until(lambda: source.watches == 1)
        for number in range(50):
            source.put(f"m{number}")
        await until(lambda: len(delivered) == len(seen.events) == 50)
        assert registration.meter.failures == 50
        assert not registration.failed, "it failed on no initial object"


async def test_another_transform_is_another_informer(api: Client, clock: FakeClock) -> None:
    """[F84] What client-go refuses to change after the start cannot be changed here at all."""
    informers = informers_of(api, clock)

    def strip(tree: dict[str, object]) -> None:
        tree.pop("data", None)

    plain, stripped = (
        informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES),
        informers.for_kind(ConfigMap, transform=strip, namespace=ALL_NAMESPACES),
    )
    assert plain is not stripped
    assert informers.for_kind(ConfigMap, transform=strip, namespace=ALL_NAMESPACES) is stripped


async def test_a_hundred_adders_and_removers_of_handlers_under_ten_thousand_events(source: Source, api: Client, clock: FakeClock) -> None:
    """[F86]"""
    before = asyncio.all_tasks()
    rng = random.Random(7)
    over = False
    cycles = 0

    async def come_and_go(maps_number: int) -> None:
        nonlocal cycles
        while not over:
            known: set[str] = set()

            def delivered(event: InformerEvent[ConfigMap], known: set[str] = known) -> None:
                if event.type == "ADDED":
                    assert event.key.name not in known
                    known.add(event.key.name)
                else:
                    assert event.key.name in known

            registration = maps.on_event(added=delivered, updated=delivered, resync=(0, 5)[maps_number % 2])
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            if rng.random() < 0.3:
                await registration.wait_synced()
            registration.remove()
            if rng.random() < 0.5:
                await registration.wait_removed()
            assert not registration.meter.failures
            cycles += 1
            await asyncio.sleep(0.01)

    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        seen = everything(maps)
        await informers.wait_synced()
        await until(lambda: source.watches == 1)
        crowd = [asyncio.create_task(come_and_go(number)) for number in range(100)]
        for burst in range(100):
            for number in range(100):
                source.put(f"m{number % 20}", n=str(burst))
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            while len(seen.events) < 10_000:
                await asyncio.sleep(0.01)
        over = True
        await asyncio.gather(*crowd)
        assert len(maps.registrations) == 1
        assert len(seen.events) == 10_000
        assert cycles > 100
    assert not {task for task in asyncio.all_tasks() - before if "kubeloop" in task.get_name()}
    assert clock.waiting == 0


async def test_no_reader_can_change_the_cached_objects(source: Source, api: Client, clock: FakeClock) -> None:
    """[F87] There is nothing to detect: handlers and readers own what they decode, and heads are frozen."""
    source.put("a", k="1", label_app="web")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)

        def vandal(event: InformerEvent[ConfigMap]) -> None:
            mine = event.object
            mine.data["k"] = "spoilt"
            mine.metadata.labels["app"] = "spoilt"
            for change in (
                lambda: setattr(event.head, "name", "spoilt"),
                lambda: setattr(event, "head", None),
                lambda: event.head.labels.update(app="spoilt"),  # type: ignore[attr-defined]  # the attempt is the test
                lambda: setattr(event.head.owner_references, "x", 1),
            ):
                with pytest.raises((AttributeError, TypeError)):
                    change()

        first = maps.on_event(added=vandal)
        second = everything(maps)
        await first.wait_synced()
        await until(lambda: len(second.events) == 1)
        for seen in (second.events[0].object, maps.lister.get("a", "default")):
            assert seen is not None
            assert (seen.data, dict(seen.metadata.labels)) == ({"k": "1"}, {"app": "web"})


async def test_a_deletion_that_was_not_seen_is_an_ordinary_event_with_a_flag(source: Source, api: Client, clock: FakeClock) -> None:
    """[F88] [E63] No handler has to unwrap anything."""
    source.put("a", k="1")
    source.put("b")
    async with informers_of(api, clock) as informers:
        seen = everything(informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES))
        await until(lambda: source.watches == 1)
        source.delete("a", hide=True)
        source.error_event({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "x"})
        await until(lambda: source.watches == 0)
        await clock.advance(3)
        await until(lambda: seen.lines[-1] == "DELETED a")
        source.delete("b")
        await until(lambda: seen.lines[-1] == "DELETED b")
        missed, known = seen.events[-2:]
        assert (missed.tombstone, known.tombstone) == (True, False)
        assert missed.object.data == {"k": "1"}
        assert missed.old is missed.head


async def test_an_object_deleted_and_made_again_between_two_lists_is_one_update_with_two_uids(
    source: Source, api: Client, clock: FakeClock
) -> None:
    """[X1] [T238] Its generation may be the same: who compares generations must compare uids first."""
    source.put("a")
    async with informers_of(api, clock) as informers:
        seen = everything(informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES))
        await until(lambda: source.watches == 1)
        source.delete("a", hide=True)
        source.put("a", hide=True)
        source.error_event({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "x"})
        await until(lambda: source.watches == 0)
        await clock.advance(3)
        await until(lambda: len(seen.events) == 2)
        event = seen.events[1]
        assert event.type == "MODIFIED"
        assert event.old is not None
        assert event.old.uid != event.head.uid
        assert event.old.generation == event.head.generation


async def test_several_parts_are_waited_for_together_and_late_ones_are_named(source: Source, api: Client, clock: FakeClock) -> None:
    """[F89]"""
    go = asyncio.Event()

    async def slow(event: InformerEvent[ConfigMap]) -> None:
        await go.wait()

    source.put("a")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        quick, late = maps.on_event(added=lambda _: None), maps.on_event(added=slow, name="late")
        await all_synced(informers, maps, quick)
        waiting = asyncio.create_task(all_synced(informers, quick, late, timeout=10))
        await until(lambda: late.meter.key != "")
        await clock.advance(9)
        assert not waiting.done()
        await clock.advance(1)
        with pytest.raises(DeadlineError, match=r"after 10 s: handler late has 0 events waiting, at default/a for \d+ s"):
            await waiting
        waiting = asyncio.create_task(all_synced(informers, quick, late, timeout=10))
        await asyncio.sleep(0)
        go.set()
        await asyncio.wait_for(waiting, 5)
        mine = [task for task in asyncio.all_tasks() if "wait_synced" in repr(task.get_coro())]
        assert not mine


async def test_waiting_for_a_handler_fails_at_once_when_the_server_refuses_its_informer(
    source: Source, api: Client, clock: FakeClock
) -> None:
    """[F75]"""
    refusal = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"}
    source.stream_faults = [refusal] * 9
    source.list_faults = [refusal] * 9
    async with informers_of(api, clock) as informers:
        registration = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES).on_event(added=lambda _: None)
        with pytest.raises(Forbidden):
            await asyncio.wait_for(registration.wait_synced(), 5)


async def test_no_two_informers_and_no_two_handlers_of_one_have_the_same_name(api: Client, clock: FakeClock) -> None:
    """[F90]"""
    informers = informers_of(api, clock)

    def transforms() -> list[object]:
        def strip(tree: dict[str, object]) -> None:
            tree.clear()

        return [strip]

    names = [
        informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES).description,
        informers.for_kind(ConfigMap, label_selector="app=web", namespace=ALL_NAMESPACES).description,
        informers.for_kind(ConfigMap, namespace=["shop", "ops", "shop"]).description,
        informers.for_kind(ConfigMap, fields=["data.k"], namespace=ALL_NAMESPACES).description,
        informers.for_kind(ConfigMap, managed_fields=True, namespace=ALL_NAMESPACES).description,
        *(informers.for_kind(ConfigMap, transform=transforms()[0], namespace=ALL_NAMESPACES).description for _ in range(2)),  # type: ignore[arg-type]  # it is never called
    ]
    assert len(set(names)) == len(names)
    assert all(names)
    assert names[2] == 'configmaps in namespaces "ops", "shop"'
    again = informers.for_kind(ConfigMap, managed_fields=True, namespace=ALL_NAMESPACES)
    await informers.remove(again)
    assert informers.for_kind(ConfigMap, managed_fields=True, namespace=ALL_NAMESPACES).description == again.description, (
        "a name is free again when its informer has gone"
    )

    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    first, second = maps.on_event(added=print), maps.on_event(added=print)
    assert (first.name, second.name) == ("print", "print#2")
    first.remove()
    assert maps.on_event(added=print).name == "print"
