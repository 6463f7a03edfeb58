"""The kube-apiserver launcher as a process: what envtest asks of it, its store beside etcd, its refusals, its end."""

from __future__ import annotations

import base64
import json
import signal
import socket
import ssl
import subprocess
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from kubeloop.pki import CertificateAuthority
from tests.envtest.conftest import Launch, free_port, get, start_apiserver, start_etcd

pytestmark = pytest.mark.embedded


class Administrator:
    """A client certificate of an authority that ``--client-ca-file`` names, as envtest makes one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        authority = CertificateAuthority.create("clients")
        self.authority = folder / "client-ca.crt"
        self.authority.write_bytes(authority.certificate)
        own = authority.issue("admin", ("system:masters",), client=True)
        pair = folder / "admin.pem"
        pair.touch(0o600)
        pair.write_bytes(own.certificate + own.key)
        self.context = ssl._create_unverified_context()
        self.context.load_cert_chain(pair)

    def __call__(self, port: int, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
            return json.load(answer)


@pytest.fixture
def administrator(tmp_path: Path) -> Administrator:
    return Administrator(tmp_path / "users")


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGKILL], ids=["an end by SIGTERM", "an end by SIGKILL"])
def test_objects_outlive_the_server_in_etcds_data_directory(
    launch: Launch, tmp_path: Path, administrator: Administrator, way: signal.Signals
) -> None:
    _, etcd = start_etcd(launch, tmp_path / "data")
    trust = f"--client-ca-file={administrator.authority}"
    server, port = start_apiserver(launch, etcd, tmp_path / "pki", trust)
    made = administrator(port, "POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    server.process.send_signal(way)
    assert server.process.wait(20) == (0 if way is signal.SIGTERM else -way)
    _, port = start_apiserver(launch, etcd, tmp_path / "pki", trust)
    assert administrator(port, "GET", f"{CONFIG_MAPS}/a") == made


def test_servers_with_different_prefixes_share_an_etcd(launch: Launch, tmp_path: Path, administrator: Administrator) -> None:
    _, etcd = start_etcd(launch, tmp_path / "data")
    trust = f"--client-ca-file={administrator.authority}"
    _, one = start_apiserver(launch, etcd, tmp_path / "pki", trust)
    _, other = start_apiserver(launch, etcd, tmp_path / "other", trust, "--etcd-prefix=/other/registry")
    administrator(one, "POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
    names = [item["metadata"]["name"] for item in administrator(other, "GET", CONFIG_MAPS)["items"]]
    assert "a" not in names


def test_a_second_server_on_the_same_store_is_refused_and_names_the_first(launch: Launch, tmp_path: Path) -> None:
    _, etcd = start_etcd(launch, tmp_path / "data")
    first, _ = start_apiserver(launch, etcd, tmp_path / "pki")
    second = launch("kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}", "--secure-port=0", f"--cert-dir={tmp_path / 'other'}")
    assert second.process.wait(20) == 1
    assert f"is in use by another server (process {first.process.pid})" in second.log


def test_anonymous_requests_reach_health_checks_and_nothing_else(launch: Launch, tmp_path: Path) -> None:
    _, etcd = start_etcd(launch, tmp_path / "data")
    _, port = start_apiserver(launch, etcd, tmp_path / "pki")
    assert get(port, "/readyz", tls=True)[0] == 200
    assert get(port, "/api/v1/namespaces", tls=True)[0] == 403


def test_harmless_flags_are_named_in_the_log_and_no_kubeconfig_is_written(launch: Launch, tmp_path: Path) -> None:
    _, etcd = start_etcd(launch, tmp_path / "data")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    server, _ = start_apiserver(launch, etcd, tmp_path / "pki", "--watch-cache=false", "--profiling=false")
    assert (
        "accepted without effect: --allow-privileged=true (this is so anyway), --watch-cache=false (tuning of the watch cache)"
        in server.log
    )
    assert "kubeconfig" not in server.log


def test_the_certificate_in_the_folder_is_shown_to_clients(launch: Launch, tmp_path: Path) -> None:
    """envtest writes it there before it starts the server."""
    folder = tmp_path / "pki"
    folder.mkdir()
    authority = CertificateAuthority.create("envtest")
    own = authority.issue("localhost", ip_addresses=("127.0.0.1",), server=True)
    (folder / "apiserver.crt").write_bytes(own.certificate)
    (folder / "apiserver.key").write_bytes(own.key)
    _, etcd = start_etcd(launch, tmp_path / "data")
    _, port = start_apiserver(launch, etcd, folder)
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/healthz", context=context, timeout=30) as answer:
        assert answer.read() == b"ok"


def test_a_certificate_that_is_missing_is_made_as_kube_apiserver_does(launch: Launch, tmp_path: Path) -> None:
    _, etcd = start_etcd(launch, tmp_path / "data")
    server, port = start_apiserver(launch, etcd, tmp_path / "pki")
    assert sorted(one.name for one in (tmp_path / "pki").iterdir()) == ["apiserver.crt", "apiserver.key"]
    assert (tmp_path / "pki" / "apiserver.key").stat().st_mode & 0o077 == 0
    assert f"generated a self-signed certificate: {tmp_path / 'pki' / 'apiserver.crt'}" in server.log
    with socket.create_connection(("127.0.0.1", port)) as plain, ssl._create_unverified_context().wrap_socket(plain) as connection:
        shown = connection.getpeercert(binary_form=True)
    first = (tmp_path / "pki" / "apiserver.crt").read_text().split("-----")[2]
    assert shown == base64.b64decode(first)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(["--foo=bar"], "Error: unknown flag: --foo; kube-apiserver v1.36 has no such flag", id="an unknown flag"),
        pytest.param(["--encryption-provider-config=x"], "does not implement --encryption-provider-config=x", id="a refused flag"),
        pytest.param(["--feature-gates=WatchList=false"], "--feature-gates=WatchList=false", id="a feature gate"),
        pytest.param([], "--etcd-servers must be specified", id="no etcd"),
        pytest.param(["--etcd-servers=http://127.0.0.1:1"], "no etcd launcher of kubeloop answers there", id="an etcd that is not there"),
        pytest.param(["--etcd-servers=https://127.0.0.1:1"], "speaks http only", id="an etcd with TLS"),
        pytest.param(["--etcd-servers=http://a,http://b"], "has one member; pass one URL", id="two etcds"),
        pytest.param(["--insecure-port=8080"], "unknown flag: --insecure-port", id="an insecure port"),
    ],
)
def test_what_it_cannot_do_ends_it_with_status_1_and_the_reason(launch: Launch, flags: list[str], message: str) -> None:
    started = launch("kube-apiserver", *flags)
    assert started.process.wait(30) == 1
    assert message in started.log


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        pytest.param("--runtime-config=api/ga=false", "--runtime-config=api/ga=false: kubeloop cannot", id="a runtime config"),
        pytest.param("--enable-admission-plugins=Nonsense", "Nonsense", id="a plug-in that there is not"),
        pytest.param("--authorization-mode=Webhook", "Webhook", id="a mode of authorization that there is not"),
        pytest.param("--request-timeout=soon", "'soon' is not a valid duration", id="a value that kubeloop server refuses"),
        pytest.param("--client-ca-file=/nowhere/ca.crt", "--client-ca-file /nowhere/ca.crt", id="a file that is not there"),
    ],
)
def test_a_value_that_the_server_refuses_ends_it_with_status_1_and_the_reason(
    launch: Launch, tmp_path: Path, flag: str, message: str
) -> None:
    _, etcd = start_etcd(launch, tmp_path / "data")
    started = launch("kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}", "--secure-port=0", f"--cert-dir={tmp_path / 'pki'}", flag)
    assert started.process.wait(30) == 1
    assert message in started.log


def test_a_port_that_is_taken_is_named(launch: Launch, tmp_path: Path) -> None:
    _, etcd = start_etcd(launch, tmp_path / "data")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        servers = f"--etcd-servers=http://127.0.0.1:{etcd}"
        started = launch("kube-apiserver", servers, f"--cert-dir={tmp_path / 'pki'}", f"--secure-port={port}")
        assert started.process.wait(30) == 1
    assert f"cannot listen on 127.0.0.1:{port}" in started.log


class _OtherServer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the overridden method's parameter
        return


def test_a_real_etcd_is_refused(launch: Launch) -> None:
    """A real etcd answers 404 to kubeloop's path."""
    with HTTPServer(("127.0.0.1", 0), _OtherServer) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        started = launch("kube-apiserver", f"--etcd-servers=http://127.0.0.1:{other.server_port}")
        assert started.process.wait(20) == 1
        other.shutdown()
    assert "this is not an etcd launcher of kubeloop (status 404)" in started.log
    assert "take both from the same assets directory" in started.log


def test_requests_to_the_store_ignore_the_proxy_of_the_environment(launch: Launch, tmp_path: Path) -> None:
    _, etcd = start_etcd(launch, tmp_path / "data")
    port = free_port()
    started = launch(
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        f"--cert-dir={tmp_path / 'pki'}",
        f"--secure-port={port}",
        "--authorization-mode=RBAC",
        environment={"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"},
    )
    started.wait_until(lambda: get(port, "/healthz", tls=True)[0] == 200)


def test_it_ends_by_sigterm_with_status_0_and_leaves_no_process(launch: Launch, tmp_path: Path) -> None:
    etcd, etcd_port = start_etcd(launch, tmp_path / "data")
    server, port = start_apiserver(launch, etcd_port, tmp_path / "pki")
    assert (server.stop(), etcd.stop()) == (0, 0)
    assert get(port, "/healthz", tls=True)[0] == 0
    groups = {server.process.pid, etcd.process.pid}
    left = subprocess.run(["ps", "-eo", "pgid="], capture_output=True, text=True, check=True).stdout.split()
    assert groups.isdisjoint(map(int, left))


def test_version_and_help_say_what_it_is_at_once(launch: Launch) -> None:
    for flag, text in (("--version", "Kubernetes v1.36.3 (kubeloop "), ("--help", "--secure-port int"), ("-h", "Refused unless")):
        started = launch("kube-apiserver", flag)
        assert started.process.wait(20) == 0
        assert text in started.log


def test_it_imports_no_server_for_help(launch: Launch) -> None:
    """envtest asks for --help before each start."""
    started = launch("kube-apiserver", "--help", environment={"PYTHONPROFILEIMPORTTIME": "1"})
    assert started.process.wait(20) == 0
    imported = {line.rpartition("|")[2].strip() for line in started.log.splitlines() if line.startswith("import time:")}
    assert "kubeloop.envtest.apiserver_flags" in imported
    assert imported.isdisjoint({"click", "asyncio", "ssl", "cryptography", "msgspec", "kubeloop.meta"})
