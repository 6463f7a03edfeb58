"""Cluster IPs and node ports of services, through HTTP requests."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

from tests.apiserver.conftest import Api

SERVICES = "/api/v1/namespaces/default/services"


def _service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def test_services_created_at_once_have_different_addresses(api: Api) -> None:
    found = await asyncio.gather(*(api("POST", SERVICES, _service(f"s{at}", type="NodePort")) for at in range(20)))
    assert {reply.status for reply in found} == {201}
    addresses = {reply.body["spec"]["clusterIP"] for reply in found}
    ports = {reply.body["spec"]["ports"][0]["nodePort"] for reply in found}
    assert len(addresses) == len(ports) == 20
    assert all(ipaddress.IPv4Address(one) in ipaddress.IPv4Network("10.0.0.0/24") for one in addresses)
    assert all(30000 <= one < 32768 for one in ports)


async def test_an_address_that_was_asked_for_is_taken_until_its_service_goes(api: Api) -> None:
    assert (await api("POST", SERVICES, _service("a", clusterIP="10.0.0.99"))).status == 201
    refused = await api("POST", SERVICES, _service("b", clusterIP="10.0.0.99"))
    assert refused.status == 422
    assert "failed to allocate IP 10.0.0.99: provided IP is already allocated" in refused.message
    assert (await api("DELETE", f"{SERVICES}/a")).status == 200
    assert (await api("POST", SERVICES, _service("b", clusterIP="10.0.0.99"))).status == 201


async def test_a_node_port_is_given_once_for_a_protocol(api: Api) -> None:
    made = (await api("POST", SERVICES, _service("a", type="NodePort"))).body
    port = made["spec"]["ports"][0]
    refused = await api("PUT", f"{SERVICES}/a", {**made, "spec": {**made["spec"], "ports": [{**port, "name": "p"}, {**port, "name": "q"}]}})
    assert (refused.status, refused.message) == (500, f"duplicate nodePort: {{TCP {port['nodePort']}}}")


async def test_a_new_service_shares_node_ports_between_protocols_only_when_it_lets_the_server_choose(api: Api) -> None:
    ports = [{"name": "a", "port": 1, "nodePort": 31996}, {"name": "b", "port": 1, "protocol": "UDP"}]
    made = (await api("POST", SERVICES, _service("a", type="NodePort", ports=ports))).body
    assert [port["nodePort"] for port in made["spec"]["ports"]] == [31996, 31996]
    ports = [{"name": "a", "port": 1, "nodePort": 31990}, {"name": "b", "port": 2, "protocol": "UDP", "nodePort": 31990}]
    refused = await api("POST", SERVICES, _service("b", type="NodePort", ports=ports))
    assert refused.status == 422
    assert "spec.ports[1].nodePort: Invalid value: 31990: provided port is already allocated" in refused.message


async def test_a_refused_service_keeps_no_address(api: Api) -> None:
    refused = await api("POST", SERVICES, _service("a", clusterIP="10.0.0.99", sessionAffinity="Odd"))
    assert refused.status == 422
    assert (await api("POST", SERVICES, _service("b", clusterIP="10.0.0.99"))).status == 201


async def test_a_node_port_is_in_its_range_and_free(api: Api) -> None:
    ports = [{"port": 80, "nodePort": 80}]
    refused = await api("POST", SERVICES, _service("a", type="NodePort", ports=ports))
    assert "provided port is not in the valid range. The range of valid ports is 30000-32767" in refused.message
    ports = [{"port": 80, "nodePort": 30080}]
    assert (await api("POST", SERVICES, _service("a", type="NodePort", ports=ports))).status == 201
    refused = await api("POST", SERVICES, _service("b", type="NodePort", ports=ports))
    assert "provided port is already allocated" in refused.message


async def test_a_service_of_another_type_gives_its_node_port_back(api: Api) -> None:
    ports = [{"port": 80, "nodePort": 30080}]
    created = await api("POST", SERVICES, _service("a", type="NodePort", ports=ports))
    body = created.body
    body["spec"]["type"] = "ClusterIP"
    changed = await api("PUT", f"{SERVICES}/a", body)
    assert changed.status == 200
    assert "nodePort" not in changed.body["spec"]["ports"][0]
    assert changed.body["spec"]["clusterIP"] == created.body["spec"]["clusterIP"]
    assert (await api("POST", SERVICES, _service("b", type="NodePort", ports=ports))).status == 201


async def test_headless_and_external_services_have_no_address(api: Api) -> None:
    headless = await api("POST", SERVICES, _service("a", clusterIP="None"))
    assert headless.body["spec"]["clusterIPs"] == ["None"]
    external = await api("POST", SERVICES, _service("b", type="ExternalName", externalName="a.example"))
    assert "clusterIP" not in external.body["spec"]
