"""Handlers of changes on the level-based loop, on both servers: the order of their calls, and the record that survives a restart."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.api.coordination.v1 import Lease, LeaseSpec
from kubeloop.api.core.v1 import Event
from kubeloop.client import Client, Write
from kubeloop.controller import ControllerBase, Manager, TerminalError
from kubeloop.controller.decorators.decorators import UNKNOWN, every, on_change, on_create, on_delete, on_resume
from kubeloop.controller.decorators.handler_controller import HandlerController
from kubeloop.meta import KubeloopError, ObjectMeta, Unstructured

pytestmark = pytest.mark.server

RECORD = "handled.kubeloop.dev/lease"
FINALIZER = "kubeloop.dev/lease"


class Calls:
    """What handlers have noted; waits until it is as a test wants."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._changed = asyncio.Event()

    def add(self, *call: Any) -> None:
        self.found.append(call if len(call) > 1 else call[0])
        self._changed.set()

    async def wait_for_events(self, *expected: Any) -> None:
        async with asyncio.timeout(30):
            while not all(one in self.found for one in expected):
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def running(client: Client, *controllers: ControllerBase[Any]) -> AsyncIterator[None]:
    async with Manager(client, controllers, namespace=client.namespace):
        yield


async def make(client: Client, name: str = "a", seconds: int = 3, **metadata: Any) -> Lease:
    return await client.create(Lease(metadata=ObjectMeta(name=name, **metadata), spec=LeaseSpec(lease_duration_seconds=seconds)))


async def set_seconds(client: Client, seconds: int, name: str = "a") -> None:
    await client.patch(Lease, name, {"spec": {"leaseDurationSeconds": seconds}})


async def recorded(client: Client, text: str) -> Lease:
    """When the record says so."""
    return await client.wait_for(Lease, "a", lambda objects: text in objects.metadata.annotations.get(RECORD, ""), timeout=30)


async def begun(client: Client) -> Lease:
    """When the record says that the creation is handled."""
    return await client.wait_for(
        Lease, "a", lambda objects: '"create"' not in objects.metadata.annotations.get(RECORD, '"create"'), timeout=30
    )


class All(HandlerController[Lease]):
    """One of each."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    @on_resume
    async def resumed(self, lease: Lease) -> None:
        self.calls.add("resumed", lease.metadata.name)

    @on_create
    async def created(self, lease: Lease) -> None:
        assert FINALIZER in lease.metadata.finalizers, "nothing is made before it is sure to be tidied up"
        self.calls.add("created", lease.metadata.name)

    @on_change("spec.leaseDurationSeconds")
    async def changed(self, lease: Lease, old: int | None, new: int | None) -> None:
        assert lease.spec is not None
        assert lease.spec.lease_duration_seconds == new
        self.calls.add(old, new)

    @on_delete
    async def deleted(self, lease: Lease) -> None:
        self.calls.add("deleted", lease.metadata.name)


async def test_handlers_get_the_life_of_an_object_in_order_and_each_step_once(client: Client) -> None:
    calls = Calls()
    async with running(client, All(calls)):
        await make(client)
        await begun(client)
        await calls.wait_for_events(("created", "a"))
        await set_seconds(client, 4)
        await calls.wait_for_events((3, 4))
        await recorded(client, '"v":4')
        await client.delete(Lease, "a")
        await client.wait_gone(Lease, "a", timeout=30)
    assert calls.found == [("resumed", "a"), ("created", "a"), (3, 4), ("deleted", "a")]


async def test_a_restart_goes_on_where_the_last_run_ended(client: Client) -> None:
    calls = Calls()
    async with running(client, All(calls)):
        await make(client)
        await calls.wait_for_events(("created", "a"))
        await begun(client)
    await set_seconds(client, 7)
    await set_seconds(client, 5)
    await make(client, "b")
    again = Calls()
    async with running(client, All(again)):
        await again.wait_for_events((3, 5), ("created", "b"))
        await recorded(client, '"v":5')
        await client.delete(Lease, "a")
        await client.delete(Lease, "b")
        for name in ("a", "b"):
            await client.wait_gone(Lease, name, timeout=30)
    later_calls = [call for call in again.found if call[0] != "resumed"]
    assert later_calls[:2] in ([(3, 5), ("created", "b")], [("created", "b"), (3, 5)]), "what was handled is not handled again"
    assert sorted(later_calls[2:]) == [("deleted", "a"), ("deleted", "b")]
    assert again.found.count(("resumed", "a")) == 1, "once in each run"


async def test_a_handler_that_fails_is_tried_again_and_the_others_are_not(client: Client) -> None:
    calls = Calls()

    class Picky(HandlerController[Lease]):
        tries = 0

        @on_create
        async def good(self, lease: Lease) -> None:
            calls.add("good")

        @on_create(backoff=0.001)
        async def bad(self, lease: Lease) -> None:
            self.tries += 1
            if self.tries == 1:
                raise KubeloopError("not yet")
            if self.tries == 2:
                raise RuntimeError("a mistake")
            calls.add("bad")

        @on_change("spec.leaseDurationSeconds")
        async def changed(self, lease: Lease, old: int | None, new: int | None) -> None:
            calls.add(old, new)

    picky = Picky()
    async with Manager(client, [picky], namespace=client.namespace) as manager:
        await make(client)
        await calls.wait_for_events("bad")
        await set_seconds(client, 4)
        await calls.wait_for_events((3, 4))
        assert picky.handler_errors == 2
        (stats,) = manager.stats
        assert stats.counts.errors == 2, "a reconcile in which a handler failed is a failed one"
        assert stats.counts.last_error == "handler bad: RuntimeError: a mistake"
    assert calls.found == ["good", "bad", (3, 4)]


async def test_a_terminal_error_or_too_many_failures_give_a_handler_up_until_something_is_new(client: Client) -> None:
    calls = Calls()

    class Doomed(HandlerController[Lease]):
        @on_change("spec.leaseDurationSeconds")
        async def terminal(self, lease: Lease, old: int | None, new: int | None) -> None:
            calls.add("terminal", old, new)
            raise TerminalError("cannot be so short")

        @on_change("spec.leaseDurationSeconds", retries=2, backoff=0.001)
        async def limited(self, lease: Lease, old: int | None, new: int | None) -> None:
            calls.add("limited", old, new)
            raise KubeloopError("no luck")

        @on_delete(retries=1)
        async def gone(self, lease: Lease) -> None:
            calls.add("gone")
            raise KubeloopError("does not keep the object forever")

    async with running(client, Doomed()):
        await make(client)
        await recorded(client, '"v":3')
        await set_seconds(client, 4)
        await client.wait_for(Lease, "a", lambda obj: obj.metadata.annotations[RECORD].count('"v":4') == 2, timeout=30)
        await set_seconds(client, 5)
        await calls.wait_for_events(("limited", 4, 5), ("terminal", 4, 5))
        await client.wait_for(Lease, "a", lambda obj: obj.metadata.annotations[RECORD].count('"v":5') == 2, timeout=30)
        await client.delete(Lease, "a")
        await client.wait_gone(Lease, "a", timeout=30)
    later_calls = await client.wait_for_events(
        Event, lambda event: event.object.reason == "HandlerFailed", timeout=30, namespace=client.namespace
    )
    assert (later_calls.object.message or "").startswith(
        ("terminal: cannot be so short", "limited: failed 2 times", "gone: failed 1 times")
    )
    first = [("terminal", 3, 4), ("limited", 3, 4), ("limited", 3, 4)]
    assert calls.found == [*first, ("terminal", 4, 5), ("limited", 4, 5), ("limited", 4, 5), "gone"]


async def test_changes_to_and_fro_are_none_and_handlers_of_changes_wait_for_the_creation(client: Client) -> None:
    calls, go_on = Calls(), asyncio.Event()

    class Slow(HandlerController[Lease]):
        @on_create
        async def created(self, lease: Lease) -> None:
            calls.add("creating")
            await go_on.wait()

        @on_change("spec.leaseDurationSeconds")
        async def changed(self, lease: Lease, old: int | None, new: int | None) -> None:
            calls.add(old, new)

        @on_change("metadata.labels")
        async def labelled(self, lease: Lease, old: dict[str, str] | None, new: dict[str, str] | None) -> None:
            calls.add("labels", new)

    async with running(client, Slow()):
        await make(client)
        await calls.wait_for_events("creating")
        for seconds in (4, 5, 3):
            await set_seconds(client, seconds)
        await client.patch(Lease, "a", {"metadata": {"labels": {"x": "y"}}})
        go_on.set()
        await calls.wait_for_events(("labels", {"x": "y"}))
    assert calls.found == ["creating", ("labels", {"x": "y"})], "from 3 to 3 is no change"


async def test_an_old_value_that_was_too_large_to_keep_is_unknown(client: Client) -> None:
    calls = Calls()

    class Big(HandlerController[Lease]):
        @on_change("metadata.annotations.big")
        async def changed(self, lease: Lease, old: Any, new: Any) -> None:
            calls.add(old if old is UNKNOWN else len(old), None if new is None else len(new))

    async with running(client, Big()):
        await make(client, annotations={"big": "x" * 5000})
        found = await recorded(client, "seen")
        assert len(found.metadata.annotations[RECORD]) < 200
        await client.patch(Lease, "a", {"metadata": {"annotations": {"big": "y" * 10}}})
        await calls.wait_for_events((UNKNOWN, 10))
        await recorded(client, "yyyy")
        await client.patch(Lease, "a", {"metadata": {"annotations": {"big": None}}})
        await calls.wait_for_events((10, None))


async def test_timers_go_on_until_the_object_goes(client: Client) -> None:
    calls = Calls()

    class Ticking(HandlerController[Lease]):
        ticks = 0

        @every(0.005)
        async def tick(self, lease: Lease) -> None:
            self.ticks += 1
            calls.add(self.ticks)
            if self.ticks == 2:
                raise KubeloopError("is tried again, as a timer is anyway")

        @every(3600, initial_delay=3600)
        async def never(self, lease: Lease) -> None:
            calls.add("never")

    ticking = Ticking()
    async with running(client, ticking):
        lease = await make(client)
        await calls.wait_for_events(4)
        now = await client.get(Lease, "a")
        assert now.metadata.resource_version == lease.metadata.resource_version, "timers write nothing"
        await client.delete(Lease, "a")
        await client.wait_gone(Lease, "a", timeout=30)
    assert "never" not in calls.found


async def test_plain_handlers_run_in_threads(client: Client) -> None:
    calls = Calls()
    loop, main = asyncio.get_running_loop(), threading.current_thread()

    class PlainController(HandlerController[Lease]):
        @on_create
        def created(self, lease: Lease) -> None:
            assert threading.current_thread() is not main
            lease.metadata.name = "the handler's own copy"
            loop.call_soon_threadsafe(calls.add, "created")

        @on_delete(backoff=0.001)
        def deleted(self, lease: Lease) -> None:
            loop.call_soon_threadsafe(calls.add, "deleted")
            if calls.found.count("deleted") < 1:
                raise KubeloopError("once more")

    async with running(client, PlainController()):
        await make(client)
        await calls.wait_for_events("created")
        await client.delete(Lease, "a")
        await client.wait_gone(Lease, "a", timeout=30)
    assert calls.found[0] == "created"
    assert set(calls.found[1:]) == {"deleted"}


async def test_a_handler_that_takes_too_long_is_cancelled_and_tried_again(client: Client) -> None:
    calls = Calls()

    class Hanging(HandlerController[Lease]):
        @on_create(timeout=0.01, backoff=0.001)
        async def created(self, lease: Lease) -> None:
            calls.add("begun")
            if calls.found.count("begun") == 1:
                await asyncio.Event().wait()

    async with running(client, Hanging()):
        await make(client)
        await client.wait_for(Lease, "a", lambda obj: obj.metadata.annotations.get(RECORD) == "{}", timeout=30)
    assert calls.found[:2] == ["begun", "begun"]


async def test_a_pass_that_is_cancelled_loses_no_progress(client: Client) -> None:
    calls = Calls()

    class Cut(HandlerController[Lease], timeout=0.5):
        @on_create
        async def first(self, lease: Lease) -> None:
            calls.add("first")

        @on_create
        async def second(self, lease: Lease) -> None:
            calls.add("second")
            if calls.found.count("second") == 1:
                await asyncio.Event().wait()

    async with running(client, Cut()):
        await make(client)
        await begun(client)
    assert calls.found.count("first") == 1
    assert calls.found.count("second") >= 2


async def test_a_finalizer_of_an_older_version_of_the_program_is_removed(client: Client) -> None:
    calls = Calls()

    class Newer(HandlerController[Lease]):
        @on_create
        async def created(self, lease: Lease) -> None:
            calls.add("created")

    await make(client, finalizers=[FINALIZER, "example.com/other"])
    async with running(client, Newer()):
        await calls.wait_for_events("created")
        await client.wait_for(Lease, "a", lambda obj: obj.metadata.finalizers == ["example.com/other"], timeout=30)
    await client.patch(Lease, "a", {"metadata": {"finalizers": None}})


async def test_taking_the_record_off_has_the_creation_handled_again_and_nonsense_in_it_does_not(client: Client) -> None:
    calls = Calls()
    async with running(client, All(calls)):
        await make(client)
        await calls.wait_for_events(("created", "a"))
        await begun(client)
        await client.patch(Lease, "a", {"metadata": {"annotations": {RECORD: "nonsense"}}})
        await recorded(client, '"v":3')
        assert calls.found.count(("created", "a")) == 1
        await client.patch(Lease, "a", {"metadata": {"annotations": {RECORD: None}}})
        await client.wait_for(Lease, "a", lambda _: calls.found.count(("created", "a")) == 2, timeout=30)
        await client.delete(Lease, "a")
        await client.wait_gone(Lease, "a", timeout=30)


async def test_an_unstructured_kind_is_handled_alike_and_costs_one_write(client: Client) -> None:
    calls, written = Calls(), list[str]()

    class Tree(HandlerController[Unstructured.for_kind("coordination.k8s.io/v1", "Lease")]):  # type: ignore[misc]  # a class made by a call
        @on_create
        async def created(self, lease: Unstructured) -> None:
            calls.add("created")

        @on_change("spec.anything.at.all")
        async def changed(self, lease: Unstructured, old: Any, new: Any) -> None:
            calls.add(old, new)

    def heard(write: Write) -> None:
        written.append(write.verb)

    async with running(client, Tree()):
        stop = client.on_write(heard)
        await make(client)
        await calls.wait_for_events("created")
        await begun(client)
        stop()
    assert written == ["create", "patch", "patch"], "the first sight and the end of the creation"
