"""Settings from a program's own flags or arguments: they take precedence over every file, as kubectl's global flags do.

Source: client-go tools/clientcmd/overrides.go and client_config.go (getContext, getCluster, getAuthInfo).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kubeloop.config.kubeconfig.entries import Cluster, Context, KubeconfigUser, overlaid


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that replace those of the files; empty ones replace nothing. Printing it shows no secret.

    >>> from kubeloop.config import load_config
    >>> load_config(overrides=Overrides(namespace="shop")).namespace
    'shop'

    ``cluster`` and ``user`` name entries, which must exist. ``insecure_skip_tls_verify`` drops the files' certificate authority; an
    authority given here drops their ``insecure-skip-tls-verify``; ``server`` drops their ``tls-server-name``.
    Relative paths are relative to the working directory.
    """

    cluster: str = ""
    user: str = ""
    namespace: str = ""
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str | Path = ""
    certificate_authority_data: bytes = b""
    proxy_url: str = ""
    disable_compression: bool = False
    token: str = ""
    token_file: str | Path = ""
    username: str = ""
    password: str = ""
    client_certificate: str | Path = ""
    client_certificate_data: bytes = b""
    client_key: str | Path = ""
    client_key_data: bytes = b""
    impersonate: str = ""
    impersonate_uid: str = ""
    impersonate_groups: Sequence[str] = ()
    impersonate_extra: Mapping[str, Sequence[str]] = {}

    def __repr__(self) -> str:
        return f"Overrides({', '.join(name for name in self.__struct_fields__ if getattr(self, name)) or 'nothing'})"

    def on_context(self, entry: Context) -> tuple[Context, frozenset[str]]:
        """Return a context with the overrides applied, and the names of the overridden fields."""
        return overlaid(entry, Context(cluster=self.cluster, user=self.user, namespace=self.namespace))

    def on_cluster(self, entry: Cluster) -> tuple[Cluster, frozenset[str]]:
        """Return a cluster with the overrides applied, and the names of the overridden fields."""
        over = Cluster(
            server=self.server,
            tls_server_name=self.tls_server_name,
            insecure_skip_tls_verify=self.insecure_skip_tls_verify,
            certificate_authority=_absolute(self.certificate_authority),
            certificate_authority_data=_base64(self.certificate_authority_data),
            proxy_url=self.proxy_url,
            disable_compression=self.disable_compression,
        )
        merged, changed = overlaid(entry, over)
        trust = ("insecure_skip_tls_verify", "certificate_authority", "certificate_authority_data")
        if changed.intersection(trust):
            merged = msgspec.structs.replace(merged, **{name: getattr(over, name) for name in trust})
        if changed & {"server", "tls_server_name"}:
            merged = msgspec.structs.replace(merged, tls_server_name=over.tls_server_name)
        return merged, changed

    def on_user(self, entry: KubeconfigUser) -> tuple[KubeconfigUser, frozenset[str]]:
        """Return a user with the overrides applied, and the names of the overridden fields."""
        over = KubeconfigUser(
            client_certificate=_absolute(self.client_certificate),
            client_certificate_data=_base64(self.client_certificate_data),
            client_key=_absolute(self.client_key),
            client_key_data=_base64(self.client_key_data),
            token=self.token,
            token_file=_absolute(self.token_file),
            username=self.username,
            password=self.password,
            impersonate=self.impersonate,
            impersonate_uid=self.impersonate_uid,
            impersonate_groups=list(self.impersonate_groups),
            impersonate_extra={key: list(values) for key, values in self.impersonate_extra.items()},
        )
        merged, changed = overlaid(entry, over)
        # Data of the kubeconfig must not take precedence over a file given here.
        for pair in (("client_certificate", "client_certificate_data"), ("client_key", "client_key_data")):
            if changed.intersection(pair):
                merged = msgspec.structs.replace(merged, **{name: getattr(over, name) for name in pair})
        # The kubeconfig's token file would take precedence over the token as soon as it is read.
        if "token" in changed and "token_file" not in changed:
            merged = msgspec.structs.replace(merged, token_file="")
        return merged, changed


def _absolute(path: str | Path) -> str:
    return str(Path(path).absolute()) if path else ""


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode() if data else ""
