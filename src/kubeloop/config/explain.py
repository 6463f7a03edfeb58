"""Explains a configuration and where each setting came from. The text never contains a secret."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import msgspec

from kubeloop.config.cluster import DEFAULT, PROGRAM, ClusterConfig, SettingOrigin, without_password
from kubeloop.config.credentials import Pem
from kubeloop.http1.proxies import proxy_for
from kubeloop.meta.errors import ConfigError


class Setting(msgspec.Struct, frozen=True):
    """A setting. ``value`` is printable: a secret is only mentioned, not shown.

    >>> Setting("namespace", "shop", "KUBECONFIG").value
    'shop'
    """

    name: str
    value: str
    origin: str


class Explanation(msgspec.Struct, frozen=True):
    """The explanation of a configuration. Iterating yields its settings, and ``str`` formats a table for people.

    ``unused`` lists the settings that have no effect, with the reasons.

    >>> from kubeloop.config import load_config
    >>> explanation = load_config().explain()
    >>> [setting.name for setting in explanation if setting.name == "server"]
    ['server']
    """

    settings: tuple[Setting, ...]
    files: tuple[str, ...]
    files_from: str
    unused: tuple[str, ...]

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.settings)

    def __getitem__(self, name: str) -> Setting:
        """Return a setting by its name.

        Raises:
            KeyError: There is no setting of that name.
        """
        for setting in self.settings:
            if setting.name == name:
                return setting
        raise KeyError(name)

    def to_dict(self) -> dict[str, object]:
        """Return a tree for JSON and YAML."""
        return msgspec.json.decode(msgspec.json.encode(self), type=dict[str, object])

    def __str__(self) -> str:
        widths = [max(len(part) for part in column) for column in zip(*((one.name, one.value) for one in self.settings), strict=True)]
        lines = [f"{one.name:<{widths[0]}}  {one.value:<{widths[1]}}  from {one.origin}" for one in self.settings]
        lines += [f"not used: {reason}" for reason in self.unused]
        if self.files:
            lines.append(f"files, named by {self.files_from}: {', '.join(self.files)}")
        return "\n".join(line.rstrip() for line in lines)


def explain(config: ClusterConfig, environ: Mapping[str, str] | None = None) -> Explanation:
    """Return the explanation of ``config``; proxies are looked up in ``environ``, by default the process' environment."""
    known = config.provenance
    # A configuration that a program builds itself has no provenance.
    built = not known.origins and not known.files

    def setting(name: str, value: object, field: str = "", default: object = "") -> Setting:
        origin = known.of(field or name) or (DEFAULT if value == default or not built else PROGRAM)
        return Setting(name.replace("_", "-"), str(value) or "none", str(origin))

    settings = [
        *([setting("context", config.context)] if config.context else []),
        setting("cluster", config.name, default="cluster"),
        setting("server", config.server),
        setting("namespace", config.namespace, default="default"),
        setting("certificate_authority", _trust(config), default="that of this system"),
        setting("tls_server_name", config.tls_server_name or "that of the server's address", default="that of the server's address"),
        *_credentials(config, built),
        _proxy(config, known.of("proxy_url") or (PROGRAM if built else DEFAULT), os.environ if environ is None else environ),
        setting("disable_compression", str(config.disable_compression).lower(), default="false"),
    ]
    return Explanation(tuple(settings), known.files, known.files_from, known.unused)


def _trust(config: ClusterConfig) -> str:
    if not config.secure:
        return "not used: the server is reached without TLS"
    if config.insecure_skip_tls_verify:
        return "not checked"
    return _pem(config.ca) if config.ca is not None else "that of this system"


def _credentials(config: ClusterConfig, built: bool) -> Iterator[Setting]:
    user, known = config.credentials, config.provenance

    def setting(name: str, value: str, field: str) -> Setting:
        return Setting(name, value, str(known.of(field) or (PROGRAM if built else DEFAULT)))

    if known.user:
        yield setting("user", known.user, "user")
    if user.token:
        yield setting("token", "set (until the token file is read)" if user.token_file else "set", "token")
    if user.token_file:
        yield setting("token-file", f"{user.token_file}, read again every minute", "token_file")
    if user.username or user.password:
        yield setting("username", user.username or "(empty)", "username")
        yield setting("password", "set" if user.password else "none", "password")
    if user.client_certificate is not None:
        yield setting("client-certificate", _pem(user.client_certificate), "client_certificate")
        yield setting("client-key", "set" if user.client_key is None or user.client_key.data else str(user.client_key.path), "client_key")
    if user.plugin is not None:
        yield setting("exec", f"{user.plugin.command} ({user.plugin.api_version}, {user.plugin.interactive})", "exec")
    if not user.methods:
        yield Setting("credentials", "none: requests are anonymous", str(DEFAULT))
    if user.impersonate is not None:
        as_whom = user.impersonate
        parts = [as_whom.user]
        if as_whom.uid:
            parts.append(f"uid {as_whom.uid}")
        if as_whom.groups:
            parts.append(f"groups {', '.join(as_whom.groups)}")
        if as_whom.extra:
            parts.append(f"extra {', '.join(key for key, _ in as_whom.extra)}")
        yield setting("impersonate", "; ".join(parts), "impersonate")


def _proxy(config: ClusterConfig, configured: SettingOrigin, environ: Mapping[str, str]) -> Setting:
    try:
        proxy = proxy_for(urlsplit(config.server), config.proxy_url, config.source, environ)
    except ConfigError as error:
        return Setting("proxy-url", str(error), "environment")
    if config.proxy_url:
        return Setting("proxy-url", without_password(config.proxy_url), str(configured))
    if proxy is not None:
        return Setting("proxy-url", proxy.shown, str(SettingOrigin(kind="environment", where=proxy.origin)))
    scheme = urlsplit(config.server).scheme
    named = next((name for name in (f"{scheme}_proxy".upper(), f"{scheme}_proxy") if environ.get(name)), "")
    left_out = next((name for name in ("NO_PROXY", "no_proxy") if environ.get(name)), "")
    if named and not (scheme == "http" and "REQUEST_METHOD" in environ):
        reason = f"environment variable {left_out}" if left_out else "the rule that loopback is never proxied"
        return Setting("proxy-url", f"none, though {named} is set", reason)
    return Setting("proxy-url", "none", str(DEFAULT))


def _pem(pem: Pem) -> str:
    return f"{len(pem.data)} bytes of PEM" if pem.data else str(pem.path)
