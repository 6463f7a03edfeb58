"""Hooks over TLS: what a server answers over a real socket, with certificates of files."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.webhooks import CertificateFiles, Register, Webhooks, WebhookServer
from kubeloop.meta import ConfigError
from kubeloop.pki import CertificateAuthority
from kubeloop.timing import FakeClock
from tests.controller.webhooks.foos import Foo
from tests.controller.webhooks.review_requests import http, shown
from tests.controller.webhooks.reviews import foo, review

PATH = "/validate/check.foos.example.com"


def hooks_of_foo() -> Webhooks:
    hooks = Webhooks()

    @hooks.validating(Foo)
    async def check(foo: Foo) -> None:
        if foo.spec.size == 13:
            raise RuntimeError("unlucky")

    return hooks


def write_pair(folder: Path, authority: CertificateAuthority, name: str = "hook") -> None:
    made = authority.issue(name, ip_addresses=["127.0.0.1"], server=True)
    for file, content in (("tls.crt", made.certificate), ("tls.key", made.key), ("ca.crt", authority.certificate)):
        path = folder / file
        path.touch(mode=0o600)
        path.write_bytes(content)


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    made = CertificateAuthority.create("test")
    write_pair(tmp_path, made)
    return made


@pytest.fixture
async def server(tmp_path: Path, authority: CertificateAuthority) -> AsyncIterator[WebhookServer]:
    registry = CollectorRegistry()
    async with WebhookServer(hooks_of_foo(), CertificateFiles(tmp_path), port=0, registry=registry) as found:
        yield found


BODY = review(foo(size=1))
ANSWERS = [
    pytest.param("POST", PATH, "application/json", BODY, 200, "", id="a review is answered"),
    pytest.param("POST", f"{PATH}?timeout=5s", "application/json; charset=utf-8", BODY, 200, "", id="as API servers send it"),
    pytest.param("POST", f"{PATH}?timeout={'1' * 200_000}", "application/json", BODY, 200, "", id="a timeout without end is none"),
    pytest.param("POST", "/other", "application/json", BODY, 404, "no webhook is served at /other", id="another path is not found"),
    pytest.param("POST", "/convert", "application/json", BODY, 404, "/convert", id="conversions without a converter are not found"),
    pytest.param("GET", PATH, "", b"", 405, "POST", id="another method is not allowed"),
    pytest.param("POST", PATH, "text/plain", BODY, 415, "application/json", id="another type is not supported"),
    pytest.param("POST", PATH, "", BODY, 415, "application/json", id="no type is not supported"),
    pytest.param("POST", PATH, "application/json", b"{}", 400, "AdmissionReview", id="a body that is no review is a bad request"),
]


@pytest.mark.parametrize(("method", "path", "content_type", "body", "status", "text"), ANSWERS)
async def test_an_answer(
    server: WebhookServer,
    authority: CertificateAuthority,
    method: str,
    path: str,
    content_type: str,
    body: bytes,
    status: int,
    text: str,
) -> None:
    answered = await http(server.url, path, body, ca=authority.certificate, method=method, content_type=content_type)
    assert answered[0] == status
    assert text in answered[2].decode()
    if status == 405:
        assert answered[1]["allow"] == "POST"
    if status == 200:
        assert json.loads(answered[2])["response"] == {"uid": "u-1", "allowed": True}


async def test_a_review_of_more_than_7_mib_is_refused_before_it_is_sent(server: WebhookServer, authority: CertificateAuthority) -> None:
    status, _, body = await http(server.url, PATH, b" ", ca=authority.certificate, length=7 * 1024 * 1024 + 1)
    assert (status, b"longer than 7340032 bytes" in body) == (413, True)


async def test_requests_are_counted_under_controller_runtimes_names(tmp_path: Path, authority: CertificateAuthority) -> None:
    registry = CollectorRegistry()
    async with WebhookServer(hooks_of_foo(), CertificateFiles(tmp_path), port=0, registry=registry) as server:
        for body in (BODY, review(foo(size=13)), b"{}"):
            await http(server.url, PATH, body, ca=authority.certificate)
        await http(server.url, "/other", BODY, ca=authority.certificate)
    prefix = "controller_runtime_webhook_"
    assert registry.get_sample_value(prefix + "requests_total", {"webhook": PATH, "code": "200"}) == 2
    assert registry.get_sample_value(prefix + "requests_total", {"webhook": PATH, "code": "400"}) == 1
    assert registry.get_sample_value(prefix + "latency_seconds_count", {"webhook": PATH}) == 3
    assert registry.get_sample_value(prefix + "requests_in_flight", {"webhook": PATH}) == 0
    assert registry.get_sample_value(prefix + "panics_total") == 1
    # An unserved path makes no series: a client could make any number of them.
    assert registry.get_sample_value(prefix + "requests_total", {"webhook": "/other", "code": "404"}) is None


async def test_two_servers_count_in_one_registry(tmp_path: Path, authority: CertificateAuthority) -> None:
    registry = CollectorRegistry()
    for _ in range(2):
        async with WebhookServer(hooks_of_foo(), CertificateFiles(tmp_path), port=0, registry=registry) as server:
            await http(server.url, PATH, BODY, ca=authority.certificate)
    assert registry.get_sample_value("controller_runtime_webhook_requests_total", {"webhook": PATH, "code": "200"}) == 2


async def test_a_client_without_a_certificate_stays_out_if_one_is_required(tmp_path: Path, authority: CertificateAuthority) -> None:
    clients = CertificateAuthority.create("clients")
    own = clients.issue("kube-apiserver", client=True)
    (tmp_path / "client.crt").write_bytes(own.certificate)
    (tmp_path / "client.key").write_bytes(own.key)
    registry, wanted = CollectorRegistry(), clients.certificate
    files = CertificateFiles(tmp_path)
    async with WebhookServer(hooks_of_foo(), files, port=0, registry=registry, client_authorities=wanted) as server:
        shown_by_client = (str(tmp_path / "client.crt"), str(tmp_path / "client.key"))
        assert (await http(server.url, PATH, BODY, ca=authority.certificate, client=shown_by_client))[0] == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await http(server.url, PATH, BODY, ca=authority.certificate)


async def test_new_files_serve_new_connections(tmp_path: Path, authority: CertificateAuthority) -> None:
    clock, registry = FakeClock(), CollectorRegistry()
    async with WebhookServer(hooks_of_foo(), CertificateFiles(tmp_path), port=0, registry=registry, clock=clock) as server:
        before = await shown(server.url, authority.certificate)
        other = CertificateAuthority.create("other")
        write_pair(tmp_path, other)
        assert await shown(server.url, authority.certificate) == before
        await clock.advance(10)
        after = await shown(server.url, other.certificate)
        assert after != before
        assert server.serving.authorities == other.certificate


async def test_files_that_do_not_fit_together_are_passed_over(
    tmp_path: Path, authority: CertificateAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    clock, registry = FakeClock(), CollectorRegistry()
    async with WebhookServer(hooks_of_foo(), CertificateFiles(tmp_path), port=0, registry=registry, clock=clock) as server:
        before = await shown(server.url, authority.certificate)
        (tmp_path / "tls.key").write_bytes(authority.issue("other", server=True).key)
        await clock.advance(60)
        assert await shown(server.url, authority.certificate) == before
        (tmp_path / "tls.key").unlink()
        await clock.advance(60)
        assert await shown(server.url, authority.certificate) == before
        server.check()
    messages = [record.getMessage() for record in caplog.records if "stays in use" in record.getMessage()]
    assert len(messages) == 2, "each fault is logged once"
    assert "not a certificate and its key" in messages[0]
    assert "tls.key" in messages[1]


async def test_without_files_the_error_names_the_missing_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls\.crt.*mounted"):
        async with WebhookServer(hooks_of_foo(), CertificateFiles(tmp_path), port=0):
            raise AssertionError("it must not start")


async def test_a_server_without_a_hook_does_not_start(tmp_path: Path, authority: CertificateAuthority) -> None:
    with pytest.raises(DeclarationError):
        await WebhookServer(Webhooks(), CertificateFiles(tmp_path), port=0).__aenter__()


async def test_a_taken_port_is_named(tmp_path: Path, server: WebhookServer) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=str(port)):
        await WebhookServer(hooks_of_foo(), CertificateFiles(tmp_path), port=port, registry=CollectorRegistry()).__aenter__()


async def test_its_readiness_is_that_it_serves(tmp_path: Path, authority: CertificateAuthority) -> None:
    server = WebhookServer(hooks_of_foo(), CertificateFiles(tmp_path), port=0, registry=CollectorRegistry())
    with pytest.raises(ConfigError, match="does not serve"):
        server.check()
    async with server:
        server.check()
    with pytest.raises(ConfigError, match="does not serve"):
        _ = server.url


def test_registering_needs_a_client(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="client="):
        WebhookServer(hooks_of_foo(), CertificateFiles(tmp_path), register=Register("x"))
