"""Objects that do not fit their type: kept, reported once for each state, readable as trees."""

from __future__ import annotations

import logging

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerEvent
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import DecodeError
from kubeloop.timing import FakeClock
from tests.cache.handlers.test_handlers import informers_of
from tests.cache.source import Source, until


async def test_an_object_that_does_not_fit_its_type_is_kept_reported_once_for_each_state_and_read_as_a_tree(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    source.put("good", k="1")
    source.put("odd")
    source.objects["odd"]["data"] = ["no", "map"]
    events: list[InformerEvent[ConfigMap]] = []
    caplog.set_level(logging.ERROR, "kubeloop.cache")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, indexes={"k": "data.k"}, namespace=ALL_NAMESPACES)
        maps.on_event(added=events.append, updated=events.append)
        await informers.wait_synced()
        await until(lambda: len(events) == 2)
        for _ in range(3):
            with pytest.raises(DecodeError, match='ConfigMap "default/odd"'):
                maps.lister.get("odd", "default")
        odd = next(event for event in events if event.head.name == "odd")
        with pytest.raises(DecodeError):
            _ = odd.object
        (said,) = [record.getMessage() for record in caplog.records]
        assert 'ConfigMap "default/odd": data: ' in said
        assert said.endswith("it stays in the cache: read it with lister.unstructured(...) or event.unstructured()")
        assert odd.unstructured()["data"] == ["no", "map"]
        found = maps.lister.unstructured("odd", "default")
        assert found is not None
        assert found.metadata.name == "odd"
        assert maps.lister.unstructured("absent", "default") is None
        assert [head.name for head in maps.lister.heads_by_index("k", "1")] == ["good"], "others notice nothing"
        await until(lambda: source.watches == 1)
        source.objects["odd"]["data"] = 7
        source.send(
            {
                "type": "MODIFIED",
                "object": {**source.objects["odd"], "metadata": {**source.objects["odd"]["metadata"], "resourceVersion": "99"}},
            }
        )
        await until(lambda: maps.resource_version == "99")
        for _ in range(2):
            with pytest.raises(DecodeError):
                maps.lister.get("odd", "default")
        assert len(caplog.records) == 2
        assert maps.stats.undecodable == 6
