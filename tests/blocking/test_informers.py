"""Informers for scripts: handlers run in separate threads, and may call."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.blocking import Client, Informer, InformerFactory, Lister
from kubeloop.cache import InformerEvent
from kubeloop.meta import ObjectMeta

pytestmark = pytest.mark.server


def config_map(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels={"app": "x"}))


def test_a_cache_is_read_without_waiting(blocking: Client, namespace: str) -> None:
    blocking.create(config_map("a"))
    with InformerFactory(blocking) as informers:
        found = informers.for_kind(ConfigMap, namespace=namespace, label_selector="app=x", indexes={"name": "metadata.name"})
        assert isinstance(found, Informer)
        informers.wait_synced()
        assert isinstance(found.lister, Lister)
        assert [one.metadata.name for one in found.lister.by_index("name", "a")] == ["a"]
        blocking.create(config_map("b"))
        assert found.lister.get("b") is not None, "own writes are read at once"
        found.lister.wait_fresh()
        assert {one.metadata.name for one in found.lister.stream()} == {"a", "b"} == {one.metadata.name for one in found.lister.each()}
        assert len(found.lister) == 2
        assert list(informers) == [found]
        assert found.kind is ConfigMap


def test_handlers_run_in_their_own_thread_in_order_and_may_call(blocking: Client, namespace: str) -> None:
    seen: SimpleQueue[tuple[str, str, threading.Thread]] = SimpleQueue()

    def added(event: InformerEvent[ConfigMap]) -> None:
        now = blocking.get(ConfigMap, event.head.name)
        seen.put((event.head.name, now.metadata.uid, threading.current_thread()))

    blocking.create(config_map("a"))
    with InformerFactory(blocking) as informers:
        found = informers.for_kind(ConfigMap, namespace=namespace, label_selector="app=x")
        registration = found.on_event(added=added)
        registration.wait_synced()
        made = [blocking.create(config_map(name)) for name in ("b", "c")]
        events = [seen.get(timeout=30) for _ in range(3)]
        assert [name for name, _, _ in events] == ["a", "b", "c"]
        assert [uid for _, uid, _ in events[1:]] == [one.metadata.uid for one in made]
        assert len({thread for _, _, thread in events}) == 1
        assert threading.current_thread() not in {thread for _, _, thread in events}


def test_a_handler_that_raises_is_logged_and_gets_the_next_event(
    blocking: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: SimpleQueue[str] = SimpleQueue()

    def added(event: InformerEvent[ConfigMap]) -> None:
        seen.put(event.head.name)
        raise LookupError("mine")

    with InformerFactory(blocking) as informers:
        found = informers.for_kind(ConfigMap, namespace=namespace, label_selector="app=x")
        found.on_event(added=added, name="mine")
        informers.wait_synced()
        for name in ("a", "b"):
            blocking.create(config_map(name))
        assert [seen.get(timeout=30) for _ in range(2)] == ["a", "b"]
    assert "mine" in caplog.text


def test_a_predicate_runs_in_the_loop_and_is_asked_of_heads(blocking: Client, namespace: str) -> None:
    seen: SimpleQueue[str] = SimpleQueue()
    for name in ("a", "b"):
        blocking.create(config_map(name))
    with InformerFactory(blocking) as informers:
        found = informers.for_kind(ConfigMap, namespace=namespace, label_selector="app=x")
        registration = found.on_event(added=lambda event: seen.put(event.head.name), predicate=lambda head: head.name == "b")
        registration.wait_synced()
        assert seen.get(timeout=30) == "b"
        assert seen.empty()
