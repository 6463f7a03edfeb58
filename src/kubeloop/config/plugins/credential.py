"""The documents exchanged with a credential plugin, for clients that run one and for plugins written in Python."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.credentials import ExecPlugin, Pem, usable_token
from kubeloop.meta.errors import ConfigError


class ExecCredential(msgspec.Struct, frozen=True):
    """A token, a client certificate with its key, or both. If ``expires`` is None, the credential is used until the server rejects it."""

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
        ConfigError: The output is not an ExecCredential of the configured version, or contains no usable credential.
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
    """Return the value of ``KUBERNETES_EXEC_INFO`` for a plugin, as JSON."""
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


# For credential plugins written in Python: decodes the client's request and encodes the response.
#
# Source: https://kubernetes.io/docs/reference/config-api/client-authentication.v1/ and client-go tools/auth/exec.


_VARIABLE = "KUBERNETES_EXEC_INFO"
_GROUP = "client.authentication.k8s.io/"


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    config: Any = None


class _Spec(msgspec.Struct):
    interactive: bool = False
    cluster: _Cluster | None = None


class _Info(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    spec: _Spec = msgspec.field(default_factory=_Spec)


class ExecRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request to a plugin. ``cluster`` is the target, without credentials; None unless the kubeconfig sets
    ``provideClusterInfo``.

    >>> ExecRequest.from_environment({})
    Traceback (most recent call last):
        ...
    ConfigError: ...

    ``settings`` are the plugin's settings in the kubeconfig's cluster entry. ``interactive``: a person can be asked on stdin.
    """

    api_version: str
    interactive: bool = False
    cluster: ClusterConfig | None = None
    settings: Any = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> ExecRequest:
        """Decode ``KUBERNETES_EXEC_INFO``.

        Raises:
            ConfigError: The variable is not set, because no client runs this program; or it is not an ExecCredential.
        """
        text = (os.environ if environ is None else environ).get(_VARIABLE, "")
        if not text:
            raise ConfigError(f"{_VARIABLE} is not set; this program is run by Kubernetes clients, as exec of a kubeconfig's user")
        try:
            info = msgspec.json.decode(text, type=_Info)
            if info.kind != "ExecCredential" or not info.api_version.startswith(_GROUP):
                raise ConfigError(f'{_VARIABLE}: it is "{info.kind}" of "{info.api_version}", and no ExecCredential of {_GROUP}')
            cluster = info.spec.cluster
            data = base64.b64decode(cluster.certificate_authority_data, validate=True) if cluster is not None else b""
        except (msgspec.DecodeError, binascii.Error) as error:
            raise ConfigError(f"{_VARIABLE}: it cannot be read: {error}") from None
        if cluster is None:
            return cls(api_version=info.api_version, interactive=info.spec.interactive)
        config = ClusterConfig(
            server=cluster.server,
            tls_server_name=cluster.tls_server_name,
            insecure_skip_tls_verify=cluster.insecure_skip_tls_verify,
            ca=Pem(data=data, field=f"{_VARIABLE}: certificate-authority-data") if data else None,
            proxy_url=cluster.proxy_url,
            disable_compression=cluster.disable_compression,
            source=_VARIABLE,
        )
        return cls(api_version=info.api_version, interactive=info.spec.interactive, cluster=config, settings=cluster.config)

    def answer(self, *, token: str = "", certificate: tuple[bytes, bytes] | None = None, expires: datetime | None = None) -> str:
        """Return the text that the plugin must print: a token, or PEM chain and key, or both.

        Without ``expires``, clients use the credential until the server rejects it.

        Raises:
            ValueError: There is no credential, or ``expires`` has no time zone.
        """
        if not token and certificate is None:
            raise ValueError("give a token, a certificate, or both")
        status: dict[str, str] = {"token": token} if token else {}
        if certificate is not None:
            status |= {"clientCertificateData": certificate[0].decode("ascii"), "clientKeyData": certificate[1].decode("ascii")}
        if expires is not None:
            if expires.tzinfo is None:
                raise ValueError("expires: it needs a time zone")
            status["expirationTimestamp"] = expires.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return msgspec.json.encode({"apiVersion": self.api_version, "kind": "ExecCredential", "status": status}).decode()
