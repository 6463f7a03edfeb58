"""The documents exchanged with a credential plugin: its input, and the ExecCredential that it prints.

Source: https://kubernetes.io/docs/reference/config-api/client-authentication.v1/ (v1beta1 has the same fields).
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

import msgspec

from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.credentials import ExecPlugin, usable_token
from kubeloop.meta.errors import ConfigError


class ExecCredential(msgspec.Struct, frozen=True):
    """A token, a client certificate with its key, or both. ``expires`` None: valid until it is refused."""

    token: str
    certificate: tuple[bytes, bytes] | None
    expires: datetime | None

    def expired(self, now: datetime) -> bool:
        return self.expires is not None and now >= self.expires

    def __repr__(self) -> str:
        return f"ExecCredential(expires={self.expires})"


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None

    def __repr__(self) -> str:
        return f"Status(expires={self.expiration_timestamp})"


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


def read_credential(output: bytes, plugin: ExecPlugin, at: str) -> ExecCredential:
    """Parse a plugin's output. ``at`` names the plugin, for messages.

    Raises:
        ConfigError: the output is not an ExecCredential of the configured version, or contains no usable credential.
    """
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{at}: printed an ExecCredential with a field of another type: {error}; correct the plugin") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{at}: printed no ExecCredential ({type(error).__name__}); it must print JSON and nothing else") from None
    if answer.api_version != plugin.api_version or answer.kind != "ExecCredential":
        raise ConfigError(
            f'{at}: printed "{answer.kind}" of "{answer.api_version}"; wanted ExecCredential of {plugin.api_version}: '
            "make exec.apiVersion what the plugin prints"
        )
    status = answer.status or _Status()
    if not (status.token or status.client_certificate_data or status.client_key_data):
        raise ConfigError(f"{at}: printed neither status.token nor status.clientCertificateData; run it by hand to see why")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ConfigError(f"{at}: printed only one of status.clientCertificateData and status.clientKeyData; correct the plugin")
    certificate = None
    if status.client_certificate_data and status.client_key_data:
        certificate = status.client_certificate_data.encode(), status.client_key_data.encode()
    expires = status.expiration_timestamp
    if expires is not None and expires.tzinfo is None:
        raise ConfigError(f"{at}: status.expirationTimestamp has no time zone; it must be written as RFC 3339")
    return ExecCredential(usable_token(status.token or "", f"{at}: printed status.token"), certificate, expires)


def exec_info(plugin: ExecPlugin, config: ClusterConfig, *, interactive: bool) -> bytes:
    """Return the text of ``KUBERNETES_EXEC_INFO``."""
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = cluster_info(plugin, config)
    return msgspec.json.encode({"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec})


def cluster_info(plugin: ExecPlugin, config: ClusterConfig) -> dict[str, Any]:
    """Return the address and trust of the cluster, for plugins that log in at the API server itself."""
    cluster: dict[str, Any] = {
        "server": config.server,
        "tls-server-name": config.tls_server_name,
        "insecure-skip-tls-verify": config.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(config.ca.read()).decode() if config.ca is not None else "",
        "proxy-url": config.proxy_url,
        "disable-compression": config.disable_compression,
    }
    # The plugin's settings in the cluster's entry are passed on unchanged, null included.
    return {name: value for name, value in cluster.items() if value} | {"config": msgspec.json.decode(plugin.cluster_config or b"null")}
