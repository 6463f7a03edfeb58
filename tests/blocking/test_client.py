"""The client as scripts see it: the same names, which wait."""

from __future__ import annotations

import asyncio
import inspect
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest

from kubeloop import blocking as module
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.blocking import (
    BlockingContext,
    BlockingIterator,
    Client,
    CreateOrUpdateResult,
    ListCall,
    LocalCluster,
    NotFound,
    ObjectList,
    Watch,
    retry_on_conflict,
)
from kubeloop.client import ALL_NAMESPACES
from kubeloop.meta import Conflict, ObjectMeta
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels={"app": "x"}), data=data)


def test_a_verb_waits_and_gives_what_awaiting_it_would(blocking: Client) -> None:
    made = blocking.create(config_map("a", x="1"))
    assert blocking.get(ConfigMap, "a") == made
    made.data["x"] = "2"
    assert blocking.update(made).data == {"x": "2"}
    assert blocking.patch(ConfigMap, "a", {"data": {"y": "3"}}).data == {"x": "2", "y": "3"}
    blocking.delete(made)
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        blocking.get(ConfigMap, "a")


def test_a_list_is_there_at_once_and_a_stream_of_it_comes_page_by_page(blocking: Client, namespace: str) -> None:
    for name in ("a", "b", "c"):
        blocking.create(config_map(name))
    whole = blocking.list(ConfigMap, namespace=namespace, label_selector="app=x")
    assert isinstance(whole, ObjectList)
    assert [one.metadata.name for one in whole] == ["a", "b", "c"]
    assert whole.resource_version
    call = blocking.list_stream(ConfigMap, namespace=namespace, label_selector="app=x", limit=2)
    assert isinstance(call, ListCall)
    assert [one.metadata.name for one in call] == ["a", "b", "c"]
    pages = call.pages(prefetch=1)
    assert isinstance(pages, BlockingIterator)
    with pages:
        assert [len(page) for page in pages] == [2, 1]


def test_a_watch_is_a_block_with_an_iterator(blocking: Client, namespace: str) -> None:
    blocking.create(config_map("a"))
    with blocking.watch(ConfigMap, namespace=namespace, label_selector="app=x") as events:
        assert isinstance(events, Watch)
        first = next(iter(events))
        assert (first.type, first.object.metadata.name) == ("ADDED", "a")
        blocking.create(config_map("b"))
        for event in events:  # goes on where the one before stopped
            assert (event.type, event.object.metadata.name) == ("ADDED", "b")
            break
        assert events.resource_version == event.object.metadata.resource_version


def test_a_watch_with_a_timeout_ends(blocking: Client, namespace: str) -> None:
    with blocking.watch(ConfigMap, namespace=namespace, timeout=0.01) as events:
        for event in events:
            assert event.type == "ADDED"


def test_functions_that_change_objects_are_plain_ones(blocking: Client) -> None:
    def mutate(config_map: ConfigMap) -> None:
        config_map.data["n"] = "1"

    changed = blocking.create_or_update(config_map("a"), mutate)
    assert isinstance(changed, CreateOrUpdateResult)
    assert (changed.operation, changed.object.data) == ("created", {"n": "1"})
    with pytest.raises(RuntimeError, match="would deadlock: predicates, mutate and progress functions run there"):
        blocking.update_with_retry(ConfigMap, "a", lambda _: blocking.get(ConfigMap, "a"))


def test_a_retried_function_runs_in_the_waiting_thread_and_may_call(blocking: Client) -> None:
    blocking.create(config_map("a", n="0"))
    threads: list[threading.Thread] = []

    def attempt() -> ConfigMap:
        threads.append(threading.current_thread())
        found = blocking.get(ConfigMap, "a")
        if len(threads) == 1:
            blocking.patch(ConfigMap, "a", {"data": {"n": "1"}})
        found.data["mine"] = "yes"
        return blocking.update(found)

    assert retry_on_conflict(attempt).data == {"n": "1", "mine": "yes"}
    assert threads == [threading.current_thread()] * 2


def test_an_error_of_a_retried_function_goes_through(blocking: Client) -> None:
    def attempt() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        retry_on_conflict(attempt)


def test_an_error_shows_the_callers_line_and_then_the_clients(blocking: Client) -> None:
    with pytest.raises(NotFound) as caught:
        blocking.get(ConfigMap, "none")
    assert caught.value.__context__ is None
    names = [frame.filename.rpartition("kubeloop/")[2] for frame in traceback.extract_tb(caught.tb)]
    assert names[0].endswith("test_client.py")
    assert names[1:5] == ["blocking/facade.py", "blocking/loop.py", "client/verbs/base.py", "client/verbs/get_list.py"]


def test_a_conflict_is_the_same_exception_as_in_coroutines(blocking: Client) -> None:
    made = blocking.create(config_map("a"))
    blocking.patch(ConfigMap, "a", {"data": {"x": "1"}})
    made.data["x"] = "2"
    with pytest.raises(Conflict):
        blocking.update(made)


def test_views_of_a_client_are_blocking_clients_too(blocking: Client, namespace: str) -> None:
    view = blocking.in_namespace(namespace).with_options(dry_run=True)
    assert isinstance(view, Client)
    view.create(config_map("a"))
    assert view.list(ConfigMap, label_selector="app=x") == []
    assert view.namespace == namespace


def test_threads_share_a_client(blocking: Client, namespace: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: blocking.create(config_map(f"c-{number}")), range(16)))
    assert len(blocking.list(ConfigMap, namespace=namespace, label_selector="app=x")) == 16


def test_threads_that_share_an_iterator_get_each_item_once(blocking: Client, namespace: str) -> None:
    for number in range(8):
        blocking.create(config_map(f"c-{number}"))
    items = iter(blocking.list_stream(ConfigMap, namespace=namespace, label_selector="app=x", limit=2))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: [one.metadata.name for one in items], range(4)))
    assert sorted(name for names in found for name in names) == [f"c-{number}" for number in range(8)]


async def test_it_works_where_a_loop_runs_already_as_in_a_notebook(server: ServerUnderTest, namespace: str) -> None:
    with Client.from_config(server.kubeconfig) as client:
        assert asyncio.get_running_loop().is_running()
        client.create(config_map("a"), namespace=namespace)
        assert client.get(ConfigMap, "a", namespace=namespace).metadata.namespace == namespace


def test_a_block_that_raises_hands_its_error_on_and_ends(blocking: Client, namespace: str) -> None:
    with pytest.raises(LookupError, match="mine"), blocking.watch(ConfigMap, namespace=namespace):
        raise LookupError("mine")
    assert blocking.list(ConfigMap, namespace=namespace, label_selector="app=x") == []


def test_a_block_is_entered_before_it_is_used(blocking: Client) -> None:
    with pytest.raises(RuntimeError, match="a watch is used inside its block"):
        iter(blocking.watch(ConfigMap, namespace=ALL_NAMESPACES))


def test_a_client_may_be_entered_within_its_own_block(blocking: Client) -> None:
    with blocking, blocking as same:
        assert same is blocking
    with pytest.raises(RuntimeError, match="this Watch was never entered"):
        blocking.watch(ConfigMap, namespace=ALL_NAMESPACES).__exit__(None, None, None)


def test_context_variables_of_the_caller_are_seen(blocking: Client) -> None:
    seen: list[str] = []
    caller = ContextVar("caller", default="unset")
    caller.set("me")

    def mutate(_: ConfigMap) -> None:
        seen.append(caller.get())

    blocking.create_or_update(config_map("a"), mutate)
    assert seen == ["me"]


def test_raw_requests_and_their_streams(blocking: Client) -> None:
    assert blocking.transport.request("GET", "/version").status == 200
    opened = blocking.transport.stream("GET", "/version")
    assert isinstance(opened, BlockingContext)
    with opened as stream:
        assert b"gitVersion" in b"".join(stream.chunks())


@pytest.mark.embedded
def test_a_local_cluster_is_blocking_and_so_is_its_client() -> None:
    with LocalCluster(controllers=False) as cluster:
        assert isinstance(cluster.client, Client)
        assert cluster.url.startswith("https://127.0.0.1:")
        assert cluster.client.list(ConfigMap, label_selector="app=x", namespace=ALL_NAMESPACES) == []


class TestTheFacadeItself:
    def test_names_that_are_there_are_shown(self, blocking: Client) -> None:
        shown = {name for name in dir(blocking) if not name.startswith("_")}
        assert {"get", "list", "list_stream", "watch", "transport", "namespace", "pods"} <= shown
        assert {"exec", "logs", "logs_stream"} <= set(dir(blocking.pods))
        assert all(hasattr(blocking, name) for name in shown)

    def test_it_says_whose_it_is(self, blocking: Client, server: ServerUnderTest, namespace: str) -> None:
        assert repr(blocking) == f'<blocking Client of cluster "{blocking.cluster}" at {server.config.server}, namespace "{namespace}">'
        assert repr(blocking.watch(ConfigMap, namespace=ALL_NAMESPACES)) == "<blocking Watch>"

    def test_generic_classes_take_their_arguments(self) -> None:
        assert Watch[ConfigMap].__args__ == (ConfigMap,)  # type: ignore[attr-defined]  # what the interpreter makes of it

    def test_docstrings_and_signatures_are_those_of_the_asynchronous_class(self) -> None:
        from kubeloop.client import Client as Behind

        assert Client.get.__doc__ == Behind.get.__doc__
        assert inspect.signature(Client.get) == inspect.signature(Behind.get)
        assert not inspect.iscoroutinefunction(Client.get)

    def test_attributes_are_read_and_written_through(self, blocking: Client) -> None:
        blocking.namespace = "other"
        assert blocking.in_namespace("x").namespace == "x"
        assert blocking.namespace == "other"
        with pytest.raises(AttributeError, match="'Client' object has no attribute 'namespce'"):
            blocking.namespce = "x"  # type: ignore[attr-defined]  # the mistake that is tested

    def test_two_facades_of_one_object_are_equal(self, blocking: Client) -> None:
        assert blocking.transport == blocking.transport
        assert hash(blocking.transport) == hash(blocking.transport)
        assert blocking != blocking.in_namespace("x")

    def test_it_is_not_copied_or_pickled(self, blocking: Client) -> None:
        import copy

        with pytest.raises(TypeError, match="a Client holds connections and cannot be copied or pickled"):
            copy.copy(blocking)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            pytest.param("Manager", "kubeloop.blocking has no Manager: a controller is a program with an event loop", id="for programs"),
            pytest.param("Clinet", "module 'kubeloop.blocking' has no attribute 'Clinet'", id="a mistake"),
        ],
    )
    def test_a_name_that_is_not_there(self, name: str, message: str) -> None:
        with pytest.raises(AttributeError, match=message):
            getattr(module, name)

    def test_every_name_of_the_module_can_be_had(self) -> None:
        for name in dir(module):
            assert getattr(module, name) is not None
