"""One cluster as one user sees it: address, trust, credentials and default namespace."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from kubeloop.config.credentials import Credentials, Pem
from kubeloop.config.origins import Provenance
from kubeloop.http1.proxies import is_proxy_url, not_a_proxy
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.tls import client_tls

if TYPE_CHECKING:
    from kubeloop.config.explain import Explanation


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a transport needs to know. Immutable; printing it shows no secret.

    ``name`` is what log records, metrics and ``ObjectKey.cluster`` call the cluster. ``source`` says where the settings came from.

    Raises:
        ConfigError: no usable ``server`` or ``proxy_url``, or a CA together with ``insecure_skip_tls_verify``.
    """

    server: str
    name: str = "cluster"
    namespace: str = "default"
    ca: Pem | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    credentials: Credentials = Credentials()
    proxy_url: str = ""
    disable_compression: bool = False
    context: str = ""
    source: str = "configuration"
    provenance: Provenance = Provenance()

    def __post_init__(self) -> None:
        check_server(self.server, f"{self.source}: server")
        # A CA that is then not used would be a lie: client-go refuses the pair too (rest.TLSConfigFor).
        if self.insecure_skip_tls_verify and self.ca is not None:
            raise ConfigError(f"{self.source}: insecure-skip-tls-verify is set together with a certificate authority; remove one of them")
        check_proxy(self.proxy_url, f"{self.source}: proxy-url")

    def __repr__(self) -> str:
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "provenance"} | {
            "proxy_url": without_password(self.proxy_url)
        }
        return f"ClusterConfig({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    def explain(self, environ: Mapping[str, str] | None = None) -> Explanation:
        """What is set, and where each setting came from: file, entry and key, environment variable, override, default. Shows no secret."""
        from kubeloop.config.explain import explain

        return explain(self, environ)

    @property
    def secure(self) -> bool:
        """True if the server is reached by TLS."""
        return self.server.lower().startswith("https:")

    def ssl_context(self, certificate: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
        """A fresh context, files read anew. ``certificate`` (PEM chain, PEM key) takes the place of the configured client certificate.

        Raises:
            ConfigError: a file cannot be read or holds no usable certificate or key.
        """
        # Not create_default_context(): it loads the system's store (10 ms) even where the cluster's own CA replaces it.
        context = client_tls()
        if self.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.ca is not None:
            try:
                context.load_verify_locations(cadata=self.ca.read().decode("ascii", "replace"))
            except ssl.SSLError as error:
                raise ConfigError(
                    f"{self.ca.field}: no usable certificate in it ({error.reason or error}); give the authority as PEM"
                ) from error
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        user = self.credentials
        if certificate is None and user.client_certificate is not None and user.client_key is not None:
            certificate = user.client_certificate.read(), user.client_key.read()
        if certificate is not None:
            _load_client_certificate(context, *certificate, where=user.client_certificate.field if user.client_certificate else user.owner)
        return context


def without_password(url: str) -> str:
    """The URL for messages: what stands before ``@`` is left out."""
    start, slashes, rest = url.rpartition("://")
    return f"{start}{slashes}{rest.rpartition('@')[2]}"


def check_server(url: str, where: str) -> None:
    """``where`` names the setting, for messages.

    Raises:
        ConfigError: no server can have this address.
    """
    if not _is_url(url):
        raise ConfigError(f'{where}: "{without_password(url)}" is no URL of a server; write for example https://127.0.0.1:6443')
    # It would stand in every message and log record.
    if "@" in urlsplit(url).netloc:
        raise ConfigError(f"{where}: the URL holds a user; give the user username and password (or a token) instead")


def check_proxy(url: str, where: str) -> None:
    """As ``check_server``; an empty address is none.

    Raises:
        ConfigError: no proxy can have this address.
    """
    if url and not is_proxy_url(url):
        raise not_a_proxy(where, without_password(url))


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("https", "http") and bool(url.hostname) and (url.port is None or url.port > 0) and text.isprintable()
    except ValueError:
        return False


def _load_client_certificate(context: ssl.SSLContext, chain: bytes, key: bytes, where: str) -> None:
    import tempfile

    # OpenSSL as Python offers it reads keys from files only. mkstemp makes them 0600, and nothing is left behind.
    descriptor, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(chain.rstrip() + b"\n" + key)
        # An encrypted key must fail, not ask at the terminal.
        context.load_cert_chain(name, password=lambda: b"")
    except ssl.SSLError as error:
        raise ConfigError(
            f"{where}: client certificate and key cannot be used together ({error.reason or error}); "
            "both must be PEM, belong to each other, and the key must have no passphrase"
        ) from error
    finally:
        Path(name).unlink()
