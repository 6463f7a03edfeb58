"""The configuration of one cluster for one user: address, trust, credentials and default namespace."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from kubeloop.config.credentials import Credentials, Pem
from kubeloop.http1.proxies import is_proxy_url, not_a_proxy
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.tls import client_tls, load_pair

if TYPE_CHECKING:
    from kubeloop.config.explain import Explanation


class SettingOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of one setting. ``kind`` is ``file``, ``override``, ``environment``, ``service account``, ``default`` or ``program``.

    ``where`` is the file, the environment variable, or the argument; ``entry`` and ``key`` are the position in the file.
    """

    kind: str
    where: str = ""
    entry: str = ""
    key: str = ""

    def __str__(self) -> str:
        if self.kind == "environment":
            return f"environment variable {self.where}"
        return ": ".join(part for part in (self.where or self.kind, self.entry, self.key) if part)


DEFAULT = SettingOrigin(kind="default")
PROGRAM = SettingOrigin(kind="program", where="the program")


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The origins of one configuration: the files, where they were named, the user entry, and an origin for each setting.

    ``unused`` lists the settings that have no effect, with the reasons.
    """

    files: tuple[str, ...] = ()
    files_from: str = ""
    user: str = ""
    origins: tuple[tuple[str, SettingOrigin], ...] = ()
    unused: tuple[str, ...] = ()

    def of(self, setting: str) -> SettingOrigin | None:
        """Return the origin of a setting, or None if it is unknown."""
        return next((origin for name, origin in self.origins if name == setting), None)


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a transport needs. Immutable; printing it shows no secret.

    >>> config = ClusterConfig(server="https://127.0.0.1:6443", namespace="shop")
    >>> config.server, config.namespace
    ('https://127.0.0.1:6443', 'shop')

    ``name`` is the cluster's name in log records, metrics and ``ObjectKey.cluster``. ``source`` says where the settings came from.

    Raises:
        ConfigError: ``server`` or ``proxy_url`` is unusable, or a CA is combined with ``insecure_skip_tls_verify``.
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
        # An unused CA would give false safety: client-go refuses the pair too (rest.TLSConfigFor).
        if self.insecure_skip_tls_verify and self.ca is not None:
            raise ConfigError(f"{self.source}: insecure-skip-tls-verify is set together with a certificate authority; remove one of them")
        check_proxy(self.proxy_url, f"{self.source}: proxy-url")

    def __repr__(self) -> str:
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "provenance"} | {
            "proxy_url": without_password(self.proxy_url)
        }
        return f"ClusterConfig({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    def explain(self, environ: Mapping[str, str] | None = None) -> Explanation:
        """Explain each setting and where it came from: file, entry and key, environment variable, override, default. Shows no secret."""
        from kubeloop.config.explain import explain

        return explain(self, environ)

    @property
    def secure(self) -> bool:
        """Whether the connection to the server uses TLS."""
        return self.server.lower().startswith("https:")

    def ssl_context(self, certificate: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
        """Return a new TLS context from the current files. ``certificate`` (PEM chain, PEM key) replaces the configured client certificate.

        Raises:
            ConfigError: A file cannot be read or contains no usable certificate or key.
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
            _load_client_certificate(context, *certificate, field=user.client_certificate.field if user.client_certificate else user.owner)
        return context


def without_password(url: str) -> str:
    """Return the URL for messages, without user and password."""
    start, slashes, rest = url.rpartition("://")
    return f"{start}{slashes}{rest.rpartition('@')[2]}"


def check_server(url: str, setting: str) -> None:
    """Validate a server's address. ``setting`` names the setting, for messages.

    Raises:
        ConfigError: The address is invalid.
    """
    if not _is_url(url):
        raise ConfigError(f'{setting}: "{without_password(url)}" is not a valid URL of a server; write for example https://127.0.0.1:6443')
    # A user in the URL would appear in every message and log record.
    if "@" in urlsplit(url).netloc:
        raise ConfigError(f"{setting}: the URL holds a user; give the user username and password (or a token) instead")


def check_proxy(url: str, setting: str) -> None:
    """Validate a proxy's address as ``check_server`` does; an empty address means none.

    Raises:
        ConfigError: The address is invalid.
    """
    if url and not is_proxy_url(url):
        raise not_a_proxy(setting, without_password(url))


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("https", "http") and bool(url.hostname) and (url.port is None or url.port > 0) and text.isprintable()
    except ValueError:
        return False


def _load_client_certificate(context: ssl.SSLContext, chain: bytes, key: bytes, field: str) -> None:
    try:
        load_pair(context, chain, key)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{field}: client certificate and key cannot be used together ({error.reason or error}); "
            "both must be PEM, belong to each other, and the key must have no passphrase"
        ) from error
