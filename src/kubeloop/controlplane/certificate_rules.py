"""What a certificate signing request must be like for each of Kubernetes' own signers.

Source: Kubernetes pkg/apis/certificates/helpers.go; documentation, "Certificates and Certificate Signing Requests".
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from cryptography import x509
from cryptography.x509.oid import NameOID

from kubeloop.pki.signing_requests import SigningRefused, alternative_names

CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"

_NODES = "system:nodes"
_NODE = "system:node:"


def common_name(request: x509.CertificateSigningRequest) -> str:
    """The last one, as Go reads a subject; empty where there is none."""
    found = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[-1].value) if found else ""


def check_client(_: x509.CertificateSigningRequest, usages: Collection[str]) -> None:
    for usage in usages:
        if usage not in ("digital signature", "key encipherment", "client auth"):
            raise SigningRefused(f"invalid usage for client certificate: {usage}")
    if "client auth" not in usages:
        raise SigningRefused("missing required usage for client certificate: client auth")


def check_kubelet_client(request: x509.CertificateSigningRequest, usages: Collection[str]) -> None:
    _check_organization(request)
    names = alternative_names(request)
    for kind, what in (
        (x509.DNSName, "DNS"),
        (x509.RFC822Name, "Email"),
        (x509.IPAddress, "IP"),
        (x509.UniformResourceIdentifier, "URI"),
    ):
        if names.get_values_for_type(kind):
            raise SigningRefused(f"{what} subjectAltNames are not allowed")
    _check_node(request)
    _check_usages(usages, "client auth")


def check_kubelet_serving(request: x509.CertificateSigningRequest, usages: Collection[str]) -> None:
    _check_organization(request)
    names = alternative_names(request)
    if not names.get_values_for_type(x509.DNSName) and not names.get_values_for_type(x509.IPAddress):
        raise SigningRefused("DNS or IP subjectAltName is required")
    if names.get_values_for_type(x509.RFC822Name):
        raise SigningRefused("Email subjectAltNames are not allowed")
    if names.get_values_for_type(x509.UniformResourceIdentifier):
        raise SigningRefused("URI subjectAltNames are not allowed")
    _check_usages(usages, "server auth")
    _check_node(request)


#: By signer; each raises SigningRefused in upstream's words.
CHECKS: dict[str, Callable[[x509.CertificateSigningRequest, Collection[str]], None]] = {
    CLIENT: check_client,
    KUBELET_CLIENT: check_kubelet_client,
    KUBELET_SERVING: check_kubelet_serving,
}


def _check_organization(request: x509.CertificateSigningRequest) -> None:
    if [one.value for one in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] != [_NODES]:
        raise SigningRefused(f"subject organization is not {_NODES}")


def _check_node(request: x509.CertificateSigningRequest) -> None:
    if not common_name(request).startswith(_NODE):
        raise SigningRefused(f"subject common name does not begin with {_NODE}")


def _check_usages(usages: Collection[str], purpose: str) -> None:
    """EC keys encipher nothing."""
    if set(usages) not in ({"digital signature", purpose}, {"digital signature", "key encipherment", purpose}):
        wanted = " ".join(sorted(("digital signature", "key encipherment", purpose)))
        raise SigningRefused(f"usages did not match [{wanted}]")
