"""A server that comes back empty, with lower versions: what readers see until the next list, and after it."""

from __future__ import annotations

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import ChangesForgotten, InformerFactory
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from kubeloop.testing import LocalCluster

pytestmark = pytest.mark.embedded


def config_map(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"))


async def test_an_object_created_on_it_is_shown_at_once_and_the_old_objects_go_with_the_list() -> None:
    with LocalCluster(controllers=False) as cluster:
        async with Client.from_config(cluster.kubeconfig) as client, InformerFactory(client) as informers:
            for number in range(30):
                await client.create(config_map(f"old{number}"))
            maps = informers.for_kind(ConfigMap, namespace="default")
            await informers.wait_synced(10)
            before = maps.lister.resource_version
            cluster.kill()
            cluster.restart()
            created = await client.create(config_map("new"))
            assert int(created.metadata.resource_version) < int(before)
            assert maps.lister.get("new") is not None
            created.data["x"] = "1"
            await client.update(created)
            shown = maps.lister.get("new")
            assert shown is not None
            assert shown.data == {"x": "1"}
            await maps.lister.wait_fresh(timeout=60)
            assert [each.name for each in maps.lister.heads()] == ["new"]
            with pytest.raises(ChangesForgotten, match="before the server lost its history"):
                maps.lister.changed_since(before)
