"""``eventually`` and ``consistently``: what holds, what fails and with which words; on fake time and over faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, assert_type

import pytest

from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.cache import InformerFactory
from kubeloop.client import Client
from kubeloop.meta import Forbidden, ObjectMeta, ServiceUnavailable
from kubeloop.testing import HandlerServer, all_cached, assertions, cached, consistently, eventually, many, on, one, with_fake_time
from kubeloop.timing import FakeClock

pytestmark = pytest.mark.embedded


@pytest.fixture
async def server() -> AsyncIterator[HandlerServer]:
    async with HandlerServer(clock=FakeClock()) as found:
        yield found


@pytest.fixture
def clock(server: HandlerServer) -> FakeClock:
    assert isinstance(server.clock, FakeClock)
    return server.clock


@pytest.fixture
def client(server: HandlerServer) -> Client:
    return server.client()


def config(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name), data=data)


async def later(clock: FakeClock, seconds: float, client: Client, *objects: ConfigMap) -> None:
    await clock.sleep(seconds)
    for obj in objects:
        await client.create(obj)


async def test_a_state_that_comes_an_hour_of_fake_time_later_is_awaited_and_given(client: Client, clock: FakeClock) -> None:
    coming = asyncio.create_task(later(clock, 3600, client, config("a", k="1")))
    found = await eventually(one(client, ConfigMap, "a"), lambda obj: obj.data["k"] == "1", within=4000)
    assert_type(found, ConfigMap)
    assert found.data == {"k": "1"}
    await coming


async def test_an_object_that_is_there_at_the_beginning_counts(client: Client) -> None:
    made = await client.create(config("a", k="1"))
    assert (await eventually(one(client, made), {"data": {"k": "1"}}, within=0)).metadata.uid == made.metadata.uid


async def test_of_several_objects_a_list_of_parts_in_the_order_of_their_names_is_wanted(client: Client) -> None:
    for name in ("b", "a"):
        await client.create(config(name, k=name))
    await eventually(many(client, ConfigMap), [{"metadata": {"name": "a", "uid": ...}}, {"data": {"k": "b", "other": None}}])
    await eventually(many(client, ConfigMap, label_selector="app=none"), None, within=0)


async def test_none_is_wanted_of_what_must_go(client: Client, clock: FakeClock) -> None:
    await client.create(config("a"))

    async def end() -> None:
        await clock.sleep(5)
        await client.delete(ConfigMap, "a")

    ending = asyncio.create_task(end())
    await eventually(one(client, ConfigMap, "a"), None)
    await ending


async def test_the_cache_of_an_informer_is_looked_at_as_its_lister_shows_it(client: Client, clock: FakeClock) -> None:
    async with InformerFactory(client, clock=clock) as informers:
        informer = informers.for_kind(ConfigMap, namespace="default")
        coming = asyncio.create_task(later(clock, 5, client, config("a"), config("b")))
        assert (await eventually(cached(informer, "b", "default"), lambda obj: obj.metadata.uid)).metadata.name == "b"
        await eventually(all_cached(informer), lambda objects: [one.metadata.name for one in objects] == ["a", "b"])
        await coming


async def test_cut_watches_forgotten_versions_and_busy_servers_are_waited_out(server: HandlerServer, client: Client) -> None:
    waiting = asyncio.create_task(eventually(one(client, ConfigMap, "a"), {"data": {"k": "2"}}, within=100_000))
    await eventually(many(client, ConfigMap), None)
    await client.create(config("a", k="1"))
    server.faults.refuse_too_many(times=2, matching=on("list", ConfigMap))
    server.faults.expire_next(matching=on("watch", ConfigMap))
    while not server.faults.cut_streams():
        await asyncio.sleep(0)
    await client.patch(ConfigMap, "a", {"data": {"k": "2"}})
    await waiting


@pytest.mark.parametrize("expectation", [eventually, consistently])
async def test_a_server_that_never_answers_is_given_up_and_reported(
    server: HandlerServer, client: Client, expectation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assertions, "_FIRST", 0.01)  # real seconds, as the server's trouble is not one of the clock
    server.faults.refuse(ServiceUnavailable, times=100_000, matching=on("list", ConfigMap))
    with pytest.raises(AssertionError, match=r"ConfigMap.*: could not be read within 0\.01 s; ServiceUnavailable: refused by a test"):
        await expectation(one(client, ConfigMap, "a"), None)


async def test_a_client_that_waits_by_the_clock_for_its_first_answer_is_waited_for(server: HandlerServer, client: Client) -> None:
    server.faults.refuse_too_many(retry_after=7)
    await eventually(one(client, ConfigMap, "a"), None)


async def test_an_async_function_says_nothing_and_is_refused(client: Client) -> None:
    """What it returns is a coroutine, which is true of any state."""

    async def ready(config: object) -> bool:
        return False

    await client.create(ConfigMap(metadata=ObjectMeta(name="a")))
    with pytest.raises(TypeError, match="ready is async and would never be awaited"):
        await eventually(one(client, ConfigMap, "a"), ready)


async def test_a_refusal_ends_it_at_once(server: HandlerServer, client: Client) -> None:
    server.faults.refuse(Forbidden, matching=on("list", ConfigMap))
    with pytest.raises(Forbidden):
        await eventually(one(client, ConfigMap, "a"), None)


async def test_a_failure_shows_the_last_state_the_mismatches_and_the_changes(client: Client, clock: FakeClock) -> None:
    await client.create(config("a", k="1"))

    async def change() -> None:
        await clock.sleep(2)
        await client.patch(ConfigMap, "a", {"data": {"k": "2"}})

    changing = asyncio.create_task(change())
    with pytest.raises(AssertionError) as failed:
        await eventually(one(client, ConfigMap, "a"), {"data": {"k": "3"}, "metadata": {"labels": {"x": "y"}}}, within=5)
    await changing
    text = str(failed.value)
    assert text.startswith('ConfigMap "a" in namespace "default": not as wanted within 5 s\n')
    assert "  data.k: wanted '3', is '2'\n" in text
    assert "  metadata.labels: wanted {'x': 'y'}, is not there\n" in text
    assert "2 states were seen" in text
    assert '    -  k: "1"\n    +  k: "2"\n' in text
    assert text.count("kind: ConfigMap") >= 1
    assert "managedFields" not in text


WORDS = [
    pytest.param(lambda obj: obj.data["k"] == "2", 'obj.data["k"] == "2"', id="the source of a lambda is shown"),
    pytest.param(lambda obj: obj.data["nothing"], "KeyError: 'nothing'", id="what a function raises is the reason"),
    pytest.param(lambda obj: None, "must end with: return True", id="the error for a function that returns nothing has a hint"),
    pytest.param({"data": {"k": True}}, "data.k: wanted True, is '1'", id="a part that differs is named by its path"),
    pytest.param(None, "it is there", id="what should be gone is there"),
]


@pytest.mark.parametrize(("want", "words"), WORDS)
async def test_a_failure_says_in_words(client: Client, want: object, words: str) -> None:
    await client.create(config("a", k="1"))
    with pytest.raises(AssertionError) as failed:
        await eventually(one(client, ConfigMap, "a"), want, within=0)  # type: ignore[call-overload]  # a table of all that may be wanted
    assert words in str(failed.value)


async def test_values_of_secrets_are_not_shown(client: Client) -> None:
    await client.create(Secret(metadata=ObjectMeta(name="s"), string_data={"password": "hunter2"}))
    with pytest.raises(AssertionError) as failed:
        await eventually(one(client, Secret, "s"), lambda obj: False, within=0)
    assert "password" in str(failed.value)
    assert "aHVudGVyMg" not in str(failed.value)
    with pytest.raises(AssertionError, match=r"data: not as wanted; the values of a Secret are not shown") as failed:
        await eventually(one(client, Secret, "s"), {"data": {"password": "b3RoZXI="}}, within=0)
    assert "aHVudGVyMg" not in str(failed.value)


async def test_what_must_stay_is_looked_at_for_all_of_the_fake_time(client: Client, clock: FakeClock) -> None:
    await client.create(config("a", k="1"))
    begun = clock.now()
    assert (await consistently(one(client, ConfigMap, "a"), {"data": {"k": "1"}}, seconds=600)) is not None
    assert clock.now() == begun + 600


async def test_what_does_not_stay_fails_at_once_and_shows_what_changed(client: Client, clock: FakeClock) -> None:
    coming = asyncio.create_task(later(clock, 60, client, config("b")))
    with pytest.raises(AssertionError, match=r"not as wanted 60 s after the beginning(.|\n)*\+  name: b"):
        await consistently(many(client, ConfigMap), None, seconds=600)
    await coming


async def test_an_object_without_a_name_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="which one"):
        one(client, ConfigMap)


async def test_whatever_waits_for_the_clock_can_be_driven(client: Client, clock: FakeClock) -> None:
    await client.create(config("a"))
    begun = clock.now()
    await with_fake_time(clock.sleep(5), clock)
    assert clock.now() == begun + 5
    with pytest.raises(TimeoutError):
        await with_fake_time(asyncio.wait_for(asyncio.Event().wait(), 0.01), clock)


async def test_real_time_is_real(client: Client) -> None:
    async with HandlerServer() as server:
        real = server.client()
        await real.create(config("a"))
        await consistently(one(real, ConfigMap, "a"), lambda obj: True, seconds=0.01)
        with pytest.raises(AssertionError, match="it is not there"):
            await eventually(one(real, ConfigMap, "b"), lambda obj: True, within=0.01)
