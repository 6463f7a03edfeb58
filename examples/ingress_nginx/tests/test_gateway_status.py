"""The statuses as documents, and their writes to a server."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.ingress_nginx.gateway.build import GatewayBuilder
from examples.ingress_nginx.gateway.objects import CONTROLLER_NAME, GatewayOptions
from examples.ingress_nginx.gateway.reports import ConditionState, GatewayClassReport
from examples.ingress_nginx.gateway.status import GatewayStatuses, changed_object, merged_conditions
from examples.ingress_nginx.gateway.types import Gateway, GatewayClass, HTTPRoute
from examples.ingress_nginx.tests.gateway_objects import GatewayTable, build, gateway, gateway_class, http_route, listener, rule
from kubeloop import Client
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.core.v1 import Namespace
from kubeloop.meta import ObjectMeta, Resource
from kubeloop.testing import eventually, one
from kubeloop.testing.kube_cluster import OwnServer, own_server
from kubeloop.timing import FakeClock

BEFORE, NOW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
OPTIONS = GatewayOptions(published=("192.0.2.1", "lb.example.com"))


def settled(*objects: Resource) -> tuple[GatewayTable, list[Resource]]:
    """Write all statuses into a table of objects; return it and the objects that changed."""
    table = GatewayTable(*objects)
    reports = GatewayBuilder(OPTIONS).build(table).reports
    changed = [entry for report in reports if (entry := changed_object(report, CONTROLLER_NAME, BEFORE)) is not None]
    # As a server would return them: with the default values of fields.
    table.set(*(type(entry).from_dict(entry.to_dict()) for entry in changed))
    return table, list(changed)


def status_of(objects: list[Resource], kind: str) -> Any:
    return next(entry for entry in objects if type(entry).kind == kind).to_dict()["status"]


def test_a_gateway_has_its_conditions_addresses_and_listeners() -> None:
    _, changed = settled(gateway(), http_route())
    status = status_of(changed, "Gateway")
    assert [(entry["type"], entry["status"], entry["observedGeneration"]) for entry in status["conditions"]] == [
        ("Accepted", "True", 3),
        ("Programmed", "True", 3),
        ("ResolvedRefs", "True", 3),
    ]
    assert [entry["value"] for entry in status["addresses"]] == ["192.0.2.1", "lb.example.com"]
    (entry,) = status["listeners"]
    assert (entry["name"], entry["attachedRoutes"], [kind["kind"] for kind in entry["supportedKinds"]]) == (
        "web",
        1,
        ["HTTPRoute", "GRPCRoute"],
    )
    assert {condition["lastTransitionTime"] for condition in entry["conditions"]} == {"2026-01-01T00:00:00Z"}


def test_equal_statuses_are_not_written_again() -> None:
    table, changed = settled(gateway(), http_route("web", rule(to=["none"])))
    assert {type(entry).kind for entry in changed} == {"GatewayClass", "Gateway", "HTTPRoute"}
    reports = GatewayBuilder(OPTIONS).build(table).reports
    assert [changed_object(report, CONTROLLER_NAME, NOW) for report in reports] == [None, None, None]


def test_only_the_condition_that_changes_gets_a_new_time() -> None:
    table, _ = settled(gateway(), http_route("web", rule(to=["none"])))
    route = table.list(type(http_route()))[0]
    document = route.to_dict()
    document["spec"]["rules"][0]["backendRefs"][0]["name"] = "web"
    table.set(type(route).from_dict(document))
    report = GatewayBuilder(OPTIONS).build(table).reports[-1]
    changed = changed_object(report, CONTROLLER_NAME, NOW)
    assert changed is not None
    times = {entry["type"]: entry["lastTransitionTime"] for entry in changed.to_dict()["status"]["parents"][0]["conditions"]}
    assert times == {"Accepted": "2026-01-01T00:00:00Z", "ResolvedRefs": "2026-01-02T00:00:00Z"}


FOREIGN: dict[str, Any] = {
    "parentRef": {"name": "front"},
    "controllerName": "example.com/other",
    "conditions": [
        {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ],
}


def test_entries_of_other_controllers_are_preserved_and_own_ones_removed_where_the_parent_is_gone() -> None:
    table, _ = settled(gateway(), http_route())
    document = table.list(type(http_route()))[0].to_dict()
    document["status"]["parents"].append(FOREIGN)
    document["spec"]["parentRefs"] = [{"name": "elsewhere"}]
    table.set(type(http_route()).from_dict(document))
    changed = changed_object(GatewayBuilder(OPTIONS).build(table).reports[-1], CONTROLLER_NAME, NOW)
    assert changed is not None
    assert [entry["controllerName"] for entry in changed.to_dict()["status"]["parents"]] == ["example.com/other"]


def test_conditions_of_other_types_and_their_order_are_preserved() -> None:
    def condition(kind: str) -> dict[str, Any]:
        return {"type": kind, "status": "True", "reason": "Old", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}

    present = [condition("example.com/Checked"), condition("PartiallyInvalid"), condition("Accepted")]
    states = (ConditionState("ResolvedRefs", False, "BackendNotFound"), ConditionState("Accepted", True, "Accepted"))
    merged = merged_conditions(present, states, 7, NOW)
    assert [(entry["type"], entry["reason"]) for entry in merged] == [
        ("example.com/Checked", "Old"),
        ("Accepted", "Accepted"),
        ("ResolvedRefs", "BackendNotFound"),
    ]


@pytest.mark.parametrize(
    ("versions", "status"),
    [
        pytest.param({}, None, id="not known"),
        pytest.param({"gateways": "v1.7.0"}, "True/SupportedVersion", id="the known version"),
        pytest.param({"gateways": "v1.5.1"}, "True/SupportedVersion", id="an earlier version"),
        pytest.param({"gateways": "v1.8.0"}, "False/UnsupportedVersion", id="a later version"),
        pytest.param({"gateways": "v1.7.0", "httproutes": ""}, "False/UnsupportedVersion", id="a definition without the annotation"),
    ],
)
def test_the_version_of_the_definitions(versions: dict[str, str], status: str | None) -> None:
    report = GatewayBuilder(crd_versions=versions).build(GatewayTable()).reports[0]
    assert isinstance(report, GatewayClassReport)
    conditions = {state.type: f"{state.holds}/{state.reason}" for state in report.conditions}
    assert conditions == {"Accepted": "True/Accepted", **({"SupportedVersion": status} if status else {})}
    assert "HTTPRoute" in report.features


def test_a_class_with_parameters_is_refused_and_its_gateways_get_no_status() -> None:
    parameters = {"group": "example.com", "kind": "Settings", "name": "fast"}
    result = build(gateway_class(parametersRef=parameters), gateway())
    (report,) = result.reports
    assert report.conditions[0][:3] == ("Accepted", False, "InvalidParameters")  # type: ignore[union-attr]
    assert not result.servers


def test_classes_of_other_controllers_get_no_status() -> None:
    assert len(build(gateway_class("other", "example.com/other")).reports) == 1


def test_a_gateway_without_a_published_address_is_not_programmed() -> None:
    report = build(gateway("front", listener()), options=GatewayOptions()).reports[1]
    assert ("Programmed", False, "AddressNotAssigned") in [state[:3] for state in report.conditions]  # type: ignore[union-attr]


@pytest.fixture
async def cluster() -> AsyncIterator[OwnServer]:
    """A server with the kinds of the Gateway API."""
    async with own_server(FakeClock()) as server:
        client = server.client("shop")
        await client.create(Namespace(metadata=ObjectMeta(name="shop")))
        stored = Path(__file__).parent / "data" / "gateway-crds.json.gz"
        for document in json.loads(gzip.decompress(stored.read_bytes()))["items"]:
            name = (await client.create(CustomResourceDefinition.from_dict(document))).metadata.name
            await eventually(
                one(client, CustomResourceDefinition, name),
                lambda crd: any(entry.type == "Established" and entry.status == "True" for entry in crd.status.conditions),
            )
        yield server


async def _present(client: Client) -> GatewayTable:
    """Return a table with the objects that the server has now."""
    table = GatewayTable()
    for kind in (GatewayClass, Gateway, HTTPRoute):
        table.set(*[entry async for entry in client.list(kind)])
    return table


async def test_a_server_accepts_the_statuses_and_a_second_write_sends_nothing(cluster: OwnServer) -> None:
    client = cluster.client("shop")
    for obj in (gateway_class(), gateway("front", listener(), listener("tcp", 82, protocol="TCP")), http_route("web", rule(to=["none"]))):
        await client.create(obj)
    statuses = GatewayStatuses(client)
    assert await statuses.write(GatewayBuilder(OPTIONS).build(await _present(client)).reports) == 0
    written = await client.get(HTTPRoute, "web")
    assert written.status is not None
    assert [entry.reason for entry in written.status.parents[0].conditions] == ["Accepted", "BackendNotFound"]
    count = len([call for call in cluster.actions if call.subresource == "status"])
    assert await statuses.write(GatewayBuilder(OPTIONS).build(await _present(client)).reports) == 0
    assert len([call for call in cluster.actions if call.subresource == "status"]) == count


async def test_an_object_that_changes_meanwhile_is_left_for_the_next_build(cluster: OwnServer) -> None:
    client = cluster.client("shop")
    for obj in (gateway_class(), gateway(), http_route()):
        await client.create(obj)
    reports = GatewayBuilder(OPTIONS).build(await _present(client)).reports
    entry = {**FOREIGN, "conditions": [{**FOREIGN["conditions"][0], "observedGeneration": 1}]}
    await client.patch(HTTPRoute, "web", {"status": {"parents": [entry]}}, subresource="status")
    statuses = GatewayStatuses(client)
    assert await statuses.write(reports) == 1
    assert await statuses.write(GatewayBuilder(OPTIONS).build(await _present(client)).reports) == 0
    written = await client.get(HTTPRoute, "web")
    assert written.status is not None
    assert [entry.controller_name for entry in written.status.parents] == ["example.com/other", CONTROLLER_NAME]
