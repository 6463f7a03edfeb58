"""A reconcile never decides on a state older than what its predecessor wrote, however late the watch is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap, Container, Pod, PodSpec, Secret
from kubeloop.cache import InformerFactory, WatchPolicy
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.controller import Controller, ControllerBase, HandlerController, Manager, Owns, Result, on_create, set_controller_reference
from kubeloop.controller.election import LeaseConfig
from kubeloop.controller.reader import stale_read_guard
from kubeloop.controller.sharding import ShardConfig
from kubeloop.meta import InternalError, Invalid, KubeloopError, ObjectMeta, Status
from kubeloop.testing import HandlerServer, RecordedCall, on
from kubeloop.timing import Backoff

pytestmark = pytest.mark.embedded


@pytest.fixture
async def server() -> AsyncIterator[HandlerServer]:
    async with HandlerServer() as found:
        yield found


def secret(name: str = "s", **data: str) -> Secret:
    return Secret(metadata=ObjectMeta(name=name, namespace="default"), string_data=dict(data))


def pod() -> Pod:
    return Pod(metadata=ObjectMeta(name="p", namespace="default"), spec=PodSpec(containers=[Container(name="c", image="i")]))


class Twice(Controller[ConfigMap], owns=[Owns(Secret), Owns(Pod)], name="twice"):
    """Writes in its first reconcile, and notes in the second what it sees."""

    def __init__(self, write: Callable[[Client], Awaitable[Any]], look: Callable[[Twice], Any]) -> None:
        self.write = write
        self.look = look
        self.seen: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.written = False

    async def reconcile(self, config: ConfigMap) -> Result | None:
        if not self.written:
            self.written = True
            await self.write(self.client)
            return Result(requeue_after=0.001)
        if not self.seen.done():
            self.seen.set_result(self.look(self))
        return None


async def _update(client: Client) -> None:
    found = await client.get(Secret, "s")
    found.string_data = {"k": "new"}
    await client.update(found)


async def _status(client: Client) -> None:
    found = await client.get(Pod, "p")
    found.status.phase = "Running"
    await client.update_status(found)


def _data(controller: Twice) -> object:
    found = controller.cached.get(Secret, "s", "default")
    return None if found is None else found.data.get("k")


def _label(controller: Twice) -> object:
    found = controller.cached.get(Secret, "s", "default")
    return None if found is None else found.metadata.labels


def _phase(controller: Twice) -> object:
    found = controller.cached.get(Pod, "p", "default")
    return None if found is None else found.status.phase


def _names(controller: Twice) -> object:
    return sorted(one.metadata.name for one in controller.cached.list(Secret, "default"))


WRITES = [
    pytest.param(lambda client: client.create(secret("t")), _names, ["s", "t"], id="what was created"),
    pytest.param(_update, _data, b"new", id="what was updated"),
    pytest.param(lambda client: client.patch(Secret, "s", {"data": {"k": "bmV3"}}), _data, b"new", id="what was patched"),
    pytest.param(
        lambda client: client.patch(Secret, "s", [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], type="json"),
        _label,
        {"a": "b"},
        id="what a JSON patch changed",
    ),
    pytest.param(
        lambda client: client.apply(Secret(metadata=ObjectMeta(name="s"), data={"k": b"new"}), field_manager="test", force=True),
        _data,
        b"new",
        id="what was applied",
    ),
    pytest.param(_status, _phase, "Running", id="a status"),
    pytest.param(
        lambda client: client.patch(Pod, "p", {"status": {"phase": "Failed"}}, subresource="status"),
        _phase,
        "Failed",
        id="a patched status",
    ),
    pytest.param(lambda client: client.in_namespace("default").create(secret("t")), _names, ["s", "t"], id="through a view of the client"),
]
ENDS = [
    pytest.param(lambda client: client.delete(Secret, "s"), _names, [], id="that it was deleted"),
    pytest.param(
        lambda client: client.delete(Pod, "p", grace_period_seconds=0),
        lambda controller: controller.cached.get(Pod, "p", "default"),
        None,
        id="that a pod was deleted at once",
    ),
]


@asynccontextmanager
async def late_watches(
    server: HandlerServer, controller: ControllerBase[ConfigMap], *, overlaid: bool
) -> AsyncIterator[tuple[Manager, Callable[[], None]]]:
    """A manager runs the controller. Watches of what it writes are held from before its first reconcile until the function is called."""
    client = server.client()
    await client.create(ConfigMap(metadata=ObjectMeta(name="c")))
    controller.pause()
    # Streams that were cut are opened again at once: what holds them is the server.
    policy = WatchPolicy(backoff=lambda: Backoff(initial=0.001, cap=0.001))
    async with (
        InformerFactory(client, read_your_writes=overlaid, policy=policy) as informers,
        Manager(client, [controller], informers=informers) as manager,
    ):
        let_go = server.faults.hold(matching=lambda request: on("watch", Secret)(request) or on("watch", Pod)(request))
        server.faults.cut_streams()
        server.faults.calls.clear()
        controller.resume()
        yield manager, let_go
        let_go()


@pytest.mark.parametrize(("write", "look", "expected"), WRITES + ENDS)
async def test_the_next_reconcile_sees_though_the_watch_is_late(
    server: HandlerServer, write: Callable[[Client], Awaitable[Any]], look: Callable[[Twice], Any], expected: object
) -> None:
    await server.client().create(secret(k="old"))
    await server.client().create(pod())
    controller = Twice(write, look)
    async with late_watches(server, controller, overlaid=True):
        assert await asyncio.wait_for(controller.seen, 10) == expected


@pytest.mark.parametrize(("write", "look", "expected"), WRITES)
async def test_where_caches_do_not_show_own_writes_the_next_reconcile_waits_for_the_watch_and_sees(
    server: HandlerServer, write: Callable[[Client], Awaitable[Any]], look: Callable[[Twice], Any], expected: object
) -> None:
    await server.client().create(secret(k="old"))
    await server.client().create(pod())
    controller = Twice(write, look)
    async with late_watches(server, controller, overlaid=False) as (manager, let_go):
        async with asyncio.timeout(10):
            while not (manager.stats[0].counts.reconciles == manager.stats[0].counts.active == 1):
                await asyncio.sleep(0.001)
        assert not controller.seen.done()
        let_go()
        assert await asyncio.wait_for(controller.seen, 10) == expected


class Maker(Controller[ConfigMap], owns=[Secret], name="maker"):
    """Creates one child with a name that the server makes: asked twice, there would be two."""

    def __init__(self) -> None:
        self.reconciles = 0
        self.made: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def reconcile(self, config: ConfigMap) -> None:
        self.reconciles += 1
        owned = self.owned(Secret, config)
        if owned:
            if not self.made.done():
                self.made.set_result(len(owned))
            return
        child = Secret(metadata=ObjectMeta(generate_name="child-", namespace="default"))
        set_controller_reference(config, child)
        await self.client.create(child)


class Impatient(Maker, timeout=0.2, name="impatient"):
    """As ``Maker``, cancelled when the answer takes too long."""


class Quiet(Maker, name="quiet"):
    """As ``Maker``, and says in its own words what went wrong."""

    async def reconcile(self, config: ConfigMap) -> None:
        try:
            await super().reconcile(config)
        except KubeloopError as error:
            raise RuntimeError("it did not work") from error


class ByHandler(HandlerController[ConfigMap], owns=[Secret], name="by-handler"):
    """As ``Maker``, in a handler, whose errors are kept from the reconcile."""

    def __init__(self) -> None:
        self.reconciles = 0
        self.made: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @on_create(backoff=0.001)
    async def begin(self, config: ConfigMap) -> None:
        self.reconciles += 1
        owned = self.owned(Secret, config)
        if not owned:
            child = Secret(metadata=ObjectMeta(generate_name="child-", namespace="default"))
            set_controller_reference(config, child)
            await self.client.create(child)
        if not self.made.done():
            self.made.set_result(len(owned))


@pytest.mark.parametrize(
    ("maker", "hangs"),
    [
        pytest.param(ByHandler, False, id="in a handler"),
        pytest.param(Maker, False, id="the server carried it out and answered with an error"),
        pytest.param(Quiet, False, id="the same, in other words"),
        pytest.param(Impatient, True, id="the server carried it out, and the answer took longer than the reconcile may"),
    ],
)
async def test_a_child_whose_creation_got_no_answer_is_not_created_twice(
    server: HandlerServer, maker: type[Maker | ByHandler], hangs: bool
) -> None:
    behind = server.client()
    controller = maker()
    creations = 0

    async def carried_out(call: RecordedCall) -> InternalError | None:
        nonlocal creations
        creations += 1
        if creations > 1:
            return None
        await behind.create(Secret.from_dict(call.body))
        if hangs:
            await asyncio.Event().wait()
        return InternalError(Status(code=500, reason="InternalError", message="lost on the way"))

    async with late_watches(server, controller, overlaid=True) as (manager, let_go):
        server.faults.react(carried_out, matching=on("create", Secret))
        async with asyncio.timeout(10):
            while not (manager.stats[0].counts.reconciles == manager.stats[0].counts.active == 1):
                await asyncio.sleep(0.001)
        assert (controller.reconciles, manager.stats[0].counts.errors) == (1, 1), "the next one waits for the cache"
        let_go()
        assert await asyncio.wait_for(controller.made, 10) == 1
    assert len(await behind.list(Secret, namespace=ALL_NAMESPACES)) == 1
    assert creations == 2, "the reconcile's, and the one behind its back"


async def test_a_stop_waits_for_no_cache(server: HandlerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting key is no reconcile yet: the grace is for started reconciles."""
    monkeypatch.setattr(stale_read_guard, "PATIENCE", 1000.0)
    behind = server.client()
    controller = Maker()
    creations = 0

    async def carried_out(call: RecordedCall) -> InternalError | None:
        nonlocal creations
        creations += 1
        if creations > 1:
            return None
        await behind.create(Secret.from_dict(call.body))
        return InternalError(Status(code=500, reason="InternalError", message="lost on the way"))

    async with late_watches(server, controller, overlaid=True) as (manager, let_go):
        server.faults.react(carried_out, matching=on("create", Secret))
        async with asyncio.timeout(10):
            while not (manager.stats[0].counts.reconciles == manager.stats[0].counts.active == 1):
                await asyncio.sleep(0.001)
        await asyncio.wait_for(manager.stop(), 30)
        assert controller.reconciles == 1
        let_go()


async def test_after_a_refusal_there_is_nothing_to_wait_for(server: HandlerServer) -> None:
    controller = Maker()
    server.faults.refuse(Invalid, matching=on("create", Secret))
    async with late_watches(server, controller, overlaid=True) as (_, let_go):
        let_go()
        assert await asyncio.wait_for(controller.made, 10) == 1
    assert not [call for call in server.faults.calls if call.verb == "list" and "resourceVersion" not in call.query]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(lambda name: {"leader_election": LeaseConfig("lock", "default", name, retry_period=0.02)}, id="the next leader"),
        pytest.param(
            lambda name: {"sharding": ShardConfig("group", "default", name, retry_period=0.02)}, id="a replica that shares the keys"
        ),
    ],
)
async def test_who_takes_over_waits_for_what_the_one_before_wrote(server: HandlerServer, options: Callable[[str], dict[str, Any]]) -> None:
    """Its cache was synced long ago, and its watches are late: the child that the other one made last is not made twice."""
    behind = server.client()
    await behind.create(ConfigMap(metadata=ObjectMeta(name="c")))
    makers = [Maker(), Maker()]
    policy = WatchPolicy(backoff=lambda: Backoff(initial=0.001, cap=0.001))
    async with contextlib.AsyncExitStack() as stack:
        managers = []
        for number, maker in enumerate(makers):
            maker.pause()
            client = server.client()
            informers = await stack.enter_async_context(InformerFactory(client, policy=policy))
            await informers.for_kind(Secret, namespace=ALL_NAMESPACES).wait_synced(10)
            manager = Manager(client, [maker], informers=informers, **options(f"replica-{number}"))
            managers.append(await stack.enter_async_context(manager))
        let_go = server.faults.hold(matching=on("watch", Secret))
        server.faults.cut_streams()
        for maker in makers:
            maker.resume()
        async with asyncio.timeout(20):
            while not await behind.list(Secret, namespace=ALL_NAMESPACES):
                await asyncio.sleep(0.001)
        before = 0 if makers[0].reconciles else 1
        await managers[before].stop()
        next_manager, next_maker = managers[1 - before], makers[1 - before]
        async with asyncio.timeout(20):
            while not next_manager.stats[0].counts.active and not next_maker.reconciles:
                await asyncio.sleep(0.001)
        assert next_maker.reconciles == 0, "it waits for its cache"
        let_go()
        assert await asyncio.wait_for(next_maker.made, 20) == 1
        assert len(await behind.list(Secret, namespace=ALL_NAMESPACES)) == 1
