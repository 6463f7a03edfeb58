"""The kubeconfig that a server hands out: certificates inside, so that the file is all that anybody needs."""

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
    user: {user}
"""


def kubeconfig_text(
    server: str, authority: bytes, user: IssuedCertificate, name: str = "kubeloop-admin", *, server_name: str = ""
) -> bytes:
    """Return a kubeconfig as YAML. ``server_name`` is the TLS server name (SNI); empty: the address of the server.

    It holds a private key: write it with ``pki.files.write_secret`` only.
    """
    text = _TEMPLATE.format(
        server=server,
        authority=b64encode(authority).decode(),
        server_name=f"\n    tls-server-name: {server_name}" if server_name else "",
        user=name,
        certificate=b64encode(user.certificate).decode(),
        key=b64encode(user.key).decode(),
    )
    return text.encode()
