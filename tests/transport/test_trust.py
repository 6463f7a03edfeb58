"""Servers that cannot be reached or trusted: the error names the server, the cause and the way out."""

from __future__ import annotations

import asyncio
import re
import ssl
from pathlib import Path

import pytest

from kubeloop.config import ClusterConfig, Credentials, Pem
from kubeloop.config.tls import CERTIFICATE_PERIOD
from kubeloop.meta import ApiError, ConnectionRefused, TransportError, UntrustedCertificate
from kubeloop.pki import CertificateAuthority
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from kubeloop.transport.errors import failure_of
from tests.faults import FaultServer, Reply, authority


async def fails(config: ClusterConfig) -> TransportError:
    async with Transport(config) as transport:
        with pytest.raises(TransportError) as raised:
            await transport.request("GET", "/version")
    return raised.value


async def test_another_authority_is_not_trusted() -> None:
    other = Pem(data=CertificateAuthority.create("other").certificate, field='cluster "faulty": certificate-authority-data')
    async with FaultServer(Reply()) as server:
        error = await fails(server.config(ca=other))
    assert isinstance(error, UntrustedCertificate)
    text = str(error)
    assert f"https://127.0.0.1:{server.port}" in text
    assert "x509: certificate signed by unknown authority" in text
    assert 'trusted: cluster "faulty": certificate-authority-data' in text
    assert "give the authority that signed it as certificate-authority" in text
    assert server.received == []


async def test_without_an_authority_those_of_the_system_are_named() -> None:
    async with FaultServer(Reply()) as server:
        assert "trusted: the authorities of this system" in str(await fails(server.config(ca=None)))


async def test_a_certificate_for_another_name_is_not_trusted() -> None:
    certificate = authority().issue("x", server=True, dns_names=["api.example"])
    async with FaultServer(Reply(), certificate=certificate) as server:
        error = await fails(server.config())
        assert isinstance(error, UntrustedCertificate)
        assert "is not valid for" in str(error)
        assert "set tls-server-name" in str(error)
        async with Transport(server.config(tls_server_name="api.example")) as transport:
            assert (await transport.request("GET", "/version")).status == 200


async def test_an_expired_certificate_is_not_trusted() -> None:
    certificate = authority().issue("x", server=True, ip_addresses=["127.0.0.1"], days=0)
    # Validity ends now: a moment later it is over.
    async with FaultServer(Reply(), certificate=certificate) as server:
        error = await fails(server.config())
    assert isinstance(error, UntrustedCertificate)
    assert "x509: certificate has expired" in str(error)
    assert "renew the server's certificate" in str(error)


async def test_verification_can_be_skipped() -> None:
    async with FaultServer(Reply()) as server, Transport(server.config(ca=None, insecure_skip_tls_verify=True)) as transport:
        assert (await transport.request("GET", "/version")).status == 200


async def test_a_port_where_nothing_listens() -> None:
    async with FaultServer(Reply()) as server:
        config = server.config()
    error = await fails(config)
    assert isinstance(error, ConnectionRefused)
    assert "connection refused: nothing listens there" in str(error)


async def test_a_server_that_does_not_speak_tls() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await fails(ClusterConfig(server=f"https://127.0.0.1:{port}", ca=Pem(data=authority().certificate)))
    assert not isinstance(error, UntrustedCertificate)
    assert "the server does not speak TLS; should server in configuration begin with http:// ?" in str(error)


async def test_a_server_that_speaks_tls_only() -> None:
    """As Go's server answers, and as servers do that say nothing."""

    async def go(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(go, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Transport(ClusterConfig(server=f"http://127.0.0.1:{port}")) as transport:
            with pytest.raises(ApiError) as refused:
                await transport.request("GET", "/version")
    wanted = "if the server speaks TLS, as API servers do, server in configuration should begin with https://"
    assert wanted in str(refused.value)
    async with FaultServer(Reply()) as faults:
        error = await fails(faults.config(server=faults.config().server.replace("https://", "http://")))
    assert wanted.replace("configuration", 'cluster "faulty"') in str(error)


async def test_a_host_that_cannot_be_resolved() -> None:
    async with FaultServer(Reply()) as server:
        config = server.config(server="https://no-such-host.invalid:6443")
    assert "the host name cannot be resolved" in str(await fails(config))


async def test_changed_certificate_files_are_used_for_new_connections(tmp_path: Path) -> None:
    file, clock = tmp_path / "ca.crt", FakeClock()
    file.write_bytes(authority().certificate)
    async with FaultServer(Reply()) as server:
        config = server.config(ca=Pem(path=file), credentials=Credentials())
        async with Transport(config, clock=clock) as transport:
            await transport.request("GET", "/version")
            file.write_bytes(b"")
            await clock.advance(CERTIFICATE_PERIOD)
            assert (await transport.request("GET", "/version")).status == 200  # a broken file leaves the old one in use
            file.write_bytes(CertificateAuthority.create("other").certificate)
            await clock.advance(CERTIFICATE_PERIOD)
            with pytest.raises(UntrustedCertificate):
                await transport.request("GET", "/version")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(OSError(24, "Too many open files"), "raise its limit \\(ulimit -n\\)", id="no descriptor left"),
        pytest.param(OSError(113, "No route to host"), "cannot be reached: No route to host; check server in here", id="no route"),
        pytest.param(OSError("Multiple exceptions: [Errno 111] a, [Errno 111] b"), "nothing listens there", id="refused at every address"),
        pytest.param(TimeoutError(), "no connection within 30 s", id="no connection"),
        pytest.param(TimeoutError(110, "Connection timed out"), "the connection ended", id="a peer that is gone"),
    ],
)
def test_what_sockets_say_becomes(error: OSError, text: str) -> None:
    found = str(failure_of(error, ClusterConfig(server="https://h", name="c", source="here"), "list pods"))
    assert found.startswith('https://h (cluster "c"): ')
    assert re.search(text, found)


def test_tls_is_at_least_1_2() -> None:
    assert ClusterConfig(server="https://h").ssl_context().minimum_version == ssl.TLSVersion.TLSv1_2
