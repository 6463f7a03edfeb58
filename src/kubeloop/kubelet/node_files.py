"""Files with which a real kubelet and kube-proxy join a cluster: credentials by CertificateSigningRequest, configurations and scripts.

Source: kubernetes.io, "Kubelet authentication/authorization" and "KubeletConfiguration"; Kubernetes cmd/kubelet/app/server.go (relative
paths are those beside the configuration file).
"""

from __future__ import annotations

import shlex
from base64 import b64encode
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from kubeloop.client import Client
from kubeloop.codec import write_yaml
from kubeloop.config import ClusterConfig
from kubeloop.config.cluster import check_server
from kubeloop.kubelet.credentials import CLIENT_SIGNER, SERVING_SIGNER, KeyPair, request_certificate, with_key_pair
from kubeloop.meta import ConfigError, Forbidden
from kubeloop.meta.names import dns1123_subdomain
from kubeloop.pki.files import write_secret
from kubeloop.transport import Transport
from kubeloop.types import JSONObject

_PROXY_SIGNER = "kubernetes.io/kube-apiserver-client"
_PROXY_USER = "system:kube-proxy"
#: Modes of files without secrets: every user may read the CA and the configurations, and run the scripts.
_MODES = {".crt": 0o644, ".yaml": 0o644, ".sh": 0o755}


@dataclass(frozen=True)
class NodeSettings:
    """The settings of a node whose files ``write_node_files`` writes.

    Args:
        name: The node's name.
        address: IP address of the node, at which the server reaches the kubelet.
        server: URL at which the node reaches the server; empty: the URL in the administrator's kubeconfig.
        cluster_dns: Cluster IP of the DNS service; empty: pods use the node's resolver.
        cluster_domain: Domain of services.
        cluster_cidr: Range of pod IPs, for kube-proxy; empty: kube-proxy treats all addresses as local.
        runtime_endpoint: Socket of the container runtime.

    Raises:
        ConfigError: A value is malformed.
    """

    name: str
    address: str
    server: str = ""
    cluster_dns: str = "10.0.0.10"
    cluster_domain: str = "cluster.local"
    cluster_cidr: str = ""
    runtime_endpoint: str = "unix:///run/containerd/containerd.sock"

    def __post_init__(self) -> None:
        if problems := dns1123_subdomain(self.name):
            raise ConfigError(f"{self.name!r} is not a valid name of a node: {problems[0]}")
        if problems := dns1123_subdomain(self.cluster_domain):
            raise ConfigError(f"--cluster-domain {self.cluster_domain!r}: {problems[0]}")
        _check_address("--node-ip", self.address)
        if self.cluster_dns:
            _check_address("--cluster-dns", self.cluster_dns)
        if ip_address(self.address).is_loopback or ip_address(self.address).is_unspecified:
            raise ConfigError(f"--node-ip {self.address}: a kubelet refuses it; name the address of an interface (`ip address`)")
        if self.cluster_cidr:
            try:
                ip_network(self.cluster_cidr)
            except ValueError as error:
                raise ConfigError(f"--cluster-cidr {self.cluster_cidr}: {error}; write a range such as 10.244.0.0/16") from None
        if not self.runtime_endpoint.startswith(("unix://", "tcp://")):
            raise ConfigError(
                f"--container-runtime-endpoint {self.runtime_endpoint}: write a URL such as unix:///run/containerd/containerd.sock"
            )


async def write_node_files(config: ClusterConfig, settings: NodeSettings, folder: Path) -> None:
    """Request the certificates of a node and write its files.

    Args:
        config: The configuration of an administrator, who may create and approve CertificateSigningRequests.
        settings: The settings of the node.
        folder: The folder of the files, which is created or empty. Files with keys get the mode 0600.

    Raises:
        CertificateDenied: A request was denied, or was not signed.
        ConfigError: The folder contains files or cannot be written, the kubeconfig names no CA, or its user may not request or approve
            certificates.
        KubeloopError: A request to the server failed.
    """
    if config.ca is None:
        raise ConfigError(f"{config.source}: names no certificate-authority, by which a kubelet knows the server; add it")
    if settings.server:
        check_server(settings.server, "--server")
    _create(folder)
    try:
        client, serving, proxy = await _request_certificates(config, settings)
    except Forbidden as error:
        raise ConfigError(f"{error}; use the kubeconfig of an administrator: --kubeconfig FILE") from None
    files = {
        "ca.crt": config.ca.read(),
        "kubelet.crt": serving.certificate,
        "kubelet.key": serving.key,
        "kubelet.kubeconfig": _kubeconfig(config, settings, f"system:node:{settings.name}", client),
        "kubelet.yaml": write_yaml(_kubelet_configuration(settings)).encode(),
        "start-kubelet.sh": _script(kubelet_command(settings)),
        "kube-proxy.kubeconfig": _kubeconfig(config, settings, _PROXY_USER, proxy),
        "kube-proxy.yaml": write_yaml(_proxy_configuration(settings)).encode(),
        "start-kube-proxy.sh": _script(["kube-proxy", "--config=kube-proxy.yaml"]),
    }
    for name, content in files.items():
        path = folder / name
        try:
            write_secret(path, content)
            path.chmod(_MODES.get(path.suffix, 0o600))
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None


def kubelet_command(settings: NodeSettings) -> list[str]:
    """Return the command that starts the kubelet in the folder of its files."""
    return [
        "kubelet",
        "--config=kubelet.yaml",
        "--kubeconfig=kubelet.kubeconfig",
        f"--hostname-override={settings.name}",
        f"--node-ip={settings.address}",
    ]


def _create(folder: Path) -> None:
    """Create a folder, or check that an existing one is empty, before certificates are requested."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {error.strerror or error}; name another folder with --out") from None
    if names:
        raise ConfigError(f"{folder} holds {names[0]} already, which stays as it is; name an empty folder with --out")


async def _request_certificates(config: ClusterConfig, settings: NodeSettings) -> tuple[KeyPair, KeyPair, KeyPair]:
    """Return the client certificate of the kubelet, its serving certificate, and the client certificate of kube-proxy."""
    name = settings.name
    async with Client(Transport(config)) as administrator:
        client = await request_certificate(administrator, name, CLIENT_SIGNER, "client auth", approver=administrator)
        # Only the node itself may request the certificate of its endpoint.
        async with Client(Transport(with_key_pair(config, client))) as node:
            serving = await request_certificate(
                node, name, SERVING_SIGNER, "server auth", names=[name], addresses=[settings.address], approver=administrator
            )
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _PROXY_USER)])
        proxy = await request_certificate(administrator, name, _PROXY_SIGNER, "client auth", approver=administrator, subject=subject)
    return client, serving, proxy


def _kubeconfig(config: ClusterConfig, settings: NodeSettings, user: str, pair: KeyPair) -> bytes:
    assert config.ca is not None
    cluster: JSONObject = {
        "server": settings.server or config.server,
        "certificate-authority-data": b64encode(config.ca.read()).decode(),
    }
    if config.tls_server_name:
        cluster["tls-server-name"] = config.tls_server_name
    credentials: JSONObject = {
        "client-certificate-data": b64encode(pair.certificate).decode(),
        "client-key-data": b64encode(pair.key).decode(),
    }
    document: JSONObject = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": user}}],
        "current-context": "cluster",
    }
    return write_yaml(document).encode()


def _kubelet_configuration(settings: NodeSettings) -> JSONObject:
    """Return the KubeletConfiguration: clients authenticate by a certificate of the cluster's CA or a token; the API server authorizes."""
    document: JSONObject = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": "ca.crt"}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": "kubelet.crt",
        "tlsPrivateKeyFile": "kubelet.key",
        "containerRuntimeEndpoint": settings.runtime_endpoint,
        "clusterDomain": settings.cluster_domain,
    }
    if settings.cluster_dns:
        document["clusterDNS"] = [settings.cluster_dns]
    return document


def _proxy_configuration(settings: NodeSettings) -> JSONObject:
    document: JSONObject = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": "kube-proxy.kubeconfig"},
        "hostnameOverride": settings.name,
        "mode": "iptables",
    }
    if settings.cluster_cidr:
        document["clusterCIDR"] = settings.cluster_cidr
    return document


def _script(command: list[str]) -> bytes:
    """Return a shell script that runs a command in the script's folder, with the script's arguments appended."""
    return f'#!/bin/sh\ncd "$(dirname "$0")" && exec {shlex.join(command)} "$@"\n'.encode()


def _check_address(flag: str, text: str) -> None:
    try:
        ip_address(text)
    except ValueError:
        raise ConfigError(f"{flag} {text}: no IP address; write one such as 192.168.1.10") from None
