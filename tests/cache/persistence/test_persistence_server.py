"""A restart with a persisted cache against an API server: the embedded one, and a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerFactory
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from tests.cache.source import until

pytestmark = pytest.mark.server


async def make(client: Client, name: str) -> None:
    await client.create(ConfigMap(metadata=ObjectMeta(name=name, labels={"app": "web"}), data={"k": name}))


async def test_a_restart_resumes_where_it_ended_and_objects_that_were_loaded_are_updated_as_any_other(
    client: Client, namespace: str, folder: Path
) -> None:
    for name in "abc":
        await make(client, name)
    async with InformerFactory(client, persist=folder) as informers:
        informers.for_kind(ConfigMap, namespace=namespace, label_selector="app=web")
        await informers.wait_synced(30)
    await client.delete(ConfigMap, "b")
    await make(client, "d")
    seen: list[str] = []
    async with InformerFactory(client, persist=folder) as informers:
        maps = informers.for_kind(ConfigMap, namespace=namespace, label_selector="app=web")
        maps.on_event(
            added=lambda event: seen.append(f"{'initial ' if event.initial else ''}ADDED {event.key.name}"),
            deleted=lambda event: seen.append(f"DELETED {event.key.name}"),
        )
        await informers.wait_synced(30)
        await until(lambda: len(seen) == 5)
        assert sorted(seen[:3]) == ["initial ADDED a", "initial ADDED b", "initial ADDED c"]
        assert seen[3:] == ["DELETED b", "ADDED d"]
        assert not maps._runner.feeds[0].listwatch.lists, "nothing was listed"
        found = maps.lister.get("a")
        assert found is not None
        found.data["k"] = "changed"
        written = await client.update(found)
        assert written.metadata.managed_fields == (await client.get(ConfigMap, "a")).metadata.managed_fields
        await until(lambda: bool((live := maps.lister.get("a")) and live.data["k"] == "changed"))
