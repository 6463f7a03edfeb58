"""Children of a controller: compared with its caches, so that a reconcile that changes nothing asks the server nothing."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.core.v1 import ConfigMap, Container, PodSpec, PodTemplateSpec, Secret, Service, ServicePort, ServiceSpec
from kubeloop.client import Client
from kubeloop.controller import Children, ChildrenReport, Controller, Manager, Owns, Result, labels_match
from kubeloop.meta import LabelSelector, ObjectMeta

pytestmark = pytest.mark.server


class Reports:
    """What reconciles reported, one after the other."""

    def __init__(self) -> None:
        self.found: list[ChildrenReport] = []
        self._changed = asyncio.Event()

    def add(self, report: ChildrenReport) -> None:
        self.found.append(report)
        self._changed.set()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(30):
            while text not in map(str, self.found):
                self._changed.clear()
                await self._changed.wait()


class ShopController(Controller[ConfigMap], owns=[Secret, Owns(Service), Deployment], predicates=[labels_match("shop")], name="shop"):
    """A Secret, a Deployment, and a Service while the shop is open."""

    def __init__(self, reports: Reports) -> None:
        self.children = Children(self)
        self._reports = reports

    async def reconcile(self, shop: ConfigMap) -> Result | None:
        self._reports.add(await self.children.apply(shop, list(self._wanted(shop))))
        return None

    def _wanted(self, shop: ConfigMap) -> Iterator[Any]:
        name = shop.metadata.name
        yield Secret(metadata=ObjectMeta(name=name), string_data={"word": shop.data["word"]})
        template = PodTemplateSpec(
            metadata=ObjectMeta(labels={"shop": name}), spec=PodSpec(containers=[Container(name="c", image="nginx")])
        )
        spec = DeploymentSpec(replicas=0, selector=LabelSelector(match_labels={"shop": name}), template=template)
        yield Deployment(metadata=ObjectMeta(name=name), spec=spec)
        if "open" in shop.data:
            yield Service(metadata=ObjectMeta(name=name), spec=ServiceSpec(selector={"shop": name}, ports=[ServicePort(port=80)]))


async def test_children_follow_their_owner_and_come_back_when_another_client_deletes_them(client: Client) -> None:
    reports = Reports()
    async with Manager(client, [ShopController(reports)], namespace=client.namespace):
        shop = ConfigMap(metadata=ObjectMeta(name="corner", labels={"shop": ""}), data={"word": "sesame", "open": "yes"})
        await client.create(shop)
        await reports.until("3 created")
        await client.delete(Secret, "corner")
        await reports.until("1 created, 2 unchanged")
        await client.patch(ConfigMap, "corner", {"data": {"open": None, "word": "simsim"}})
        await reports.until("1 updated, 1 unchanged, 1 pruned")
        assert (await client.get(Secret, "corner")).data == {"word": b"simsim"}
        await client.wait_gone(Service, "corner", timeout=30)


async def test_unchanged_children_are_known_from_the_caches_also_after_a_restart(client: Client) -> None:
    first, second = Reports(), Reports()
    async with Manager(client, [ShopController(first)], namespace=client.namespace):
        shop = ConfigMap(metadata=ObjectMeta(name="corner", labels={"shop": ""}), data={"word": "sesame"})
        await client.create(shop)
        await first.until("2 created")
    async with Manager(client, [ShopController(second)], namespace=client.namespace):
        await second.until("2 unchanged")
        await client.patch(Secret, "corner", {"stringData": {"word": "stolen"}})
        await second.until("1 updated, 1 unchanged")
    assert not any(one.sent for report in second.found for one in report.unchanged)
    assert (await client.get(Secret, "corner")).data == {"word": b"sesame"}


class Frugal(Controller[ConfigMap], owns=[Owns(Secret, metadata_only=True)], predicates=[labels_match("shop")], name="frugal"):
    """Keeps only the metadata of its children in memory."""

    def __init__(self, reports: Reports) -> None:
        self.children = Children(self)
        self._reports = reports

    async def reconcile(self, shop: ConfigMap) -> None:
        wanted = [Secret(metadata=ObjectMeta(name=name), string_data={"word": word}) for name, word in shop.data.items()]
        self._reports.add(await self.children.apply(shop, wanted))


async def test_children_of_which_only_metadata_is_cached_are_compared_with_the_server(client: Client) -> None:
    reports = Reports()
    async with Manager(client, [Frugal(reports)], namespace=client.namespace):
        await client.create(ConfigMap(metadata=ObjectMeta(name="corner", labels={"shop": ""}), data={"a": "1", "b": "1"}))
        await reports.until("2 created")
        await client.patch(ConfigMap, "corner", {"data": {"a": None}})
        await reports.until("1 unchanged, 1 pruned")


async def test_a_wish_that_is_refused_is_tried_again_and_the_others_are_there(client: Client) -> None:
    class Hopeful(Controller[ConfigMap], owns=[Secret], predicates=[labels_match("shop")], name="hopeful"):
        def __init__(self) -> None:
            self.children = Children(self)

        async def reconcile(self, shop: ConfigMap) -> None:
            await self.children.apply(shop, [Secret(metadata=ObjectMeta(name=name)) for name in ("taken", "free")])

    taken = await client.create(Secret(metadata=ObjectMeta(name="taken")))
    hopeful = Hopeful()
    async with Manager(client, [hopeful], namespace=client.namespace) as manager:
        await client.create(ConfigMap(metadata=ObjectMeta(name="corner", labels={"shop": ""})))
        await client.wait_created(Secret, "free", timeout=30)
        await client.delete(taken)
        await client.wait_for(Secret, "taken", lambda obj: bool(obj.metadata.owner_references), timeout=30)
        assert "not controlled by ConfigMap corner" in manager.stats[0].counts.last_error
