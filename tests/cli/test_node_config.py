"""``kubeloop server node-config``: the files with which a real kubelet joins. tests/upstream/nodes starts one with them."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.x509.oid import NameOID

from kubeloop.api.core.v1 import Node, Secret
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.api.storage.v1 import CSIDriver
from kubeloop.cli import main
from kubeloop.cli.kubelet import server_credentials
from kubeloop.client import Client
from kubeloop.codec import read_yaml
from kubeloop.meta import Forbidden, ObjectMeta
from kubeloop.pki import CertificateAuthority
from kubeloop.testing import LocalCluster

pytestmark = pytest.mark.embedded


@pytest.fixture(scope="module")
def administrator() -> Iterator[Path]:
    """The kubeconfig of a server whose controllers sign certificates."""
    with LocalCluster() as cluster:
        yield cluster.kubeconfig


@pytest.fixture(scope="module")
def files(administrator: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the node worker-1."""
    folder = tmp_path_factory.mktemp("files") / "worker-1"
    result = run(
        "worker-1", "--kubeconfig", str(administrator), "--out", str(folder), "--cluster-cidr=10.9.0.0/16", "--cluster-domain=x.test"
    )
    assert result.exit_code == 0, result.output
    assert result.output == f"wrote {folder}; start the kubelet as root on the node: {folder}/start-kubelet.sh\n"
    return folder


def run(*words: str) -> Result:
    address = () if any(word.startswith("--node-ip") for word in words) else ("--node-ip=192.168.1.10",)
    return CliRunner().invoke(main, ["server", "node-config", *address, *words])


def test_keys_are_readable_for_their_owner_only(files: Path) -> None:
    modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in files.iterdir()}
    assert modes == {
        "ca.crt": "0o644",
        "kubelet.crt": "0o644",
        "kubelet.key": "0o600",
        "kubelet.kubeconfig": "0o600",
        "kubelet.yaml": "0o644",
        "start-kubelet.sh": "0o755",
        "kube-proxy.kubeconfig": "0o600",
        "kube-proxy.yaml": "0o644",
        "start-kube-proxy.sh": "0o755",
    }


def test_the_scripts_start_the_programs_with_the_files(files: Path) -> None:
    last = [(files / f"start-{name}.sh").read_text().splitlines()[-1] for name in ("kubelet", "kube-proxy")]
    kubelet = "kubelet --config=kubelet.yaml --kubeconfig=kubelet.kubeconfig --hostname-override=worker-1 --node-ip=192.168.1.10"
    assert last == [f'cd "$(dirname "$0")" && exec {command} "$@"' for command in (kubelet, "kube-proxy --config=kube-proxy.yaml")]


def test_the_kubelet_admits_certificates_of_the_cluster_and_asks_the_server_for_permission(files: Path) -> None:
    (document,) = read_yaml((files / "kubelet.yaml").read_text())
    assert document["authentication"] == {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": "ca.crt"},
    }
    assert document["authorization"] == {"mode": "Webhook"}
    assert (document["tlsCertFile"], document["tlsPrivateKeyFile"]) == ("kubelet.crt", "kubelet.key")
    assert (document["clusterDNS"], document["clusterDomain"]) == (["10.0.0.10"], "x.test")


def test_the_proxy_knows_its_node_and_which_addresses_are_pods(files: Path) -> None:
    (document,) = read_yaml((files / "kube-proxy.yaml").read_text())
    assert (document["hostnameOverride"], document["clusterCIDR"]) == ("worker-1", "10.9.0.0/16")


def test_the_certificate_of_the_endpoint_is_the_clusters_and_for_the_nodes_address(files: Path) -> None:
    certificate = x509.load_pem_x509_certificate((files / "kubelet.crt").read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate((files / "ca.crt").read_bytes()))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["worker-1"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["192.168.1.10"]
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:worker-1"


async def test_the_kubelet_may_register_its_node_and_read_no_secrets(files: Path) -> None:
    async with Client.from_config(files / "kubelet.kubeconfig") as client:
        await client.create(Node(metadata=ObjectMeta(name="worker-1")))
        with pytest.raises(Forbidden):
            [secret async for secret in client.list(Secret)]


async def test_the_proxy_may_list_endpoints_and_nothing_else(files: Path) -> None:
    async with Client.from_config(files / "kube-proxy.kubeconfig") as client:
        assert [slice_.metadata.name async for slice_ in client.list(EndpointSlice, namespace="default")] == ["kubernetes"]
        with pytest.raises(Forbidden):
            [driver async for driver in client.list(CSIDriver)]


def test_a_folder_with_files_stays_as_it_is(files: Path, administrator: Path) -> None:
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    result = run("worker-1", "--kubeconfig", str(administrator), "--out", str(files))
    assert result.exit_code == 1
    assert f"{files} holds ca.crt already, which stays as it is; name an empty folder with --out" in result.output
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before


def test_the_error_for_a_user_without_the_right_recommends_an_administrators_kubeconfig(files: Path, tmp_path: Path) -> None:
    result = run("worker-3", "--kubeconfig", str(files / "kube-proxy.kubeconfig"), "--out", str(tmp_path / "new"))
    assert result.exit_code == 1
    assert "cannot create resource" in result.output
    assert result.output.endswith("use the kubeconfig of an administrator: --kubeconfig FILE\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["Worker"], "'Worker' is not a valid name of a node: a lowercase RFC 1123 subdomain", id="a name in capitals"),
        pytest.param(["w", "--node-ip=here"], "--node-ip here: no IP address; write one such as 192.168.1.10", id="an address"),
        pytest.param(["w", "--node-ip=127.0.0.1"], "--node-ip 127.0.0.1: a kubelet refuses it; name the address of an", id="loopback"),
        pytest.param(["w", "--cluster-dns=x"], "--cluster-dns x: no IP address", id="the DNS service"),
        pytest.param(["w", "--cluster-domain=A"], "--cluster-domain 'A': a lowercase", id="the domain"),
        pytest.param(["w", "--cluster-cidr=10.1.1.1/8"], "10.1.1.1/8 has host bits set; write a range such as", id="the range of pods"),
        pytest.param(["w", "--container-runtime-endpoint=/run/x"], "/run/x: write a URL such as unix:///run/containerd", id="the socket"),
        pytest.param(["w", "--server=host:1"], '--server: "host:1" is not a valid URL of a server', id="the server"),
        pytest.param(["w", "--context=other"], 'context "other"', id="the context"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(
    words: list[str], message: str, administrator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*words, "--kubeconfig", str(administrator))
    assert result.exit_code == 1
    assert message in result.output
    assert list(tmp_path.iterdir()) == []


def test_the_server_has_a_certificate_for_kubelets_of_the_authority_that_they_trust(tmp_path: Path) -> None:
    authority = CertificateAuthority.create("test")
    credentials = server_credentials(authority, tmp_path / "pki")
    assert credentials.certificate is not None
    assert credentials.key is not None
    certificate = x509.load_pem_x509_certificate(credentials.certificate.read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    assert certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:masters"
    assert stat.S_IMODE(credentials.key.stat().st_mode) == 0o600
    credentials.check()


def test_the_address_is_required() -> None:
    result = CliRunner().invoke(main, ["server", "node-config", "w"])
    assert result.exit_code == 2
    assert "Missing option '--node-ip'" in result.output
