"""The controllers of Services over a server by fake time: what they write, when, and how often."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kubeloop.api.core.v1 import (
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSubset,
    Event,
    Node,
    Pod,
    Service,
    ServicePort,
)
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.client import DeleteOptions
from kubeloop.controlplane.services.endpoints import EndpointsController
from kubeloop.controlplane.services.endpointslices import EndpointSliceController
from kubeloop.controlplane.services.mirroring import EndpointSliceMirroringController
from kubeloop.meta import Conflict, Forbidden, NotFound, ObjectMeta, Resource, Status
from kubeloop.testing.calls import RecordedCall
from tests.controlplane.backends import addresses, new_service, run_pod, set_status, slices
from tests.controlplane.kills import KillScenario, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster, simulation

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
async def cluster() -> AsyncIterator[FakeTimeCluster]:
    """A cluster with one node and the three controllers; slices have at most three endpoints."""
    async with simulation(EndpointSliceController(limit=3), EndpointsController(), EndpointSliceMirroringController()) as running:
        await running.add_node("n", labels={ZONE: "z"})
        yield running


def written(cluster: FakeTimeCluster, kind: type[Resource]) -> list[RecordedCall]:
    return [call for call in cluster.faults.writes if call.kind == kind.__name__ and 200 <= call.code < 300]


async def endpoints(cluster: FakeTimeCluster, name: str = "s") -> Endpoints:
    await cluster.pass_time(3)
    return await cluster.client.get(Endpoints, name)


def endpoints_of_user(*ips: str, name: str = "e", **metadata: dict[str, str]) -> Endpoints:
    subset = EndpointSubset(addresses=[EndpointAddress(ip=ip) for ip in ips], ports=[EndpointPort(port=9376)])
    return Endpoints(metadata=ObjectMeta(name=name, **metadata), subsets=[subset])  # type: ignore[arg-type]


async def test_a_service_without_pods_has_an_empty_slice_and_empty_endpoints(cluster: FakeTimeCluster) -> None:
    created = await cluster.client.create(new_service())
    (one,) = await slices(cluster)
    assert (one.endpoints, one.ports, one.address_type) == ([], [], "IPv4")
    (owner,) = one.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller, owner.block_owner_deletion) == ("Service", created.metadata.uid, True, True)
    assert one.metadata.annotations == {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"}
    found = await endpoints(cluster)
    assert found.subsets == []
    assert found.metadata.labels == {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}


async def test_pods_come_into_slices_with_node_zone_and_target_and_move_when_they_are_ready(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service())
    one = await run_pod(cluster.client, "a", "10.1.0.1", ready=False)
    (found,) = await slices(cluster)
    (endpoint,) = found.endpoints
    assert (endpoint.node_name, endpoint.zone, endpoint.conditions.ready) == ("n", "z", False)
    assert endpoint.target_ref is not None
    assert (endpoint.target_ref.kind, endpoint.target_ref.name, endpoint.target_ref.uid) == ("Pod", "a", one.metadata.uid)
    assert [each.ip for each in (await endpoints(cluster)).subsets[0].not_ready_addresses] == ["10.1.0.1"]
    await set_status(cluster.client, one, "10.1.0.1")
    (found,) = await slices(cluster)
    assert found.endpoints[0].conditions.ready is True
    assert [each.ip for each in (await endpoints(cluster)).subsets[0].addresses] == ["10.1.0.1"]


async def test_a_change_of_one_pod_writes_one_slice_and_other_changes_of_pods_write_nothing(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service())
    pods = [await run_pod(cluster.client, f"p{number}", f"10.1.0.{number}") for number in range(8)]
    assert len(await slices(cluster)) == 3
    cluster.faults.calls.clear()
    await cluster.client.patch(Pod, "p1", {"metadata": {"annotations": {"a": "b"}}})
    await slices(cluster)
    assert written(cluster, EndpointSlice) == []
    await set_status(cluster.client, await cluster.client.get(Pod, "p7"), "10.1.0.7", ready=False)
    await slices(cluster)
    assert len(written(cluster, EndpointSlice)) == 1
    await cluster.client.delete(pods[2], grace_period_seconds=0)
    assert len(addresses(await slices(cluster))) == 7
    assert len(written(cluster, EndpointSlice)) == 2


async def test_a_terminating_pod_serves_until_it_is_gone_but_has_left_the_endpoints(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service())
    one = await run_pod(cluster.client, "a", "10.1.0.1", termination_grace_period_seconds=30)
    await slices(cluster)
    await cluster.client.delete(one)
    (found,) = await slices(cluster)
    conditions = found.endpoints[0].conditions
    assert (conditions.ready, conditions.serving, conditions.terminating) == (False, True, True)
    assert (await endpoints(cluster)).subsets == []


async def test_a_pod_that_changes_its_labels_changes_its_service(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service())
    await cluster.client.create(new_service("other", selector={"app": "e", "tier": "x"}))
    await run_pod(cluster.client, "a", "10.1.0.1")
    assert addresses(await slices(cluster)) == ["10.1.0.1"]
    await cluster.client.patch(Pod, "a", {"metadata": {"labels": {"app": "e"}}})
    assert (addresses(await slices(cluster)), addresses(await slices(cluster, "other"))) == ([], [])
    await cluster.client.patch(Pod, "a", {"metadata": {"labels": {"tier": "x"}}})
    assert addresses(await slices(cluster, "other")) == ["10.1.0.1"]
    await cluster.client.patch(Service, "other", {"spec": {"selector": {"tier": "y"}}})
    assert addresses(await slices(cluster, "other")) == []


async def test_pods_with_different_numbers_of_a_named_port_are_in_different_slices(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service("s", ServicePort(name="http", port=80, target_port="web")))
    for number, port in enumerate((8080, 8081, 8080)):
        containers = [{"name": "c", "image": "x", "ports": [{"name": "web", "containerPort": port}]}]
        made = Pod.from_dict({
            "metadata": {"name": f"p{number}", "labels": {"app": "d"}}, "spec": {"containers": containers, "nodeName": "n"},
        })  # fmt: skip
        await set_status(cluster.client, await cluster.client.create(made), f"10.1.0.{number}")
    found = await slices(cluster)
    assert sorted((one.ports[0].port, len(one.endpoints)) for one in found) == [(8080, 2), (8081, 1)]
    assert [len(one.addresses) for one in (await endpoints(cluster)).subsets] in ([1, 2], [2, 1])


async def test_a_headless_service_with_a_subdomain_has_hostnames_and_a_label(cluster: FakeTimeCluster) -> None:
    headless = new_service(cluster_ip="None", publish_not_ready_addresses=True)
    headless.spec.ports = []
    await cluster.client.create(headless)
    await run_pod(cluster.client, "a", "10.1.0.1", ready=False, hostname="web-0", subdomain="s")
    (one,) = await slices(cluster)
    assert (one.ports, one.endpoints[0].hostname, one.endpoints[0].conditions.ready) == ([], "web-0", True)
    assert one.metadata.labels["service.kubernetes.io/headless"] == ""
    found = await endpoints(cluster)
    assert (found.subsets[0].addresses[0].hostname, found.subsets[0].ports) == ("web-0", [])
    assert found.metadata.labels["service.kubernetes.io/headless"] == ""


async def test_a_pod_on_a_missing_node_is_left_out_with_an_event_until_the_node_comes(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service())
    await run_pod(cluster.client, "a", "10.1.0.1")
    await run_pod(cluster.client, "b", "10.1.0.2", node_name="late")
    assert addresses(await slices(cluster)) == ["10.1.0.1"]
    (event,) = [one for one in await cluster.client.list(Event, namespace="default") if one.reason == "FailedToUpdateEndpointSlices"]
    assert event.message == (
        "Error updating Endpoint Slices for Service default/s: skipping Pod b for Service default/s: Node late Not Found"
    )
    await cluster.add_node("late")
    await cluster.pass_time(8)
    assert addresses(await slices(cluster)) == ["10.1.0.1", "10.1.0.2"]


async def test_labels_and_hints_follow_the_service(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service(traffic_distribution="PreferSameNode"))
    await run_pod(cluster.client, "a", "10.1.0.1")
    (one,) = await slices(cluster)
    hints = one.endpoints[0].hints
    assert hints is not None
    assert ([each.name for each in hints.for_zones], [each.name for each in hints.for_nodes]) == (["z"], ["n"])
    await cluster.client.patch(Service, "s", {"metadata": {"labels": {"team": "shop"}}, "spec": {"trafficDistribution": None}})
    (one,) = await slices(cluster)
    assert (one.endpoints[0].hints, one.metadata.labels["team"]) == (None, "shop")
    assert (await endpoints(cluster)).metadata.labels["team"] == "shop"


async def test_proportional_hints_come_and_go_with_events(cluster: FakeTimeCluster) -> None:
    await cluster.add_node("m", labels={ZONE: "y"})
    made = new_service()
    made.metadata.annotations = {"service.kubernetes.io/topology-mode": "Auto"}
    await cluster.client.create(made)
    await run_pod(cluster.client, "a", "10.1.0.1")
    await run_pod(cluster.client, "b", "10.1.0.2", node_name="m")
    (one,) = await slices(cluster)
    assert sorted(zone.name for endpoint in one.endpoints if endpoint.hints for zone in endpoint.hints.for_zones) == ["y", "z"]
    await cluster.client.delete(Node, "m")
    (one,) = await slices(cluster)
    await cluster.pass_time(3)
    events = {(event.reason, event.message) for event in await cluster.client.list(Event, namespace="default")}
    assert ("TopologyAwareHintsEnabled", "Topology Aware Hints has been enabled, addressType: IPv4") in events
    assert [endpoint.hints for endpoint in one.endpoints if endpoint.hints] == []


async def test_slices_that_others_change_or_delete_are_restored(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service())
    await run_pod(cluster.client, "a", "10.1.0.1")
    (one,) = await slices(cluster)
    await cluster.client.patch(EndpointSlice, one.metadata.name, {"endpoints": []})
    assert addresses(await slices(cluster)) == ["10.1.0.1"]
    await cluster.client.delete(one)
    assert addresses(await slices(cluster)) == ["10.1.0.1"]
    await cluster.client.delete(Endpoints, "s")
    assert [each.ip for each in (await endpoints(cluster)).subsets[0].addresses] == ["10.1.0.1"]


async def test_own_writes_lead_to_no_further_reconcile(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service())
    await run_pod(cluster.client, "a", "10.1.0.1")
    await slices(cluster)
    cluster.faults.calls.clear()
    await cluster.pass_time(100)
    assert cluster.faults.writes == []


async def test_services_of_external_names_and_without_selector_get_nothing(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service("a", type="ExternalName", external_name="example.com"))
    await cluster.client.create(new_service("b", selector={}))
    assert (await slices(cluster, "a"), await slices(cluster, "b")) == ([], [])
    for name in ("a", "b"):
        with pytest.raises(NotFound):
            await cluster.client.get(Endpoints, name)


async def test_more_addresses_than_endpoints_hold_are_cut_with_an_annotation(
    cluster: FakeTimeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeloop.controlplane.services.endpoints.CAPACITY", 2)
    await cluster.client.create(new_service())
    pods = [await run_pod(cluster.client, f"p{number}", f"10.1.0.{number}") for number in range(3)]
    found = await endpoints(cluster)
    assert [each.ip for each in found.subsets[0].addresses] == ["10.1.0.0", "10.1.0.1"]
    assert found.metadata.annotations["endpoints.kubernetes.io/over-capacity"] == "truncated"
    cluster.faults.calls.clear()
    await set_status(cluster.client, await cluster.client.get(Pod, "p2"), "10.1.0.2", ready=False)
    assert (await endpoints(cluster)).metadata.resource_version == found.metadata.resource_version
    assert written(cluster, Endpoints) == [], "a pod that is left out changes nothing"
    await cluster.client.delete(pods[0], grace_period_seconds=0)
    assert "endpoints.kubernetes.io/over-capacity" not in (await endpoints(cluster)).metadata.annotations


async def test_endpoints_go_with_their_service_and_at_the_start_endpoints_without_one(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service())
    await endpoints(cluster)
    await cluster.client.delete(Service, "s")
    await cluster.client.create(endpoints_of_user("10.2.0.1", name="lost"))
    lock = {"control-plane.alpha.kubernetes.io/leader": "{}"}
    await cluster.client.create(endpoints_of_user("10.2.0.1", name="lock", annotations=lock))
    await cluster.pass_time(3)
    assert [one.metadata.name for one in await cluster.client.list(Endpoints, namespace="default")] == ["kubernetes", "lock", "lost"]
    await cluster.stop()
    await cluster.start(EndpointsController())
    await cluster.pass_time(3)
    assert [one.metadata.name for one in await cluster.client.list(Endpoints, namespace="default")] == ["kubernetes", "lock"]


async def test_endpoints_of_a_user_are_mirrored_until_the_service_has_a_selector(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(endpoints_of_user("10.2.0.1", "fd00::1"))
    assert await slices(cluster, "e") == [], "without a Service nothing is mirrored"
    await cluster.client.create(new_service("e", selector={}))
    found = await slices(cluster, "e")
    assert sorted((one.address_type, one.endpoints[0].addresses[0], one.ports[0].port) for one in found) == [
        ("IPv4", "10.2.0.1", 9376),
        ("IPv6", "fd00::1", 9376),
    ]
    assert {owner.kind for one in found for owner in one.metadata.owner_references} == {"Endpoints"}
    await cluster.client.patch(EndpointSlice, found[0].metadata.name, {"endpoints": []})
    assert addresses(await slices(cluster, "e")) == ["10.2.0.1", "fd00::1"]
    await cluster.client.patch(Service, "e", {"spec": {"selector": {"app": "none"}}})
    (own,) = await slices(cluster, "e")
    assert own.metadata.labels["endpointslice.kubernetes.io/managed-by"] == "endpointslice-controller.k8s.io"


async def test_mirroring_counts_what_it_leaves_out(cluster: FakeTimeCluster) -> None:
    await cluster.stop()
    await cluster.start(EndpointSliceMirroringController(limit=2))
    await cluster.client.create(new_service("e", selector={}))
    await cluster.client.create(endpoints_of_user(*(f"10.2.0.{number}" for number in range(1, 6))))
    assert len(addresses(await slices(cluster, "e"))) == 2
    (event,) = [one for one in await cluster.client.list(Event, namespace="default") if one.reason == "TooManyAddressesToMirror"]
    assert event.message == "A max of 2 addresses can be mirrored to EndpointSlices per Endpoints subset. 3 addresses were skipped"
    await cluster.client.patch(Endpoints, "e", {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}})
    assert await slices(cluster, "e") == []


async def test_changes_of_pods_within_the_batch_period_lead_to_one_write() -> None:
    async with simulation(EndpointSliceController(batch_period=10)) as cluster:
        await cluster.add_node("n")
        await cluster.client.create(new_service())
        await cluster.pass_time(1)
        cluster.faults.calls.clear()
        for number in range(3):
            await run_pod(cluster.client, f"p{number}", f"10.1.0.{number}")
            await cluster.pass_time(1)
        assert written(cluster, EndpointSlice) == []
        await cluster.pass_time(10)
        assert len(written(cluster, EndpointSlice)) == 1
        assert len(addresses(await slices(cluster))) == 3


async def test_a_conflict_is_tried_again_and_a_namesake_is_left_alone(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service())
    await slices(cluster)
    cluster.faults.refuse(Conflict, times=2, matching=lambda request: request.method == "PUT" and "/endpointslices/" in request.path)
    await run_pod(cluster.client, "a", "10.1.0.1")
    await cluster.pass_time(1)
    assert addresses(await slices(cluster)) == ["10.1.0.1"], "tried again after one and two seconds"
    old = await cluster.client.get(Service, "s")
    await cluster.client.delete(old, options=DeleteOptions(uid=old.metadata.uid))
    await cluster.client.create(new_service())
    found = await slices(cluster)
    uid = (await cluster.client.get(Service, "s")).metadata.uid
    assert {owner.uid for one in found for owner in one.metadata.owner_references} == {uid}
    assert addresses(found) == ["10.1.0.1"]


async def test_a_refused_slice_is_an_event_and_is_tried_again_later_and_later(cluster: FakeTimeCluster) -> None:
    quota = Forbidden(Status(reason="Forbidden", code=403, message="exceeded quota: slices"))
    cluster.faults.refuse(quota, times=3, matching=lambda request: request.method == "POST" and request.path.endswith("/endpointslices"))
    await cluster.client.create(new_service())
    await cluster.pass_time(2)
    (event,) = [one for one in await cluster.client.list(Event, namespace="default") if one.reason == "FailedToUpdateEndpointSlices"]
    reason = "failed to create EndpointSlice for Service default/s: exceeded quota: slices"
    assert event.message == f"Error updating Endpoint Slices for Service default/s: {reason}"
    assert [call.code for call in cluster.faults.writes if call.kind == "EndpointSlice"] == [403, 403], "after 0 and 1 seconds"
    await cluster.pass_time(6)
    assert len(await slices(cluster)) == 1


async def roll_services(cluster: FakeTimeCluster) -> None:
    await cluster.add_node("n", labels={ZONE: "z"})
    await cluster.client.create(new_service())
    pods = [await run_pod(cluster.client, f"p{number}", f"10.1.0.{number}") for number in range(2)]
    await cluster.pass_time(5)
    await cluster.client.delete(pods[0], grace_period_seconds=0)
    await cluster.client.patch(Service, "s", {"metadata": {"labels": {"team": "shop"}}})
    await cluster.pass_time(5)
    await cluster.client.create(new_service("gone"))
    await cluster.pass_time(5)
    await cluster.client.delete(Service, "gone")


async def roll_mirrors(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(new_service("e", selector={}))
    await cluster.client.create(endpoints_of_user("10.2.0.1", "fd00::1"))
    await cluster.pass_time(5)
    one = await cluster.client.get(Endpoints, "e")
    one.subsets[0].addresses = [EndpointAddress(ip="10.2.0.2")]
    await cluster.client.update(one)


SURVIVORS = [
    pytest.param(
        KillScenario(lambda: [EndpointSliceController()], roll_services, [EndpointSlice]),
        id="the EndpointSlice controller",
    ),
    pytest.param(KillScenario(lambda: [EndpointsController()], roll_services, [Endpoints]), id="the Endpoints controller"),
    pytest.param(
        KillScenario(lambda: [EndpointSliceMirroringController()], roll_mirrors, [EndpointSlice, Endpoints]), id="the mirroring controller"
    ),
]


@pytest.mark.parametrize("scenario", SURVIVORS)
async def test_survives_a_kill_after_any_write(scenario: KillScenario) -> None:
    assert await assert_survives_kills(scenario)
