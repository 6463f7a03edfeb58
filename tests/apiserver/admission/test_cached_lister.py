"""Cached lists of admission follow every change, also a burst of changes that the watch cache has dropped."""

from __future__ import annotations

import pytest

from kubeloop.api.core.v1 import LimitRange, LimitRangeItem, LimitRangeSpec, Namespace
from kubeloop.apiserver.admission.cached_lister import CachedList
from kubeloop.meta import ObjectMeta
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.meta.quantity import Quantity
from kubeloop.testing import HandlerServer

RANGES = GroupVersionResource("", "v1", "limitranges")


def limit_range(name: str, cpu: str = "1") -> LimitRange:
    item = LimitRangeItem(type="Container", max={"cpu": Quantity(cpu)})
    return LimitRange(metadata=ObjectMeta(name=name), spec=LimitRangeSpec(limits=[item]))


def shown(objects: list[dict[str, object]]) -> list[str]:
    return [str(one["metadata"]["name"]) for one in objects]  # type: ignore[index]  # a JSON tree


async def test_objects_come_change_and_go_by_namespace() -> None:
    async with HandlerServer() as server:
        api, client = server.api, server.client()
        cached = CachedList(RANGES, api.registry, api.objects, api.cache)
        await client.create(Namespace(metadata=ObjectMeta(name="other")))
        await client.create(limit_range("before"))
        assert shown(await cached.items("default")) == ["before"]
        await client.create(limit_range("after"))
        await client.create(limit_range("elsewhere"), namespace="other")
        assert shown(await cached.items("default")) == ["after", "before"]
        assert shown(await cached.items("other")) == ["elsewhere"]
        await client.patch(LimitRange, "after", {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}})
        assert (await cached.items("default"))[0]["spec"]["limits"][0]["max"] == {"cpu": "2"}
        await client.delete(LimitRange, "before")
        await client.delete(LimitRange, "elsewhere", namespace="other")
        assert shown(await cached.items("default")) == ["after"]
        assert await cached.items("other") == []


async def test_after_more_changes_than_are_kept_for_it_it_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeloop.apiserver.storage.watch_cache.MOST_WAITING", 2)
    async with HandlerServer() as server:
        api, client = server.api, server.client()
        cached = CachedList(RANGES, api.registry, api.objects, api.cache)
        assert await cached.items("default") == []
        for number in range(5):
            await client.create(limit_range(f"r{number}"))
        assert shown(await cached.items("default")) == [f"r{number}" for number in range(5)]
