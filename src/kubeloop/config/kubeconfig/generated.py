"""The kubeconfig that a server or proxy of kubeloop writes for its clients."""

from __future__ import annotations

from base64 import b64encode

from kubeloop.pki import IssuedCertificate

_TEMPLATE = """\
apiVersion: v1
kind: Config
current-context: kubeloop
clusters:
- name: kubeloop
  cluster:
    server: {server}
    certificate-authority-data: {authority}{server_name}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: kubeloop
  context:
    cluster: kubeloop
    user: {user}{namespace}
"""


def kubeconfig_text(
    server: str, authority: bytes, user: IssuedCertificate, name: str = "kubeloop-admin", *, server_name: str = "", namespace: str = ""
) -> bytes:
    """Return a kubeconfig as YAML with embedded certificates. It contains a private key: write it only with ``pki.files.write_secret``.

    Args:
        server: URL of the server.
        authority: The certificate that clients must trust, PEM.
        user: The client certificate with its key.
        name: Name of the user entry.
        server_name: TLS server name (SNI); empty: the address of the server.
        namespace: Namespace of the context; empty: default.

    Returns:
        The file.
    """
    text = _TEMPLATE.format(
        server=server,
        authority=b64encode(authority).decode(),
        server_name=f"\n    tls-server-name: {server_name}" if server_name else "",
        user=name,
        namespace=f"\n    namespace: {namespace}" if namespace else "",
        certificate=b64encode(user.certificate).decode(),
        key=b64encode(user.key).decode(),
    )
    return text.encode()
