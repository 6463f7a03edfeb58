"""Responses about time limits, audit IDs, flow control, health and metrics, on both servers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

NAMESPACES = "/api/v1/namespaces?limit=1"
TOO_LATE = (
    '{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout",'
    '"reason":"Timeout","details":{},"code":504}'
)


@pytest.fixture
async def session(server: ServerUnderTest) -> AsyncIterator[aiohttp.ClientSession]:
    """An administrator's."""
    own = server.config.credentials
    assert own.client_certificate is not None
    assert own.client_key is not None
    context = server.config.ssl_context((own.client_certificate.read(), own.client_key.read()))
    async with aiohttp.ClientSession(server.config.server, connector=aiohttp.TCPConnector(ssl=context)) as found:
        yield found


async def test_a_request_with_a_timeout_of_zero_is_answered_as_timed_out(session: aiohttp.ClientSession) -> None:
    async with session.get(f"{NAMESPACES}&timeout=1ns") as answer:
        assert (answer.status, answer.content_type, (await answer.text()).strip()) == (504, "text/plain", TOO_LATE)


@pytest.mark.parametrize(
    ("text", "fault"),
    [("x", 'time: invalid duration "x"'), ("5", 'time: missing unit in duration "5"'), ("5y", 'time: unknown unit "y" in duration "5y"')],
)
async def test_a_timeout_that_is_no_duration_is_refused(session: aiohttp.ClientSession, text: str, fault: str) -> None:
    async with session.get(f"{NAMESPACES}&timeout={text}") as answer:
        body = await answer.json()
    assert (answer.status, body["message"]) == (400, f"invalid timeout specified in the request URL - {fault}")


async def test_answers_have_the_audit_id_and_the_ids_of_flow_control(session: aiohttp.ClientSession) -> None:
    async with session.get(NAMESPACES, headers={"Audit-Id": "mine"}) as answer:
        assert answer.headers["Audit-Id"] == "mine"
    async with session.get(NAMESPACES) as answer:
        assert len(answer.headers["Audit-Id"]) == 36
    async with session.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt") as exempt:
        assert answer.headers["X-Kubernetes-Pf-Flowschema-Uid"] == (await exempt.json())["metadata"]["uid"]
    async with session.get("/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/exempt") as exempt:
        assert answer.headers["X-Kubernetes-Pf-Prioritylevel-Uid"] == (await exempt.json())["metadata"]["uid"]


@pytest.mark.parametrize(
    ("path", "status"), [("/readyz/shutdown", 200), ("/livez/shutdown", 404), ("/readyz/etcd", 200), ("/livez/ping", 200)]
)
async def test_checks_of_health_are_there_by_name(session: aiohttp.ClientSession, path: str, status: int) -> None:
    async with session.get(path) as answer:
        assert answer.status == status


@pytest.mark.parametrize(
    ("path", "metric"),
    [
        ("/metrics", 'apiserver_storage_objects{resource="namespaces"}'),
        ("/metrics", "authentication_attempts"),
        ("/metrics", 'apiserver_flowcontrol_nominal_limit_seats{priority_level="workload-low"} 245'),
        ("/metrics/slis", 'kubernetes_healthcheck{name="shutdown",type="readyz"} 1'),
    ],
)
async def test_metrics_have_kubernetes_names(session: aiohttp.ClientSession, path: str, metric: str) -> None:
    async with session.get(path) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
        assert f"\n{metric}" in await answer.text()
