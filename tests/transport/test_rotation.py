"""Certificates of the server that change while a client works, and what transports share. Over real TLS sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeloop.client import Client
from kubeloop.config import Pem
from kubeloop.config.tls import CERTIFICATE_PERIOD
from kubeloop.meta import UntrustedCertificate
from kubeloop.pki import CertificateAuthority, IssuedCertificate
from kubeloop.timing import FakeClock
from kubeloop.transport import Hook, Outcome, SentRequest, Transport
from tests.faults import FaultServer, Received, Reply, authority


def issued(by: CertificateAuthority) -> IssuedCertificate:
    return by.issue("renewed", server=True, ip_addresses=["127.0.0.1"])


def answer(received: Received) -> Reply:
    return Reply(chunks=[b"first"], end="hang") if "watch" in received.target else Reply(body=b"ok")


async def test_a_server_that_renews_its_certificate_loses_no_request_and_no_stream() -> None:
    async with (
        FaultServer(answer=answer) as server,
        Transport(server.config()) as transport,
        transport.stream("GET", "/watch") as stream,
    ):
        chunks = stream.chunks()
        assert await anext(chunks) == b"first"
        await transport.request("GET", "/x")
        server.rotate(issued(authority()))
        # The pooled connection goes on; those beside it meet the new certificate.
        answers = await asyncio.gather(*(transport.request("GET", "/x") for _ in range(10)))
        assert {one.body for one in answers} == {b"ok"}
        assert server.connections > 2
        following = asyncio.ensure_future(anext(chunks))
        done, _ = await asyncio.wait([following], timeout=0.01)
        assert not done
        following.cancel()
        await asyncio.wait([following])


async def test_a_server_that_changes_its_authority_is_followed_when_the_file_is_and_not_before(tmp_path: Path) -> None:
    other, clock, file = CertificateAuthority.create("other"), FakeClock(), tmp_path / "ca.crt"
    file.write_bytes(authority().certificate)
    async with (
        FaultServer(answer=answer) as server,
        Transport(server.config(ca=Pem(path=file, field="certificate-authority")), clock=clock) as transport,
    ):
        await transport.request("GET", "/x")
        server.rotate(issued(other))
        async with transport.stream("GET", "/watch"):  # a new connection would be needed beside this one, which takes the pooled
            with pytest.raises(UntrustedCertificate, match=rf"not trusted: .*; trusted: certificate-authority {file}"):
                await transport.request("GET", "/x")
            file.write_bytes(authority().certificate + other.certificate)
            await clock.advance(CERTIFICATE_PERIOD)
            assert (await transport.request("GET", "/x")).body == b"ok"
        assert transport.figures.ca_reloads["success", "updated"] == 1


async def test_users_of_a_transport_share_its_connections_and_others_never_do_L162() -> None:
    async with FaultServer(answer=answer) as server:
        async with Transport(server.config()) as transport:
            one, two = Client(transport), Client(transport)
            await one.transport.request("GET", "/apis/apps/v1")
            await two.transport.request("GET", "/api/v1")
            assert server.connections == 1
            async with Transport(server.config()) as apart:
                await apart.request("GET", "/x")
            assert server.connections == 2
        # The connections of a closed transport are closed.
        async with Transport(server.config()) as transport:
            await transport.request("GET", "/x")
        assert server.connections == 3


async def test_hooks_and_figures_of_one_transport_are_not_those_of_another_L162() -> None:
    seen: list[str] = []

    class Name(Hook):
        def answered(self, request: SentRequest, outcome: Outcome) -> None:
            seen.append(request.path)

    async with (
        FaultServer(answer=answer) as server,
        Transport(server.config(), hooks=[Name()]) as watched,
        Transport(server.config()) as other,
    ):
        await watched.request("GET", "/one")
        await other.request("GET", "/two")
        assert seen == ["/one"]
        assert sum(watched.figures.requests.values()) == sum(other.figures.requests.values()) == 1
