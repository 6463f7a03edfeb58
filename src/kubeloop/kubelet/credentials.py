"""A node's client certificate for the API server and the serving certificate of its endpoint, requested by CertificateSigningRequest.

Source: Kubernetes pkg/kubelet/certificate (bootstrap, kubelet.go); documentation, "Kubelet TLS bootstrapping".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubeloop.api.authentication.v1 import SelfSubjectReview
from kubeloop.api.certificates.v1 import CertificateSigningRequest, CertificateSigningRequestSpec
from kubeloop.client import Client
from kubeloop.config import ClusterConfig, Credentials, Pem
from kubeloop.meta import ConfigError, Forbidden, KubeloopError, ObjectMeta
from kubeloop.pki import CertificateAuthority
from kubeloop.pki.files import write_secret
from kubeloop.transport import Transport

_LOG = logging.getLogger("kubeloop.kubelet")
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER = "kubernetes.io/kubelet-serving"
#: Seconds to wait for a certificate, and seconds between two polls of the request.
_PATIENCE, _PAUSE = 60.0, 0.05
#: When the kubelet starts, it renews a stored certificate of which less than this fraction of its lifetime is left.
_LEAST_LEFT = 0.3


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key in PEM. ``repr`` does not show the key."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return f"KeyPair({len(self.certificate)} bytes, key hidden)"


class CertificateDenied(KubeloopError):
    """A CertificateSigningRequest was denied, failed, or got no certificate in time."""


def user_name(node: str) -> str:
    """Return the user name of a node's kubelet."""
    return f"system:node:{node}"


async def node_config(config: ClusterConfig, node: str, folder: Path) -> ClusterConfig:
    """Return a configuration with the node's own credentials.

    If ``config`` already authenticates as the node, it is returned unchanged. A stored certificate of an earlier kubelet is used while the
    server accepts it; otherwise a new certificate is requested as the user of ``config`` and stored.

    Args:
        config: The configuration of the node, or of a user that may create CertificateSigningRequests.
        node: The node's name.
        folder: The folder in which the certificate is stored, readable only for this user.

    Raises:
        CertificateDenied: The request was not approved or signed.
        ConfigError: The folder cannot be written.
        KubeloopError: A request to the server failed.
    """
    async with Client(Transport(config)) as client:
        if await _user(client) == user_name(node):
            return config
        path = folder / "kubelet-client-current.pem"
        stored = _stored(path)
        if stored is not None:
            known = with_key_pair(config, stored)
            try:
                async with Client(Transport(known)) as own:
                    if await _user(own) == user_name(node):
                        return known
            except KubeloopError as error:
                _LOG.info("the stored certificate of node %s is not accepted: %s", node, error)
        pair = await request_certificate(client, node, CLIENT_SIGNER, "client auth")
    try:
        _store(path, pair)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}; name another folder with --root-dir") from None
    return with_key_pair(config, pair)


async def serving_pair(client: Client, approver: Client | None, node: str, addresses: Sequence[str]) -> KeyPair:
    """Return the certificate of a node's endpoint, signed by the cluster, or self-signed if the request is not approved.

    Args:
        client: A client with the node's credentials.
        approver: A client that approves the request if its user may; None: another user must approve the request within a minute.
        node: The node's name.
        addresses: IP addresses of the endpoint.
    """
    try:
        return await request_certificate(client, node, SERVING_SIGNER, "server auth", names=[node], addresses=addresses, approver=approver)
    except (CertificateDenied, Forbidden) as error:
        _LOG.warning("node %s serves logs and commands with a self-signed certificate: %s", node, error)
        authority = CertificateAuthority.create(f"{node}-ca")
        issued = authority.issue(node, dns_names=[node], ip_addresses=addresses, server=True)
        return KeyPair(issued.certificate, issued.key)


async def request_certificate(
    client: Client,
    node: str,
    signer: str,
    usage: Literal["client auth", "server auth"],
    *,
    names: Sequence[str] = (),
    addresses: Sequence[str] = (),
    approver: Client | None = None,
    subject: x509.Name | None = None,
) -> KeyPair:
    """Request a certificate and wait until it is issued.

    Args:
        client: The client that creates the request.
        node: The node's name.
        signer: The name of the signer.
        usage: ``client auth`` or ``server auth``.
        names: DNS names of a server.
        addresses: IP addresses of a server.
        approver: The client that approves the request; None: a controller or another user approves it.
        subject: The subject of the certificate; None: the node.

    Returns:
        The certificate with its key.

    Raises:
        CertificateDenied: The request was denied, failed, or got no certificate within a minute.
        Forbidden: The user of ``client`` may not create the request, or the user of ``approver`` may not approve it.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject or _node_subject(node))
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    alternatives += [x509.IPAddress(ip_address(address)) for address in addresses]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    spec = CertificateSigningRequestSpec(request=pem, signer_name=signer, usages=["digital signature", usage])
    created = await client.create(CertificateSigningRequest(metadata=ObjectMeta(generate_name="csr-"), spec=spec))
    name = created.metadata.name
    if approver is not None:
        await approver.certificates.approve(name, reason="KubeloopApproved", message="The kubelet's own administrator approves it.")
    deadline = client.clock.now() + _PATIENCE
    while client.clock.now() < deadline:
        request = await client.get(CertificateSigningRequest, name)
        if request.status.certificate:
            text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            return KeyPair(request.status.certificate, text)
        for condition in request.status.conditions:
            if condition.type in ("Denied", "Failed"):
                raise CertificateDenied(f"certificate signing request {name} was {condition.type.lower()}: {condition.message}")
        await client.clock.sleep(_PAUSE)
    if approver is not None:
        raise CertificateDenied(
            f"certificate signing request {name} is approved, and no controller signed it within {_PATIENCE:g} s; "
            "run a controller that signs: kubeloop server without --no-controllers, "
            "or a kube-controller-manager with --cluster-signing-cert-file"
        )
    raise CertificateDenied(
        f"certificate signing request {name} was not decided within {_PATIENCE:g} s; approve it: kubectl certificate approve {name}"
    )


def _node_subject(node: str) -> x509.Name:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes")
    return x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, user_name(node))])


async def _user(client: Client) -> str:
    review = await client.create(SelfSubjectReview())
    return review.status.user_info.username or ""


def with_key_pair(config: ClusterConfig, pair: KeyPair) -> ClusterConfig:
    """Return a copy of a configuration whose only credentials are a client certificate."""
    credentials = Credentials(client_certificate=Pem(data=pair.certificate), client_key=Pem(data=pair.key), owner="kubelet")
    return msgspec.structs.replace(config, credentials=credentials)


def _store(path: Path, pair: KeyPair) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_secret(path, pair.certificate + pair.key)


def _stored(path: Path) -> KeyPair | None:
    """Return the stored certificate and key; None if they are unreadable or less than 30 % of the lifetime is left."""
    try:
        data = path.read_bytes()
        certificate = x509.load_pem_x509_certificate(data)
    except (OSError, ValueError):
        return None
    begin, end, now = certificate.not_valid_before_utc, certificate.not_valid_after_utc, datetime.now(UTC)
    if (end - now) < (end - begin) * _LEAST_LEFT:
        return None
    return KeyPair(data, data)
