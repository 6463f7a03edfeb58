"""What a transport does against an API server as it is: the embedded one, and a real kube-apiserver."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec
import pytest

from kubeloop.config import ClusterConfig, Credentials, Pem
from kubeloop.meta import AlreadyExists, ApiError, BadRequest, Forbidden, Gone, Invalid, NotFound, Unauthorized, UntrustedCertificate
from kubeloop.meta.errors import ConfigError
from kubeloop.pki import CertificateAuthority
from kubeloop.timing import FakeClock, TokenBucket
from kubeloop.transport import NotUpgradedError, Query, ServerWarning, Transport
from tests.faults.tunnel import tunnelling_proxy
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


@pytest.fixture
async def transport(server: ServerUnderTest) -> AsyncIterator[Transport]:
    async with Transport(server.config) as found:
        yield found


def tree(body: bytes) -> dict[str, object]:
    return msgspec.json.decode(body, type=dict[str, object])


async def test_one_connection_serves_several_groups_row_25(transport: Transport) -> None:
    for path in ("/api/v1", "/apis/apps/v1", "/apis/batch/v1", "/version"):
        assert (await transport.request("GET", path)).status == 200
    assert transport.figures.connections == 1


async def test_a_proxy_that_is_configured_is_used_and_a_direct_way_is_not_row_29(server: ServerUnderTest) -> None:
    async with tunnelling_proxy() as (port, heads):
        config = msgspec.structs.replace(server.config, proxy_url=f"http://127.0.0.1:{port}")
        async with Transport(config) as transport:
            assert tree((await transport.request("GET", "/api/v1")).body)["kind"] == "APIResourceList"
    assert [head.partition(" ")[0] for head in heads] == ["CONNECT"]


async def test_the_system_does_not_trust_the_clusters_authority_row_32(server: ServerUnderTest) -> None:
    other = Pem(data=CertificateAuthority.create("other").certificate, field="certificate-authority-data")
    async with Transport(msgspec.structs.replace(server.config, ca=other)) as transport:
        with pytest.raises(UntrustedCertificate, match="x509: certificate signed by unknown authority"):
            await transport.request("GET", "/version")


async def test_who_skips_the_check_is_anonymous_without_a_certificate_and_may_not_both_check_and_skip_rows_24_and_33(
    server: ServerUnderTest,
) -> None:
    anonymous = ClusterConfig(server=server.config.server, insecure_skip_tls_verify=True)
    async with Transport(anonymous) as transport:
        with pytest.raises(ApiError) as raised:
            await transport.request("GET", "/api/v1/namespaces/default/pods")
    if isinstance(raised.value, Forbidden):
        assert 'User "system:anonymous" cannot list resource "pods" in API group "" in the namespace "default"' in str(raised.value)
    else:
        assert isinstance(raised.value, Unauthorized)
    with pytest.raises(ConfigError, match="insecure-skip-tls-verify"):
        msgspec.structs.replace(server.config, insecure_skip_tls_verify=True)


async def test_an_unknown_token_is_refused_and_the_error_says_whose_it_is(server: ServerUnderTest) -> None:
    who = Credentials(token="no-such-token", owner='user "tester"')
    async with Transport(msgspec.structs.replace(server.config, credentials=who)) as transport:
        with pytest.raises(Unauthorized, match=r'credentials: user "tester": they are unknown or expired: renew them') as raised:
            await transport.request("GET", "/api/v1/namespaces/default/pods")
    assert "no-such-token" not in str(raised.value)


async def test_the_11th_request_waits_when_5_per_second_after_10_are_asked_for_and_a_watch_does_not_row_40(server: ServerUnderTest) -> None:
    clock = FakeClock()
    async with Transport(server.config, clock=clock, limiter=TokenBucket(5, 10, clock)) as transport:
        for _ in range(10):
            await transport.request("GET", "/version")
        held = asyncio.create_task(transport.request("GET", "/version"))
        while not clock.waiting:
            await asyncio.sleep(0.001)
        async with transport.stream("GET", "/api/v1/namespaces/default/configmaps", query={"watch": True}) as stream:
            assert stream.status == 200
        assert not held.done()
        await clock.advance(0.2)
        assert (await held).status == 200


async def test_a_warning_of_the_server_reaches_the_handler_once_row_41(server: ServerUnderTest, namespace: str) -> None:
    said: list[ServerWarning] = []
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "unknown": 1}
    async with Transport(server.config, warning_handler=said.append) as transport:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        answer = await transport.request("POST", path, query={"fieldValidation": "Warn"}, body=msgspec.json.encode(body))
    assert [one.text for one in said] == ['unknown field "unknown"']
    assert answer.warnings == ('unknown field "unknown"',)


async def test_a_status_becomes_the_exception_of_its_reason_row_56(transport: Transport, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    with pytest.raises(NotFound, match=r'configmaps "a" not found') as missing:
        await transport.request("GET", f"{path}/a")
    assert missing.value.status.details is not None
    assert missing.value.request == f'get configmaps "a" in namespace "{namespace}"'
    await transport.request("POST", path, body=msgspec.json.encode(body))
    with pytest.raises(AlreadyExists):
        await transport.request("POST", path, body=msgspec.json.encode(body))
    with pytest.raises(Invalid) as invalid:
        await transport.request("POST", path, body=msgspec.json.encode({**body, "metadata": {"name": "A_"}}))
    assert [cause.field for cause in invalid.value.causes] == ["metadata.name"]
    with pytest.raises(BadRequest):
        await transport.request("POST", path, body=b"{")


async def test_a_watch_of_the_old_past_is_refused_or_ends_with_what_says_why_row_57(transport: Transport) -> None:
    query: Query = {"watch": True, "resourceVersion": "1", "timeoutSeconds": 1}
    with suppress(Gone):
        async with transport.stream("GET", "/api/v1/namespaces/default/configmaps", query=query) as stream:
            body = b"".join([chunk async for chunk in stream.chunks()])
        assert stream.headers["Transfer-Encoding"] == "chunked"
        assert all(line.startswith(b"{") for line in body.splitlines())


async def test_large_answers_are_asked_for_packed_and_unpacked(transport: Transport, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"x": "y" * 300_000}}
    await transport.request("POST", path, body=msgspec.json.encode(body))
    answer = await transport.request("GET", f"{path}/large")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert tree(answer.body)["data"] == body["data"]


async def test_what_cannot_be_upgraded_is_refused_as_what_it_is(transport: Transport, namespace: str) -> None:
    with pytest.raises((ApiError, NotUpgradedError)):
        async with transport.upgrade(
            "GET", f"/api/v1/namespaces/{namespace}/pods/none/exec", protocol="websocket", query={"command": ["x"]}
        ):
            pytest.fail("the block must not run")


async def test_the_environment_names_a_proxy_and_the_way_around_it_row_29(server: ServerUnderTest) -> None:
    program = """
import asyncio, sys
from kubeloop.config import load_config
from kubeloop.transport import Transport
async def main():
    async with Transport(load_config(sys.argv[1])) as transport:
        print((await transport.request("GET", "/version")).status)
asyncio.run(main())
"""
    async with tunnelling_proxy() as (port, heads):
        environment = {**os.environ, "HTTPS_PROXY": f"http://127.0.0.1:{port}"}
        command = [sys.executable, "-c", program, str(server.kubeconfig)]
        ended = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True, check=True)
        assert ended.stdout == "200\n"
    # Go, and so we, never use a proxy for a loopback address.
    loopback = any(f"//{host}:" in server.config.server for host in ("127.0.0.1", "localhost", "[::1]"))
    assert len(heads) == (0 if loopback else 1)
