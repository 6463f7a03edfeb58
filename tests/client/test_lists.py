"""Lists: pages, selectors, streaming, and snapshots that expire between two pages."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import ALL_NAMESPACES, Client, ListOptions
from kubeloop.config import ClusterConfig
from kubeloop.meta import NOTHING, BadRequest, Expired, Invalid, ObjectMeta, PartialObject, parse_field_selector, parse_label_selector
from kubeloop.transport import Transport
from tests.faults import FaultServer, Received, Reply, status


def config_map(name: str, **labels: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels=labels))


async def names(call: Any) -> list[str]:
    return [one.metadata.name async for one in call]


@pytest.mark.server
class TestAgainstAServer:
    @pytest.fixture(autouse=True)
    async def _objects(self, client: Client, namespace: str) -> None:
        for number in range(5):
            await client.create(config_map(f"m{number}", app="web", number=str(number)))
        await client.create(config_map("other", app="db"))

    async def test_awaiting_gives_everything_with_one_version(self, client: Client, namespace: str) -> None:
        found = await client.list(ConfigMap, namespace=namespace, label_selector={"app": "web"}, limit=2)
        assert [one.metadata.name for one in found] == ["m0", "m1", "m2", "m3", "m4"]
        assert int(found.resource_version) >= max(int(one.metadata.resource_version) for one in found)
        assert found.continue_token == ""

    async def test_iterating_gives_one_page_after_the_other(self, client: Client, namespace: str) -> None:
        assert await names(client.list(ConfigMap, namespace=namespace, label_selector="app=web", limit=2)) == ["m0", "m1", "m2", "m3", "m4"]
        sizes = [len(page) async for page in client.list(ConfigMap, namespace=namespace, label_selector="app=web", limit=2).pages()]
        assert sizes == [2, 2, 1]

    async def test_pages_come_from_one_snapshot(self, client: Client, namespace: str) -> None:
        pages = client.list(ConfigMap, namespace=namespace, label_selector="app", limit=4).pages()
        first = await anext(pages)
        await client.create(config_map("zzz-later", app="web"))
        second = await anext(pages)
        assert [one.metadata.name for one in second] == ["m4", "other"]
        assert second.resource_version == first.resource_version

    async def test_items_of_a_list_can_be_changed_and_sent_back(self, client: Client, namespace: str) -> None:
        item = (await client.list(ConfigMap, namespace=namespace, label_selector="app"))[0]
        item.data["x"] = "1"
        assert (await client.update(item)).data == {"x": "1"}

    @pytest.mark.parametrize(
        "selection",
        [
            pytest.param({"label_selector": "number in (1,2)"}, id="label selector as text"),
            pytest.param({"label_selector": parse_label_selector("number in (1,2)")}, id="parsed label selector"),
            pytest.param(
                {"label_selector": "app=web", "field_selector": "metadata.name!=m0,metadata.name!=m3,metadata.name!=m4"},
                id="field selector as text",
            ),
            pytest.param(
                {
                    "label_selector": "app",
                    "field_selector": parse_field_selector("metadata.name!=m0,metadata.name!=m3,metadata.name!=m4,metadata.name!=other"),
                },
                id="parsed",
            ),
        ],
    )
    async def test_selectors(self, client: Client, namespace: str, selection: dict[str, Any]) -> None:
        assert await names(client.list(ConfigMap, namespace=namespace, **selection)) == ["m1", "m2"]

    async def test_a_version_is_requested_exactly_or_at_least(self, client: Client, namespace: str) -> None:
        before = await client.list(ConfigMap, namespace=namespace, label_selector="app")
        await client.create(config_map("zzz-later", app="web"))
        exact = client.list(
            ConfigMap,
            namespace=namespace,
            label_selector="app",
            resource_version=before.resource_version,
            resource_version_match="Exact",
            limit=2,
        )
        assert await names(exact) == [one.metadata.name for one in before]
        later = client.list(
            ConfigMap,
            namespace=namespace,
            label_selector="app",
            resource_version=before.resource_version,
            resource_version_match="NotOlderThan",
        )
        found = await later
        assert int(found.resource_version) >= int(before.resource_version)
        assert {one.metadata.name for one in before} <= {one.metadata.name for one in found}
        assert (await client.list(ConfigMap, namespace=namespace, resource_version="0")).resource_version

    async def test_a_match_without_a_version_is_refused(self, client: Client, namespace: str) -> None:
        with pytest.raises((Invalid, BadRequest), match="resourceVersionMatch"):
            await client.list(ConfigMap, namespace=namespace, resource_version_match="Exact")

    async def test_metadata_alone_is_listed_in_pages_too(self, client: Client, namespace: str) -> None:
        found = client.list_metadata(ConfigMap, namespace=namespace, label_selector="app=web", limit=2)
        assert [len(page) async for page in found.pages()] == [2, 2, 1]
        assert {type(one) for one in await found} == {PartialObject}

    async def test_an_object_can_be_read_at_least_as_new_as_a_version(self, client: Client, namespace: str) -> None:
        [item] = await client.list(ConfigMap, namespace=namespace, label_selector="app=db")
        for version in ("0", item.metadata.resource_version):
            assert (await client.get(ConfigMap, "other", resource_version=version)).metadata.uid == item.metadata.uid

    async def test_without_a_namespace_all_are_listed(self, client: Client, namespace: str) -> None:
        found = await client.list(ConfigMap, field_selector={"metadata.name": "other"}, namespace=ALL_NAMESPACES)
        assert namespace in {one.metadata.namespace for one in found}


async def test_a_selector_that_selects_nothing_is_not_sent_as_a_selector_of_everything() -> None:
    async with FaultServer(Reply()) as server, Client(Transport(server.config())) as client:
        with pytest.raises(ValueError, match="selects nothing"):
            await client.list(ConfigMap, label_selector=NOTHING, namespace=ALL_NAMESPACES)
    assert server.received == []


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({"app": "web,tier=db"}, id="a value that would be two requirements"),
        pytest.param({"app in (a,b),x": "y"}, id="a key that would be two requirements"),
        pytest.param({"app": "we b"}, id="a value that no label has"),
    ],
)
async def test_pairs_that_are_no_labels_are_not_sent(labels: dict[str, str]) -> None:
    async with FaultServer(Reply()) as server, Client(Transport(server.config())) as client:
        with pytest.raises(ValueError, match="app"):
            await client.list(ConfigMap, label_selector=labels, namespace=ALL_NAMESPACES)
        with pytest.raises(ValueError, match="app"):
            await client.delete_collection(ConfigMap, label_selector=labels)
    assert server.received == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"label_selector": "a=("}, "label_selector='a=(': unable to parse requirement: ", id="labels"),
        pytest.param({"field_selector": "spec"}, "field_selector='spec': invalid selector: ", id="fields"),
        pytest.param({"label_selector": {"app": "we b"}}, "label_selector=a dict of 1 key: values[0][app]: ", id="a pair that is no label"),
    ],
)
async def test_a_selector_that_cannot_be_read_is_named_and_not_sent(options: dict[str, Any], text: str) -> None:
    async with FaultServer(Reply()) as server, Client(Transport(server.config())) as client:
        with pytest.raises(ValueError, match=re.escape(text)):
            await client.list(ConfigMap, **options)
    assert server.received == []


@pytest.mark.parametrize(
    "options", [{"label_selector": 5}, {"label_selector": {"app": 5}}, {"field_selector": 5}, {"field_selector": {"a": 5}}]
)
async def test_the_error_for_a_wrong_selector_names_it_and_the_accepted_ones(options: dict[str, Any]) -> None:
    async with FaultServer(Reply()) as server, Client(Transport(server.config())) as client:
        with pytest.raises(TypeError, match=rf"^{next(iter(options))}=.*give (one such as )?\""):
            await client.list(ConfigMap, **options)
    assert server.received == []


@pytest.mark.parametrize("empty", ["", {}, None])
async def test_an_empty_selector_is_none(empty: Any) -> None:
    assert ListOptions(label_selector=empty, field_selector=empty).query() == ListOptions().query()


def page(items: list[str], token: str = "", version: str = "5") -> Reply:
    metadata = {"resourceVersion": version, **({"continue": token} if token else {})}
    return Reply(
        body={"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": [{"metadata": {"name": one}} for one in items]}
    )


def expired(token: str = "") -> Reply:
    return status(410, "Expired", "The provided continue parameter is too old", metadata={"continue": token} if token else {})


def expiring(token: str) -> FaultServer:
    """The first token is refused; without one everything comes, of a newer version."""

    def answer(received: Received) -> Reply:
        if "continue=old" in received.query:
            return expired(token)
        if "continue=fresh" in received.query:
            return page(["c", "d"], version="9")
        return page(["a", "b"], "old") if "limit=2" in received.query else page(["a", "c", "d"], version="9")

    return FaultServer(answer=answer)


async def test_a_snapshot_that_expires_is_listed_once_more_as_a_whole() -> None:
    async with expiring("fresh") as server, Client(Transport(server.config())) as client:
        found = await client.list(ConfigMap, limit=2, resource_version="4", resource_version_match="NotOlderThan", namespace=ALL_NAMESPACES)
    assert ([one.metadata.name for one in found], found.resource_version) == (["a", "c", "d"], "9")
    assert [one.query for one in server.received] == [
        "limit=2&resourceVersion=4&resourceVersionMatch=NotOlderThan",
        "limit=2&continue=old",
        "resourceVersion=4&resourceVersionMatch=NotOlderThan",
    ]


async def test_iteration_goes_on_with_the_newest_rest_and_repeats_nothing() -> None:
    async with expiring("fresh") as server, Client(Transport(server.config())) as client:
        assert await names(client.list(ConfigMap, limit=2, namespace=ALL_NAMESPACES)) == ["a", "b", "c", "d"]


async def test_iteration_without_a_way_on_is_an_error() -> None:
    async with expiring("") as server, Client(Transport(server.config())) as client:
        with pytest.raises(Expired):
            await names(client.list(ConfigMap, limit=2, namespace=ALL_NAMESPACES))


async def test_an_error_on_the_first_page_is_the_error() -> None:
    async with FaultServer(expired()) as server, Client(Transport(server.config())) as client:
        with pytest.raises(Expired):
            await client.list(ConfigMap, resource_version="1", resource_version_match="Exact", namespace=ALL_NAMESPACES)
    assert len(server.received) == 1


async def test_a_list_that_began_with_a_token_does_not_start_again_from_the_beginning() -> None:
    gone = status(410, "Expired", "The provided continue parameter is too old", metadata={})
    async with FaultServer(page(["b"], "next"), gone) as server, Client(Transport(server.config())) as client:
        with pytest.raises(Expired):
            await client.list(ConfigMap, options=ListOptions(limit=1, continue_token="t"))
    assert len(server.received) == 2


async def test_one_page_is_requested_exactly_as_given() -> None:
    async with FaultServer(page(["a"], "next")) as server, Client(Transport(server.config())) as client:
        got = await client.list_page(ConfigMap, options=ListOptions(limit=1, continue_token="t"), label_selector="a=b", namespace="n")
    assert got.continue_token == "next"
    assert server.received[0].target == "/api/v1/namespaces/n/configmaps?labelSelector=a%3Db&limit=1&continue=t"


def test_a_list_and_a_watch_that_are_iterated_without_async_name_the_ways_to_do_it() -> None:
    client: Any = Client(Transport(ClusterConfig(server="https://127.0.0.1:1")))
    wanted = "`async for obj in client.list(KIND)`, page by page, or `for obj in await client.list(KIND)`, all at once"
    with pytest.raises(TypeError, match=re.escape(wanted)):
        for _ in client.list(ConfigMap):
            pass
    with pytest.raises(TypeError, match=r"`async with client\.watch"):
        list(client.watch(ConfigMap))
