"""The sync controller with the Gateway API on a server: configuration and statuses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from examples.ingress_nginx.explain_command import explain_from_cluster
from examples.ingress_nginx.gateway.objects import BUNDLE_VERSION
from examples.ingress_nginx.gateway.types import Gateway, GatewayClass, HTTPRoute
from examples.ingress_nginx.gateway_controller import BUNDLE_ANNOTATION, GatewaySyncController
from examples.ingress_nginx.ingress.builder import BuilderOptions
from examples.ingress_nginx.options import ControllerOptions
from examples.ingress_nginx.tests.gateway_objects import gateway, gateway_class, http_route
from examples.ingress_nginx.tests.objects import service, slice_of
from examples.ingress_nginx.tests.test_sync import NotingNginx
from kubeloop import Manager
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.core.v1 import Namespace
from kubeloop.meta import ObjectMeta
from kubeloop.testing import HandlerServer, eventually, one

CRDS = Path(__file__).parent / "data" / "gateway-crds.json.gz"


async def test_a_gateway_is_served_and_its_statuses_are_written() -> None:
    async with HandlerServer(loopback_endpoints=True) as server:
        client = server.client("shop")
        await client.create(Namespace(metadata=ObjectMeta(name="shop")))
        for document in json.loads(gzip.decompress(CRDS.read_bytes()))["items"]:
            name = (await client.create(CustomResourceDefinition.from_dict(document))).metadata.name
            await eventually(
                one(client, CustomResourceDefinition, name),
                lambda crd: any(entry.type == "Established" and entry.status == "True" for entry in crd.status.conditions),
            )
        for found in (service("web", clusterIP=None), slice_of("web", "127.0.0.1"), gateway_class(), gateway(), http_route()):
            await client.create(found)
        nginx = NotingNginx()
        controller = GatewaySyncController(nginx, ControllerOptions(status_addresses=("192.0.2.1",), reload_rate=1000))
        async with Manager(client, [controller]):
            accepted = await eventually(
                one(client, GatewayClass, "kubeloop"),
                lambda stored: stored.status and any(entry.status == "True" for entry in stored.status.conditions),
            )
            assert accepted.status is not None
            assert {entry.type: entry.status for entry in accepted.status.conditions} == {"Accepted": "True", "SupportedVersion": "True"}
            await eventually(
                one(client, Gateway, "front"),
                lambda stored: (
                    stored.status and any(entry.type == "Programmed" and entry.status == "True" for entry in stored.status.conditions)
                ),
            )
            await eventually(one(client, HTTPRoute, "web"), lambda stored: stored.status and stored.status.parents)
            assert set(controller.gateways.crd_versions.values()) == {BUNDLE_VERSION}
            assert any(host == "_" and sockets for sockets, host in controller.configuration.servers)
        explanation, forbidden = await explain_from_cluster(client, BuilderOptions(), "a.test", "/x")
        assert (explanation.answer, forbidden) == ("404: no path of an Ingress matches, and no Ingress has the host", [])
        assert [(found.listener, found.answer) for found in explanation.gateways] == [("port 80", "an endpoint of shop/web:80")]
        assert "a.test/x at port 80" in explanation.to_text().splitlines()
    definition = json.loads(gzip.decompress(CRDS.read_bytes()))["items"][0]
    assert definition["metadata"]["annotations"][BUNDLE_ANNOTATION] == BUNDLE_VERSION
