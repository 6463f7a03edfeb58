"""A relist whose objects have other contents with the same version: a proxy whose rules have changed sends such lists."""

from __future__ import annotations

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.timing import FakeClock
from tests.cache.handlers.test_handlers import informers_of
from tests.cache.source import Source, status, until


async def test_other_contents_with_the_same_version_replace_the_stored_ones_and_are_an_update(
    source: Source, api: Client, clock: FakeClock
) -> None:
    events: list[str] = []
    source.put("changed", k="1")
    source.put("equal", k="1")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        maps.on_event(
            added=lambda event: events.append(f"ADDED {event.key.name}"),
            updated=lambda event: events.append(f"UPDATED {event.key.name} {event.object.data['k']}"),
        )
        await until(lambda: source.watches == 1 and len(events) == 2)
        source.objects["changed"]["data"] = {"k": "2"}
        source.error_event(status(410, "Expired"))
        await until(lambda: source.watches == 0)
        await clock.advance(5)
        await until(lambda: len(events) == 3)
        assert events[2:] == ["UPDATED changed 2"]
        assert {found.metadata.name: found.data["k"] for found in maps.lister.list()} == {"changed": "2", "equal": "1"}
