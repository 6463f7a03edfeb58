"""From a merged kubeconfig and a context name to one ``ClusterConfig``."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.credentials import Credentials, ExecPlugin, Impersonation, Pem, usable_token
from kubeloop.config.kubeconfig import Kubeconfig, User
from kubeloop.meta.errors import ConfigError

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_INTERACTIVE = ("Never", "IfAvailable", "Always")


def resolve(config: Kubeconfig, context: str | None = None) -> ClusterConfig:
    """The cluster and user of ``context``, or of ``current-context``.

    Raises:
        ConfigError: the context, or what it names, is not there; or the entries cannot be used. File and field are named.
    """
    name = context or config.current_context
    if not name:
        raise ConfigError(f"{config.shown}: current-context is not set; set it, or choose one of: {_names(config.contexts)}")
    if name not in config.contexts:
        field = "contexts" if context else "current-context"
        raise ConfigError(f'{config.shown}: {field}: there is no context "{name}"; known: {_names(config.contexts)}')
    entry, file = config.contexts[name]
    where = f'{file}: context "{name}"'
    if entry.cluster not in config.clusters:
        raise ConfigError(f'{where}: cluster: there is no cluster "{entry.cluster}"; known: {_names(config.clusters)}')
    if entry.user and entry.user not in config.users:
        raise ConfigError(f'{where}: user: there is no user "{entry.user}"; known: {_names(config.users)}')
    cluster, cluster_file = config.clusters[entry.cluster]
    at = f'{cluster_file}: cluster "{entry.cluster}"'
    if not cluster.server:
        raise ConfigError(f"{at}: server is not set; write for example https://127.0.0.1:6443")
    return ClusterConfig(
        name=entry.cluster,
        server=cluster.server.rstrip("/"),
        namespace=entry.namespace or "default",
        ca=_pem(cluster.certificate_authority_data, cluster.certificate_authority, cluster_file, f"{at}: certificate-authority"),
        insecure_skip_tls_verify=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        credentials=_credentials(*config.users[entry.user], name=entry.user) if entry.user else Credentials(),
        proxy_url=cluster.proxy_url,
        disable_compression=cluster.disable_compression,
        context=name,
        source=at,
    )


def _credentials(user: User, file: Path, name: str) -> Credentials:
    at = f'{file}: user "{name}"'
    if user.auth_provider:
        raise ConfigError(f"{at}: auth-provider was removed from Kubernetes clients in 1.26; use the provider's exec plugin instead")
    impersonate = None
    if user.impersonate:
        extra = tuple((key, tuple(values)) for key, values in user.impersonate_extra.items())
        impersonate = Impersonation(user=user.impersonate, uid=user.impersonate_uid, groups=tuple(user.impersonate_groups), extra=extra)
    elif user.impersonate_uid or user.impersonate_groups or user.impersonate_extra:
        raise ConfigError(f"{at}: as-uid, as-groups and as-user-extra need a user to act as; set as")
    return Credentials(
        token=usable_token(user.token, f"{at}: token"),
        token_file=_beside(file, user.token_file) if user.token_file else None,
        username=user.username,
        password=user.password,
        client_certificate=_pem(user.client_certificate_data, user.client_certificate, file, f"{at}: client-certificate"),
        client_key=_pem(user.client_key_data, user.client_key, file, f"{at}: client-key"),
        exec=_exec(user, file, at),
        impersonate=impersonate,
        owner=at,
    )


def _exec(user: User, file: Path, at: str) -> ExecPlugin | None:
    plugin = user.exec
    if plugin is None:
        return None
    if not plugin.command:
        raise ConfigError(f"{at}: exec.command is not set; name the program that prints the credential")
    if plugin.api_version not in _EXEC_VERSIONS:
        raise ConfigError(f'{at}: exec.apiVersion: "{plugin.api_version}" is not supported; supported: {", ".join(_EXEC_VERSIONS)}')
    interactive = plugin.interactive_mode or "IfAvailable"
    if interactive not in _INTERACTIVE:
        raise ConfigError(f'{at}: exec.interactiveMode: "{interactive}" is not one of {", ".join(_INTERACTIVE)}')
    # A bare name is looked for in PATH; anything with a separator is a path, relative to the kubeconfig.
    command = str(_beside(file, plugin.command)) if os.sep in plugin.command else plugin.command
    return ExecPlugin(
        command=command,
        args=tuple(plugin.args),
        env=tuple((variable.name, variable.value) for variable in plugin.env),
        api_version=plugin.api_version,
        install_hint=plugin.install_hint,
        provide_cluster_info=plugin.provide_cluster_info,
        interactive=interactive,
        owner=at,
    )


def _pem(data: str, path: str, file: Path, field: str) -> Pem | None:
    if data:
        try:
            text = base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"{field}-data: not valid base64; encode the whole PEM file with: base64 -w0 FILE") from error
        pem = Pem(data=text, field=f"{field}-data")
    elif path:
        pem = Pem(path=_beside(file, path), field=field)
    else:
        return None
    pem.read()  # a missing file is told when the configuration is read, not at the first request
    return pem


def _beside(file: Path, path: str) -> Path:
    """Relative paths are relative to the kubeconfig that holds them, wherever the program was started."""
    return file.absolute().parent / path


def _names(entries: object) -> str:
    names = ", ".join(sorted(entries)) if isinstance(entries, dict) else ""
    return names or "none"
