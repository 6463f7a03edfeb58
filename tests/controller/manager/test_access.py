"""Access to metrics and debug pages: static tokens, client certificates, and the cluster's reviews of a token."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from kubeloop.api.core.v1 import ServiceAccount
from kubeloop.api.rbac.v1 import ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject
from kubeloop.client import Client
from kubeloop.controller import Manager
from kubeloop.controller.manager.access import BearerToken, ClientCertificates, KubernetesAccess
from kubeloop.controller.manager.endpoints import Endpoints
from kubeloop.controller.webhooks.certificates.managed import OwnCertificate
from kubeloop.controller.webhooks.tls import ServingCertificate
from kubeloop.meta import ConfigError, ObjectMeta
from kubeloop.pki import CertificateAuthority
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.testing import HandlerServer, TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport

ANYWHERE = "127.0.0.1:0"


def request(token: str = "", path: str = "/metrics", method: str = "GET") -> Request:
    async def nothing(limit: int) -> bytes:
        return b""

    return Request(method, path, "", {"Authorization": f"Bearer {token}"} if token else {}, nothing)


def status(answer: Answer | None) -> int:
    return 200 if answer is None else answer.status


@pytest.fixture
async def client(in_loop_server: TlsTestServer) -> AsyncIterator[Client]:
    async with Client(Transport(in_loop_server.config), namespace="default") as found:
        yield found


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as found:
        yield found


@pytest.mark.embedded
async def test_metrics_over_tls_want_the_token_and_probes_want_none(client: Client, http: aiohttp.ClientSession) -> None:
    certificate = OwnCertificate()
    endpoints = Endpoints(health=ANYWHERE, metrics=ANYWHERE, certificate=certificate, access=BearerToken("correct horse"))
    async with Manager(client, endpoints=endpoints) as manager:
        served = await certificate.open(None, client.clock)
        trust = ssl.create_default_context(cadata=served.authorities.decode())
        url = manager.urls["metrics"] + "/metrics"
        assert url.startswith("https://")
        for headers, expected in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": "Basic correct horse"}, 401),
            ({"Authorization": "Bearer correct horse"}, 200),
        ):
            async with http.get(url, ssl=trust, headers=headers) as answer:
                assert answer.status == expected
        async with http.get(manager.urls["health"] + "/healthz") as answer:
            assert answer.status == 200


@pytest.mark.embedded
async def test_client_certificates_of_the_authority_and_of_the_right_name_get_in(
    client: Client, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    authority = CertificateAuthority.create("clients")
    certificate = OwnCertificate()
    access = ClientCertificates(authority.certificate, ["prometheus"])
    async with Manager(client, endpoints=Endpoints(metrics=ANYWHERE, certificate=certificate, access=access)) as manager:
        served = await certificate.open(None, client.clock)

        async def ask(name: str) -> int:
            trust = ssl.create_default_context(cadata=served.authorities.decode())
            if name:
                issued = authority.issue(name, client=True)
                (tmp_path / name).write_bytes(issued.certificate + issued.key)
                trust.load_cert_chain(tmp_path / name)
            async with http.get(manager.urls["metrics"] + "/metrics", ssl=trust) as answer:
                return answer.status

        assert await ask("") == 401
        assert await ask("other-user") == 403
        assert await ask("prometheus") == 200


async def test_a_client_certificate_that_has_expired_is_refused() -> None:
    authority = CertificateAuthority.create("clients")
    clock = FakeClock()
    access = ClientCertificates(authority.certificate, clock=clock)
    year = clock.wall().year
    asked = request()
    asked.peer_certificate = {"subject": (), "notBefore": f"Jan  1 00:00:00 {year - 2} GMT", "notAfter": f"Jan  1 00:00:00 {year - 1} GMT"}
    assert status(await access.admit(asked)) == 401
    asked.peer_certificate = {"subject": (), "notBefore": f"Jan  1 00:00:00 {year - 2} GMT", "notAfter": f"Jan  1 00:00:00 {year + 1} GMT"}
    assert status(await access.admit(asked)) == 200


async def test_a_token_file_is_read_again_when_it_changes_and_kept_when_it_vanishes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    access = BearerToken(file=path)
    assert status(await access.admit(request("first"))) == 200
    other = tmp_path / "other"
    other.write_text("second-one\n")
    other.replace(path)
    assert status(await access.admit(request("first"))) == 401
    assert status(await access.admit(request("second-one"))) == 200
    path.unlink()
    assert status(await access.admit(request("second-one"))) == 200


def test_what_cannot_protect_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a token, or file="):
        BearerToken()
    with pytest.raises(ConfigError, match="nothing cannot be read: No such file"):
        BearerToken(file=tmp_path / "nothing")
    (tmp_path / "empty").write_text(" \n")
    with pytest.raises(ConfigError, match="empty is empty; write a token into it"):
        BearerToken(file=tmp_path / "empty")
    with pytest.raises(ConfigError, match=r"is not a PEM certificate|cannot be used"):
        ClientCertificates(b"nonsense")
    with pytest.raises(ConfigError, match="credentials would pass in clear"):
        Endpoints(metrics=":8080", access=BearerToken("x"))
    assert Endpoints(metrics=ANYWHERE, access=BearerToken("x")).metrics == ANYWHERE


@pytest.mark.embedded
async def test_the_own_certificate_is_renewed_before_it_ends() -> None:
    clock = FakeClock()
    certificate = OwnCertificate(lifetime=timedelta(days=9))
    first = await certificate.open(None, clock)
    served: list[ServingCertificate] = []
    keeping = asyncio.create_task(certificate.watch(served.append))
    await clock.advance(timedelta(days=6, minutes=1).total_seconds())
    keeping.cancel()
    await asyncio.wait((keeping,))
    assert len(served) >= 1
    assert served[0] != first
    end = x509.load_pem_x509_certificate(served[0].certificate).not_valid_after_utc
    assert end > x509.load_pem_x509_certificate(first.certificate).not_valid_after_utc


@pytest.mark.server
async def test_the_cluster_says_who_a_token_is_and_refuses_strangers(client_of_server: Client) -> None:
    access = KubernetesAccess(client_of_server)
    assert status(await access.admit(request())) == 401
    assert status(await access.admit(request("unknown-token"))) == 401


@pytest.fixture
async def client_of_server(server, namespace: str) -> AsyncIterator[Client]:  # type: ignore[no-untyped-def]  # pytest knows the type
    async with Client(Transport(server.config), namespace=namespace) as found:
        yield found


@pytest.mark.server
async def test_the_clusters_rbac_says_who_may_see_the_metrics(client_of_server: Client, namespace: str) -> None:
    client, name = client_of_server, f"{namespace}-metrics-reader"
    subjects = []
    for account in ("reader", "stranger"):
        await client.create(ServiceAccount(metadata=ObjectMeta(name=account, namespace=namespace)))
    subjects.append(Subject(kind="ServiceAccount", name="reader", namespace=namespace))
    rules = [PolicyRule(verbs=["get"], non_resource_urls=["/metrics"])]
    await client.create(ClusterRole(metadata=ObjectMeta(name=name), rules=rules))
    role = RoleRef(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=name)
    await client.create(ClusterRoleBinding(metadata=ObjectMeta(name=name), role_ref=role, subjects=subjects))
    try:
        access = KubernetesAccess(client)
        tokens = {}
        for account in ("reader", "stranger"):
            body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}'
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
            answer = await client.transport.request("POST", path, body=body, headers={"Content-Type": "application/json"})
            tokens[account] = json.loads(answer.body)["status"]["token"]
        assert status(await access.admit(request(tokens["reader"]))) == 200
        assert status(await access.admit(request(tokens["reader"], "/debug/tasks"))) == 403
        assert status(await access.admit(request(tokens["reader"], method="PUT"))) == 403
        assert status(await access.admit(request(tokens["stranger"]))) == 403
        # From memory: a token is not asked for again.
        assert status(await access.admit(request(tokens["reader"]))) == 200
    finally:
        await client.delete(ClusterRoleBinding, name)
        await client.delete(ClusterRole, name)


@pytest.mark.embedded
async def test_no_request_is_admitted_while_the_cluster_does_not_answer() -> None:
    async with HandlerServer() as server:
        client = server.client()
        await client.close()
        assert status(await KubernetesAccess(client).admit(request("token"))) == 500
