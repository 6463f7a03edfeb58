"""HTTP proxies that are themselves reached by TLS, and what they get to see. Over real TLS sockets, one within the other."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from kubeloop.config import Pem
from kubeloop.meta import TransportError
from kubeloop.pki import CertificateAuthority
from kubeloop.transport import Transport
from tests.faults import FaultServer, Reply, authority, loopback_certificate
from tests.faults.server import server_context, switched
from tests.faults.tunnel import tunnelling_proxy


def secure_proxy() -> AbstractAsyncContextManager[tuple[int, list[str]]]:
    return tunnelling_proxy(server_context(loopback_certificate()))


async def test_a_proxy_is_reached_by_tls_with_the_clusters_authority_and_sees_nothing_of_the_request() -> None:
    async with (
        FaultServer(Reply(body=b"ok")) as server,
        secure_proxy() as (port, heads),
        Transport(server.config(proxy_url=f"https://me:hidden@localhost:{port}")) as transport,
    ):
        assert (await transport.request("GET", "/version")).body == b"ok"
        assert (await transport.request("GET", "/version")).body == b"ok"
    assert [head.partition("\r\n")[0] for head in heads] == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"]
    assert "Proxy-Authorization: Basic" in heads[0]
    assert "secret-token" not in heads[0]
    assert "proxy-authorization" not in server.received[0].headers


async def test_streams_and_changes_of_protocol_go_through_too() -> None:
    script = [Reply(chunks=[b"one", b"two"]), switched(b"first")]
    async with (
        FaultServer(*script) as server,
        secure_proxy() as (port, _),
        Transport(server.config(proxy_url=f"https://localhost:{port}")) as transport,
    ):
        async with transport.stream("GET", "/x") as stream:
            assert b"".join([chunk async for chunk in stream.chunks()]) == b"onetwo"
        async with transport.upgrade("GET", "/x", protocol="websocket") as connection:
            assert await connection.read() == b"first"
            await connection.write(b"more")
            assert await connection.read() == b"MORE"


async def test_a_proxy_with_an_unknown_certificate_gets_no_request() -> None:
    other = CertificateAuthority.create("other").certificate
    async with FaultServer(Reply()) as server, secure_proxy() as (port, heads):
        config = server.config(proxy_url=f"https://me:hidden@localhost:{port}", ca=Pem(data=other, field="certificate-authority-data"))
        async with Transport(config) as transport:
            with pytest.raises(TransportError, match=r"the proxy https://localhost:\d+ cannot be reached: .*certificate") as raised:
                await transport.request("GET", "/version")
    assert not heads
    assert "hidden" not in str(raised.value)
    assert authority().certificate != other
