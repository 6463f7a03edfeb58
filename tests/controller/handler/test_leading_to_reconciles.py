"""Mappings, sources, pauses and metadata-only watches, from a change on a server to the reconcile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from kubeloop.api.core.v1 import ConfigMap, Secret, ServiceAccount
from kubeloop.cache import Head, InformerEvent
from kubeloop.client import Client
from kubeloop.controller import (
    Channel,
    Controller,
    ControllerBase,
    DeclarationError,
    KeyController,
    Manager,
    Owns,
    Predicate,
    Result,
    WatchedKind,
    generation_changed,
    labels_match,
    set_owner_reference,
    to_field,
    to_index,
    to_label,
)
from kubeloop.meta import ApiError, DeadlineError, Forbidden, KubeloopError, NotFound, ObjectKey, ObjectMeta, Status
from kubeloop.testing import HandlerServer, on
from kubeloop.timing import FakeClock

pytestmark = pytest.mark.embedded


@pytest.fixture
async def server() -> AsyncIterator[HandlerServer]:
    async with HandlerServer() as found:
        yield found


@pytest.fixture
def client(server: HandlerServer) -> Client:
    return server.client()


class Noted(KeyController[ConfigMap], name="noted"):
    """Records the keys that it is called for. Changes of its main kind lead to no reconcile: only the tested source does."""

    predicates = (~labels_match("") & labels_match(""),)

    def __init__(self, sources: Iterable[Channel[Any]] = ()) -> None:
        self.sources = list(sources)
        self.keys: list[str] = []
        self.changed = asyncio.Event()

    async def reconcile(self, key: ObjectKey) -> Result | None:
        self.keys.append(str(key))
        self.changed.set()
        return None

    async def until(self, *keys: str) -> None:
        async with asyncio.timeout(10):
            while not set(keys) <= set(self.keys):
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def running(client: Client, controller: ControllerBase[Any]) -> AsyncIterator[Manager]:
    async with Manager(client, [controller]) as manager:
        yield manager


def meta(name: str, **more: Any) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="default", **more)


class ByIndex(Noted, watches=[WatchedKind(Secret, to=to_index("secret"))], indexes={ConfigMap: {"secret": "data.secretName"}}):
    """Objects that refer to a Secret."""


class Anywhere(
    Noted, watches=[WatchedKind(Secret, to=to_index("secret", anywhere=True))], indexes={ConfigMap: {"secret": "data.secretName"}}
):
    """In whatever namespace they are."""


async def test_objects_that_refer_to_the_changed_one_are_found_by_their_index(client: Client) -> None:
    for name, namespace, secret in (("a", "default", "s"), ("b", "default", "other"), ("c", "kube-system", "s")):
        await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data={"secretName": secret}))
    here, anywhere = ByIndex(), Anywhere()
    async with running(client, here):
        await client.create(Secret(metadata=meta("s")))
        await here.until("default/a")
        assert here.keys == ["default/a"]
    async with running(client, anywhere):
        await client.patch(Secret, "s", {"metadata": {"labels": {"a": "b"}}})
        await anywhere.until("default/a", "kube-system/c")


async def test_an_index_that_is_not_there_stops_the_start_and_is_named(client: Client) -> None:
    class Wrong(Noted, watches=[WatchedKind(Secret, to=to_index("missing"))]):
        pass

    with pytest.raises(KubeloopError, match=r'Wrong: the watch of Secret cannot be mapped: .*"missing"'):
        await Manager(client, [Wrong()]).start()


class ByMethod(Noted, watches=[WatchedKind(Secret, to="everything"), WatchedKind(ServiceAccount, to=to_label("of"), metadata_only=True)]):
    """A method maps, which reads the cache; of ServiceAccounts only metadata comes."""

    async def everything(self, head: Head) -> list[ObjectKey]:
        await asyncio.sleep(0)
        return [ObjectKey("", one.namespace, f"{one.name}-{head.name}") for one in self.cached.heads(ConfigMap, "default")]


async def test_a_method_of_the_controller_may_map_and_be_async(client: Client) -> None:
    await client.create(ConfigMap(metadata=meta("a")))
    controller = ByMethod()
    async with running(client, controller):
        await client.create(Secret(metadata=meta("s")))
        await controller.until("default/a-s")


async def test_of_a_kind_that_is_watched_for_metadata_nothing_else_is_asked(server: HandlerServer, client: Client) -> None:
    controller = ByMethod()
    async with running(client, controller):
        await client.create(ServiceAccount(metadata=meta("account", labels={"of": "web"})))
        await controller.until("default/web")
        found = controller.metadata_lister(ServiceAccount).get("account", "default")
        assert found is not None
        assert found.metadata.labels == {"of": "web"}


class EveryOwner(Noted, owns=[Owns(Secret, every_owner=True)]):
    """Owners that are no controllers count."""


async def test_owners_that_are_no_controllers_are_reconciled_on_request(client: Client) -> None:
    owner = await client.create(ConfigMap(metadata=meta("owner")))
    controller = EveryOwner()
    async with running(client, controller):
        child = Secret(metadata=meta("child"))
        set_owner_reference(owner, child)
        await client.create(child)
        await controller.until("default/owner")


async def test_a_field_names_what_to_reconcile_now_and_before(client: Client) -> None:
    class ByField(Noted, watches=[WatchedKind(ServiceAccount, to=to_field('metadata.annotations["of"]'))]):
        pass

    controller = ByField()
    async with running(client, controller):
        account = await client.create(ServiceAccount(metadata=meta("a", annotations={"of": "first"})))
        await controller.until("default/first")
        controller.keys.clear()
        account.metadata.annotations["of"] = "second"
        await client.update(account)
        await controller.until("default/first", "default/second")


async def test_what_comes_from_a_channel_is_reconciled_also_if_it_came_before_the_start(client: Client) -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    queue.put_nowait(ObjectKey("", "default", "early"))
    controller = Noted([Channel(queue)])
    async with running(client, controller):
        await controller.until("default/early")
        queue.put_nowait(ConfigMap(metadata=meta("late")))
        await controller.until("default/late")


class Pausable(Controller[ConfigMap], pause_annotation="example.com/paused", predicates=[generation_changed], name="pausable"):
    """Its predicate lets no change of an annotation pass."""

    def __init__(self) -> None:
        self.seen: asyncio.Queue[str] = asyncio.Queue()

    async def reconcile(self, config: ConfigMap) -> None:
        self.seen.put_nowait(config.metadata.name)


async def test_an_object_with_the_pause_annotation_is_left_alone_until_it_is_taken_off(client: Client) -> None:
    controller = Pausable()
    async with running(client, controller) as manager:
        await client.create(ConfigMap(metadata=meta("paused", annotations={"example.com/paused": "true"})))
        await client.create(ConfigMap(metadata=meta("other", annotations={"example.com/paused": "false"})))
        assert await asyncio.wait_for(controller.seen.get(), 10) == "other"
        while manager.stats[0].counts.reconciles < 2:
            await asyncio.sleep(0.001)
        assert controller.seen.empty()
        await client.patch(ConfigMap, "paused", {"metadata": {"annotations": {"example.com/paused": None}}})
        assert await asyncio.wait_for(controller.seen.get(), 10) == "paused"


class Chosen(Pausable, predicates=[labels_match("chosen")], name="chosen"):
    """Its predicate chooses objects."""


async def test_taking_a_pause_off_lets_no_object_through_that_the_predicates_refuse(client: Client) -> None:
    controller = Chosen()
    async with running(client, controller):
        for name, labels in (("other", {}), ("mine", {"chosen": ""})):
            paused = {"example.com/paused": "true"}
            await client.create(ConfigMap(metadata=meta(name, labels=labels, annotations=paused)))
            await client.patch(ConfigMap, name, {"metadata": {"annotations": {"example.com/paused": None}}})
        seen = {await asyncio.wait_for(controller.seen.get(), 10)}
        while not controller.seen.empty():
            seen.add(controller.seen.get_nowait())
        assert seen == {"mine"}, "once or twice: its creation may be heard of when it is paused no more"


class Outlines(KeyController[ConfigMap], metadata_only=True, name="outlines"):
    """For its main kind it keeps metadata only."""

    def __init__(self) -> None:
        self.seen: asyncio.Queue[Mapping[str, str]] = asyncio.Queue()

    async def reconcile(self, key: ObjectKey) -> None:
        found = self.metadata_lister(ConfigMap).by_key(key)
        assert found is not None
        self.seen.put_nowait(found.metadata.labels)


async def test_a_controller_may_keep_only_the_metadata_of_its_main_kind(server: HandlerServer, client: Client) -> None:
    controller = Outlines()
    async with running(client, controller):
        await client.create(ConfigMap(metadata=meta("c", labels={"a": "b"}), data={"much": "text"}))
        assert await asyncio.wait_for(controller.seen.get(), 10) == {"a": "b"}
        with pytest.raises(DeclarationError, match="keeps only the metadata of ConfigMap objects"):
            controller.lister(ConfigMap)


async def test_a_paused_controller_misses_nothing(client: Client) -> None:
    controller = Pausable()
    async with running(client, controller):
        controller.pause()
        assert controller.paused
        await client.create(ConfigMap(metadata=meta("a")))
        while controller.cached.get(ConfigMap, "a", "default") is None:
            await asyncio.sleep(0.001)
        assert controller.seen.empty()
        controller.resume()
        assert await asyncio.wait_for(controller.seen.get(), 10) == "a"


async def test_what_was_there_already_comes_after_what_has_changed(client: Client) -> None:
    """R216: priorities, from the informer to the reconcile."""
    for number in range(5):
        await client.create(ConfigMap(metadata=meta(f"old-{number}")))

    class Slow(Controller[ConfigMap], name="slow"):
        def __init__(self) -> None:
            self.order: list[str] = []

        async def reconcile(self, config: ConfigMap) -> None:
            self.order.append(config.metadata.name)

    controller = Slow()
    controller.pause()
    async with running(client, controller):
        await client.create(ConfigMap(metadata=meta("new")))
        while controller.cached.get(ConfigMap, "new", "default") is None or len(controller.order) > 0:
            await asyncio.sleep(0.001)
        controller.enqueue(ObjectKey("", "default", "new"), priority=5)
        controller.resume()
        async with asyncio.timeout(10):
            while len(controller.order) < 6:
                await asyncio.sleep(0.001)
    # The one worker holds a key while it is paused: that of an old one.
    assert controller.order[1] == "new"


class NeedsSecrets(Noted, owns=[Secret]):
    """Needs to list and watch Secrets."""


@pytest.mark.parametrize(
    ("refusal", "error", "way"),
    [
        pytest.param(
            Forbidden(Status(code=403, reason="Forbidden", message="secrets is forbidden")),
            Forbidden,
            "grant its account the verbs list and watch there, or remove the kind from the declaration",
            id="a missing permission",
        ),
        pytest.param(
            NotFound(Status(code=404, reason="NotFound", message="the server could not find the requested resource")),
            DeadlineError,
            "the server does not serve it: install its CustomResourceDefinition",
            id="a missing definition",
        ),
    ],
)
async def test_a_start_that_cannot_sync_names_class_kind_verbs_and_the_way_out(
    server: HandlerServer, client: Client, refusal: ApiError, error: type[KubeloopError], way: str
) -> None:
    server.faults.refuse(refusal, times=1000, matching=lambda request: on("list", Secret)(request) or on("watch", Secret)(request))
    with pytest.raises(error) as caught:
        await Manager(client, [NeedsSecrets()], sync_timeout=0.5).start()
    (note,) = caught.value.__notes__
    assert note == f"NeedsSecrets lists and watches secrets in all namespaces, because it declares Secret (owns): {way}" + (
        " (kubectl apply -f)" if error is DeadlineError else ""
    )


async def test_a_plain_reconcile_that_never_returns_keeps_its_key_lets_others_go_on_and_does_not_hold_up_the_end(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    loop = asyncio.get_running_loop()
    seen: list[str] = []

    class Hanging(Controller[ConfigMap], timeout=0.05, name="hanging"):
        def reconcile(self, config: ConfigMap) -> None:
            loop.call_soon_threadsafe(seen.append, config.metadata.name)
            if config.metadata.name == "bad":
                gate.wait(30)

    try:
        async with Manager(client, [Hanging()], grace=0) as manager:
            await client.create(ConfigMap(metadata=meta("bad")))
            while "bad" not in seen:
                await asyncio.sleep(0.001)
            await client.create(ConfigMap(metadata=meta("good")))
            async with asyncio.timeout(20):
                while "good" not in seen:
                    await asyncio.sleep(0.01)
            assert seen.count("bad") == 1
            assert manager.stats[0].counts.hanging == 1
        assert "Hanging: the reconcile of default/bad has been running" in caplog.text
    finally:
        gate.set()


def note_version(event: InformerEvent[Any]) -> bool:
    Patient.seen.append(event.head.resource_version or "")
    return True


class Patient(KeyController[ConfigMap], debounce=5, name="patient"):
    """Reconciles an object that has not changed for five seconds."""

    seen: ClassVar[list[str]] = []
    predicates = (Predicate(note_version),)

    def __init__(self) -> None:
        self.seen.clear()
        self.times: list[float] = []
        self.result: Result | None = None

    async def reconcile(self, key: ObjectKey) -> Result | None:
        if key.name == "c":
            self.times.append(self.clock.now())
            return self.result
        return None


async def test_changes_within_the_debounce_are_one_reconcile_after_the_last_of_them(client: Client) -> None:
    """T233"""
    clock, patient = FakeClock(), Patient()
    await client.create(ConfigMap(metadata=meta("c")))
    async with Manager(client, [patient], clock=clock):
        started = clock.now()
        for number in range(3):
            await clock.advance(3)
            written = await client.patch(ConfigMap, "c", {"data": {"n": str(number)}})
            async with asyncio.timeout(10):
                while written.metadata.resource_version not in patient.seen:
                    await asyncio.sleep(0)
        assert patient.times == []
        await clock.advance(4.9)
        assert patient.times == []
        patient.result = Result(requeue_after=1)
        await clock.advance(0.1)
        assert [time - started for time in patient.times] == [14]
        patient.result = None
        await clock.advance(1)
        assert [time - started for time in patient.times] == [14, 15], "a requeue comes when it was asked for"
