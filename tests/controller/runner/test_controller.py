"""Controllers over an API server: what leads to a reconcile, what it reads, where it runs."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap, Secret, ServiceAccount
from kubeloop.client import Client
from kubeloop.controller import (
    Controller,
    ControllerBase,
    DeclarationError,
    KeyController,
    Manager,
    Result,
    WatchedKind,
    labels_match,
    set_controller_reference,
)
from kubeloop.meta import KubeloopError, ObjectKey, ObjectMeta

pytestmark = pytest.mark.server


class Calls:
    """What reconciles have noted; waits until it is what a test wants."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._changed = asyncio.Event()

    def add(self, event: Any) -> None:
        self.found.append(event)
        self._changed.set()

    async def until(self, expected: Any) -> None:
        async with asyncio.timeout(10):
            while expected not in self.found:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def running(client: Client, *controllers: ControllerBase[Any]) -> AsyncIterator[Manager]:
    async with Manager(client, controllers, namespace=client.namespace) as manager:
        yield manager


def config(name: str, **metadata: Any) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, **metadata))


class SecretMaker(Controller[ConfigMap], owns=[Secret], workers=2, predicates=[labels_match("make=secret")], name="secret-maker"):
    """Gives each labelled ConfigMap its own Secret."""

    async def reconcile(self, config: ConfigMap) -> Result | None:
        if not self.owned(Secret, config):
            secret = Secret(metadata=ObjectMeta(generate_name=f"{config.metadata.name}-", namespace=config.metadata.namespace))
            set_controller_reference(config, secret)
            await self.client.create(secret)
        return None


async def test_an_owned_object_that_is_deleted_is_made_again(client: Client) -> None:
    async with running(client, SecretMaker()):
        owner = await client.create(config("c", labels={"make": "secret"}))
        await client.create(config("other"))
        for _ in range(2):
            async with client.watch(Secret, namespace=client.namespace) as events:
                async for event in events:
                    if event.type == "ADDED" and event.object.metadata.name.startswith("c-"):
                        assert event.object.metadata.owner_references[0].uid == owner.metadata.uid
                        await client.delete(event.object)
                        break


async def test_a_watch_reconciles_what_its_function_names_for_the_old_state_and_the_new(client: Client) -> None:
    calls = Calls()

    class Follower(
        KeyController[ConfigMap],
        watches=[
            WatchedKind(
                Secret,
                to=lambda secret: [ObjectKey("", secret.namespace, secret.value("data.target") or "")],
                paths=("data.target",),
            )
        ],
    ):
        async def reconcile(self, key: ObjectKey) -> None:
            calls.add(key.name)

    async with running(client, Follower()):
        await client.create(Secret(metadata=ObjectMeta(name="s"), string_data={"target": "x"}))
        await calls.until("eA==")
        calls.found.clear()
        await client.patch(Secret, "s", {"stringData": {"target": "y"}})
        await calls.until("eA==")
        await calls.until("eQ==")


async def test_a_key_controller_is_called_for_an_object_that_is_gone(client: Client) -> None:
    calls = Calls()

    class Tidy(KeyController[ConfigMap]):
        async def reconcile(self, key: ObjectKey) -> None:
            calls.add((key.name, self.lister(ConfigMap).by_key(key) is not None))

    async with running(client, Tidy()):
        await client.create(config("c"))
        await calls.until(("c", True))
        await client.delete(ConfigMap, "c")
        await calls.until(("c", False))


async def test_a_plain_reconcile_runs_in_threads_as_many_as_there_are_workers(client: Client) -> None:
    together = threading.Barrier(2, timeout=10)
    calls = Calls()
    loop = asyncio.get_running_loop()
    main = threading.current_thread()

    class PlainController(Controller[ConfigMap], workers=2, predicates=[labels_match("plain")]):
        def reconcile(self, config: ConfigMap) -> Result | None:
            assert threading.current_thread() is not main
            together.wait()
            self.events.normal(config, "Seen", "from a thread")
            loop.call_soon_threadsafe(calls.add, config.metadata.name)
            return None

    async with running(client, PlainController()):
        for name in ("a", "b"):
            await client.create(config(name, labels={"plain": ""}))
        await calls.until("a")
        await calls.until("b")


async def test_an_error_is_tried_again_with_the_newest_state(client: Client) -> None:
    calls = Calls()

    class Picky(Controller[ConfigMap], predicates=[labels_match("picky")]):
        async def reconcile(self, config: ConfigMap) -> None:
            calls.add(config.data.get("k", "missing"))
            if config.data.get("k") != "good":
                raise KubeloopError("not good")

    async with running(client, Picky()) as manager:
        await client.create(config("c", labels={"picky": ""}))
        await calls.until("missing")
        await client.patch(ConfigMap, "c", {"data": {"k": "good"}})
        await calls.until("good")
        assert manager.stats[0].counts.errors >= 1


@pytest.mark.parametrize(
    ("key", "after", "priority"),
    [
        pytest.param("default/a", 0, 0, id="text for a key"),
        pytest.param(("", "default", "a"), 0, 0, id="a tuple for a key"),
        pytest.param(ObjectKey("", "default", "a"), "1", 0, id="text for seconds"),
        pytest.param(ObjectKey("", "default", "a"), 0, "high", id="text for a priority"),
    ],
)
def test_what_cannot_be_enqueued_is_refused_where_it_is_given(key: Any, after: Any, priority: Any) -> None:
    class Named(Controller[ConfigMap]):
        async def reconcile(self, config: ConfigMap) -> None: ...

    with pytest.raises(TypeError, match=r"Named.enqueue\(.*give an ObjectKey"):
        Named().enqueue(key, after, priority=priority)


async def test_a_key_may_be_enqueued_by_hand_also_from_a_thread(client: Client) -> None:
    calls = Calls()

    class ByHand(KeyController[ServiceAccount], name="by-hand"):
        async def reconcile(self, key: ObjectKey) -> None:
            calls.add(key)

    controller = ByHand()
    async with running(client, controller):
        await asyncio.to_thread(controller.enqueue, ObjectKey("", client.namespace, "invented"))
        await calls.until(ObjectKey(client.cluster, client.namespace, "invented"))


async def test_a_kind_without_an_informer_is_an_error_that_names_the_way_out(client: Client) -> None:
    calls = Calls()

    class Careless(Controller[ConfigMap], predicates=[labels_match("careless")], reads=[ServiceAccount]):
        async def reconcile(self, config: ConfigMap) -> None:
            assert self.lister(ServiceAccount).get("absent", config.metadata.namespace) is None
            try:
                self.lister(Secret)
            except DeclarationError as error:
                calls.add(str(error))

    async with running(client, Careless()):
        await client.create(config("c", labels={"careless": ""}))
        await calls.until("Careless has no informer for Secret; name it in owns=[...], watches=[...] or reads=[Secret]")
