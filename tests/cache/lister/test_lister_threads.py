"""A lister is read from other threads while the loop applies events: plain reconcilers run in threads, and so do web servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import ByLabel, InformerFactory, Sorted
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.timing import FakeClock
from tests.cache.source import Source, until


async def test_readers_in_other_threads_get_whole_answers_while_events_arrive(source: Source, api: Client, clock: FakeClock) -> None:
    """[X2]"""
    for number in range(20):
        source.put(f"map-{number}", label_team="red", rank="0")
    async with InformerFactory(api, clock=clock) as informers:
        maps = informers.for_kind(
            ConfigMap,
            indexes={"team": ByLabel("team"), "rank": Sorted("data.rank"), "name": lambda each: each.metadata.name},
            namespace=ALL_NAMESPACES,
        )
        lister = maps.lister
        await informers.wait_synced()
        await until(lambda: source.watches == 1)
        done = threading.Event()
        wrong: list[str] = []
        answers = [0]

        def whole(name: str, objects: list[ConfigMap]) -> None:
            names = [each.metadata.name for each in objects]
            if len(set(names)) != len(names) or not set(names) >= {f"map-{number}" for number in range(20)}:
                wrong.append(f"{name}: {names}")

        def in_order(objects: list[ConfigMap]) -> None:
            ranks = [each.data["rank"] for each in objects]
            if ranks != sorted(ranks):
                wrong.append(f"range: {ranks}")

        asks: list[Callable[[], None]] = [
            lambda: whole("list", lister.list()),
            lambda: whole("each", [*lister.each("default")]),
            lambda: whole("by_index", lister.by_index("team", "red")),
            lambda: whole("range", lister.range("rank")),
            lambda: in_order(lister.range("rank")),
            lambda: wrong.append("get lost map-7") if lister.get("map-7", "default") is None else None,
            lambda: wrong.append("name lost map-7") if len(lister.by_index("name", "map-7")) != 1 else None,
        ]

        def read() -> None:
            while not done.is_set():
                for ask in asks:
                    try:
                        ask()
                    except Exception as error:  # noqa: BLE001 - a thread's exception must reach the test
                        wrong.append(repr(error))
                    answers[0] += 1

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for step in range(150):
            source.put(f"map-{step % 20}", label_team="red", rank=str(step))
            if step % 3 == 0:
                source.put("passing", label_team="red", rank="5")
            elif step % 3 == 1:
                source.delete("passing")
            await asyncio.sleep(0)
        await until(lambda: maps.resource_version == str(source.version))
        done.set()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert wrong == []
        assert answers[0] > 0
