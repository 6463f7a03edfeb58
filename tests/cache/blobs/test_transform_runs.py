"""How often a transform runs."""

from __future__ import annotations

from typing import Any

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.timing import FakeClock
from tests.cache.handlers.test_handlers import informers_of
from tests.cache.source import Source, status, until


async def test_a_transform_runs_once_for_each_state_never_for_a_tombstone_a_resync_or_an_unchanged_object_of_a_list(
    source: Source, api: Client, clock: FakeClock
) -> None:
    """[D56]"""
    calls: list[str] = []
    events: list[str] = []

    def note(tree: dict[str, Any]) -> None:
        calls.append(tree["metadata"]["name"])
        tree["data"] = {"k": f"{tree['data']['k']}!"}

    source.put("a", k="1")
    source.put("vanishing", k="1")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, transform=note, namespace=ALL_NAMESPACES)
        maps.on_event(
            resync=10,
            added=lambda event: events.append(f"ADDED {event.object.data['k']}"),
            updated=lambda event: events.append(f"{event.type.value} {event.object.data['k']}"),
            deleted=lambda event: events.append(f"DELETED {event.object.data['k']} {event.tombstone}"),
        )
        await until(lambda: source.watches == 1 and len(events) == 2)
        assert calls == ["a", "vanishing"]
        source.put("b", k="2")
        await until(lambda: len(events) == 3)
        await clock.advance(10)
        await until(lambda: len(events) == 6)
        assert calls == ["a", "vanishing", "b"]
        source.delete("vanishing", hide=True)
        source.error_event(status(410, "Expired"))
        await until(lambda: source.watches == 0)
        await clock.advance(5)
        await until(lambda: "DELETED 1! True" in events)
        assert calls == ["a", "vanishing", "b"]
        assert [line for line in events if line.startswith("RESYNC")] == ["RESYNC 1!", "RESYNC 1!", "RESYNC 2!"]
