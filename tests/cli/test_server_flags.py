"""Flags of ``kubeloop server`` that bear kube-apiserver's names: what each does to what clients see."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kubeloop.config import load_config

pytestmark = pytest.mark.embedded

EVENTS = "/api/v1/namespaces/default/events"
SERVICES = "/api/v1/namespaces/default/services"


class Server:
    def __init__(self, kubeconfig: Path) -> None:
        self._config = load_config(kubeconfig)
        certificate, key = self._config.credentials.client_certificate, self._config.credentials.client_key
        assert certificate is not None
        assert key is not None
        self._context = self._config.ssl_context((certificate.read(), key.read()))

    @property
    def url(self) -> str:
        return self._config.server

    def __call__(self, method: str, path: str, body: Any = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._config.server}{path}", data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
            text: str = answer.read().decode()
            return text


@contextmanager
def running(folder: Path, *flags: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "kubeloop", "server", "--no-controllers", "--kubeconfig", str(folder / "kubeconfig"), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        try:
            yield Server(folder / "kubeconfig")
        finally:
            process.terminate()


def test_events_end_and_watches_that_name_no_end_as_the_flags_say(tmp_path: Path) -> None:
    with running(tmp_path, "--event-ttl=300ms", "--min-request-timeout", "1s") as server:
        event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
        made = json.loads(server("POST", EVENTS, event))
        # This ends by itself, within two seconds, and an Event ends before that.
        watched = server("GET", f"{EVENTS}?watch=1&resourceVersion={made['metadata']['resourceVersion']}")
        assert [json.loads(line)["type"] for line in watched.splitlines()] == ["DELETED"]
        assert json.loads(server("GET", EVENTS))["items"] == []


def test_services_get_addresses_and_ports_of_the_ranges_of_the_flags(tmp_path: Path) -> None:
    with running(tmp_path, "--service-cluster-ip-range=10.3.0.0/16", "--service-node-port-range=4000-4000", "--secure-port=0") as server:
        spec = {"type": "NodePort", "ports": [{"port": 80}]}
        made = json.loads(server("POST", SERVICES, {"metadata": {"name": "s"}, "spec": spec}))["spec"]
        assert (made["clusterIP"].startswith("10.3."), made["ports"][0]["nodePort"]) == (True, 4000)
        assert json.loads(server("GET", f"{SERVICES}/kubernetes"))["spec"]["clusterIP"] == "10.3.0.1"
        ranges = json.loads(server("GET", "/apis/networking.k8s.io/v1/servicecidrs"))["items"]
        assert [one["spec"]["cidrs"] for one in ranges] == [["10.3.0.0/16"]]


def test_it_listens_on_the_loopback_address_of_the_flag_and_advertises_another(tmp_path: Path) -> None:
    with running(tmp_path, "--bind-address=127.0.0.2", "--advertise-address=192.0.2.7") as server:
        assert server.url.startswith("https://127.0.0.2:")
        found = json.loads(server("GET", "/api/v1/namespaces/default/endpoints/kubernetes"))
        assert found["subsets"][0]["addresses"] == [{"ip": "192.0.2.7"}]


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        pytest.param(
            "--bind-address=0.0.0.0", "0.0.0.0 can be reached from elsewhere, and kubeloop serves this machine only", id="anywhere"
        ),
        pytest.param("--advertise-address=x", "'x' does not appear to be an IPv4 or IPv6 address", id="no address"),
        pytest.param("--service-cluster-ip-range=x", "Error: --service-cluster-ip-range=x: not a range; write", id="address"),
        pytest.param("--service-node-port-range=x", "Error: --service-node-port-range=x: not a range; write", id="ports"),
        pytest.param(
            "--event-ttl=x", "Invalid value for '--event-ttl': 'x' is not a valid duration; write seconds, or one like 5m", id="duration"
        ),
    ],
)
def test_a_flag_that_makes_no_sense_is_named(flag: str, message: str) -> None:
    done = subprocess.run([sys.executable, "-m", "kubeloop", "server", flag], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode != 0
    assert done.stdout == ""
    assert message in done.stderr


def test_tokens_are_signed_by_the_key_that_a_flag_names_and_name_its_issuer(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    (tmp_path / "sa.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    url = "https://tokens.example.com"
    flags = f"--service-account-issuer={url}", f"--service-account-signing-key-file={tmp_path / 'sa.key'}"
    with running(tmp_path, *flags, "--service-account-max-token-expiration=1h", "--api-audiences=api,us") as server:
        assert json.loads(server("GET", "/.well-known/openid-configuration"))["issuer"] == url
        assert [one["crv"] for one in json.loads(server("GET", "/openid/v1/jwks"))["keys"]] == ["P-384"]
        server("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "builder"}})
        made = json.loads(server("POST", "/api/v1/namespaces/default/serviceaccounts/builder/token", {"spec": {"expirationSeconds": 7200}}))
        assert made["spec"] == {"audiences": ["api", "us"], "expirationSeconds": 3600, "boundObjectRef": None}
        claims = jwt.decode(made["status"]["token"], key.public_key(), ["ES384"], audience="us")
        assert (claims["iss"], claims["exp"] - claims["iat"]) == (url, 3600)


def test_who_decides_is_as_the_flag_says(tmp_path: Path) -> None:
    review = {"spec": {"user": "eve", "resourceAttributes": {"verb": "get", "resource": "pods"}}}
    with running(tmp_path, "--authorization-mode", "AlwaysAllow") as server:
        assert json.loads(server("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review))["status"] == {"allowed": True}


def test_an_unknown_authorization_mode_is_named() -> None:
    command = [sys.executable, "-m", "kubeloop", "server", "--authorization-mode", "Node,Webhook"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    claims = "Error: --authorization-mode: 'Webhook' is not a mode of this server; known: Node, RBAC, AlwaysAllow, AlwaysDeny\n"
    assert (found.returncode, found.stdout, found.stderr.endswith(claims)) == (1, "", True)
