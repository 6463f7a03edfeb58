"""What the condition Available of an APIService says, and what clients of it hear while it is not available. Both servers are asked."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.pki import CertificateAuthority
from tests.apiserver.aggregation.conftest import API_SERVICES, World

pytestmark = pytest.mark.server

PORTS = [{"name": "https", "port": 443, "protocol": "TCP"}]


async def test_without_its_service_it_is_unavailable(world: World) -> None:
    await world.register()
    found = await world.until_reason("ServiceNotFound")
    assert found["status"] == "False"
    assert found["message"] == f'service/extension in "{world.namespace}" is not present'


async def test_a_service_must_have_the_port(world: World) -> None:
    await world.expose(ports=PORTS)
    await world.register()
    found = await world.until_reason("ServicePortError")
    assert found["message"] == f'service/extension in "{world.namespace}" is not listening on port {world.extension.port}'


async def test_a_service_must_have_endpoint_slices(world: World) -> None:
    await world.expose(ports=[{**PORTS[0], "port": world.extension.port}])
    await world.register()
    found = await world.until_reason("EndpointsNotFound")
    assert found["message"] == f'cannot find endpointslices for service/extension in "{world.namespace}"'


@pytest.mark.parametrize(
    "slice_",
    [
        pytest.param({"endpoints": [], "ports": [{"name": "https", "port": 1}]}, id="no endpoint"),
        pytest.param(
            {"endpoints": [{"addresses": ["10.1.1.1"], "conditions": {"ready": False}}], "ports": [{"name": "https", "port": 1}]},
            id="none that is ready",
        ),
        pytest.param({"endpoints": [{"addresses": ["10.1.1.1"]}], "ports": [{"name": "other", "port": 1}]}, id="another port"),
    ],
)
async def test_endpoint_slices_must_have_a_ready_endpoint_of_the_port(world: World, slice_: dict[str, Any]) -> None:
    await world.expose(ports=[{**PORTS[0], "port": world.extension.port}])
    tree = {"metadata": {"name": "one", "labels": {"kubernetes.io/service-name": "extension"}}, "addressType": "IPv4", **slice_}
    made = await world("POST", f"/apis/discovery.k8s.io/v1/namespaces/{world.namespace}/endpointslices", tree)
    assert made.status == 201, made.text
    await world.register()
    found = await world.until_reason("MissingEndpoints")
    assert found["message"] == f'endpointslices for service/extension in "{world.namespace}" have no addresses with port name "https"'


async def test_a_backend_that_answers_makes_it_available_and_a_failing_backend_unavailable_again(world: World) -> None:
    await world.available()
    found = await world.condition()
    assert (found["status"], found["message"]) == ("True", "all checks passed")
    world.extension.healthy = False
    await world("PATCH", f"{API_SERVICES}/{world.name}", {"spec": {"versionPriority": 16}}, Content_Type="application/merge-patch+json")
    found = await world.until_reason("FailedDiscoveryCheck")
    url = f"https://127.0.0.1:{world.extension.port}{world.extension.path}"
    assert found["message"] == f"failing or missing response from {url}: bad status from {url}: 500"
    world.extension.healthy = True
    await world.until_reason("Passed")


async def test_the_probe_is_sent_as_the_aggregator(world: World) -> None:
    await world.available()
    asked = world.extension.seen(world.extension.path)[0]
    assert (asked.values("X-Remote-User"), asked.values("X-Remote-Group")) == (["system:kube-aggregator"], ["system:masters"])


async def test_a_missing_backend_is_reported_as_such(world: World) -> None:
    await world.expose()
    await world.register(service={"namespace": world.namespace, "name": "extension", "port": 1})
    found = await world.until_reason("FailedDiscoveryCheck")
    url = f"https://127.0.0.1:1{world.extension.path}"
    said = f'failing or missing response from {url}: Get "{url}": dial tcp 127.0.0.1:1: connect: connection refused'
    assert found["message"] == said


async def test_a_certificate_of_another_authority_is_not_believed(world: World) -> None:
    import base64

    await world.expose()
    other = CertificateAuthority.create("other").certificate
    await world.register(caBundle=base64.b64encode(other).decode())
    found = await world.until_reason("FailedDiscoveryCheck")
    assert "tls: failed to verify certificate: x509: certificate signed by unknown authority" in found["message"]


async def test_without_verification_any_certificate_will_do(world: World) -> None:
    await world.expose()
    await world.register(caBundle=None, insecureSkipTLSVerify=True)
    await world.until_reason("Passed")


async def test_while_it_is_unavailable_its_paths_say_so_in_plain_text(world: World) -> None:
    await world.register()
    await world.until_reason("ServiceNotFound")
    for path in ("", "/namespaces/default/widgets", "/anything"):
        reply = await world.until(f"{world.extension.path}{path}", lambda reply: reply.status == 503)
        assert reply.text == "service unavailable\n"
        assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"


async def test_with_the_api_service_its_paths_are_gone(world: World) -> None:
    await world.available()
    await world("DELETE", f"{API_SERVICES}/{world.name}")
    reply = await world.until(world.extension.path, lambda reply: reply.status == 404)
    assert reply.text == "404 page not found\n"


async def test_a_service_that_becomes_local_is_available_as_such(world: World) -> None:
    await world.register()
    await world.until_reason("ServiceNotFound")
    patch = {"spec": {"service": None, "caBundle": None}}
    await world("PATCH", f"{API_SERVICES}/{world.name}", patch, Content_Type="application/merge-patch+json")
    found = await world.until_reason("Local")
    assert (found["status"], found["message"]) == ("True", "Local APIServices are always available")
