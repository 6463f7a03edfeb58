"""Converts a kubeconfig's user entry to ``Credentials``: checks it, and records unused settings and the origin of each part.

Source: client-go tools/clientcmd/validation.go (validateAuthInfo) and plugin/pkg/client/auth.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import TYPE_CHECKING

import msgspec

from kubeloop.config.cluster import SettingOrigin
from kubeloop.config.credentials import Credentials, ExecPlugin, ImpersonatedUser, Pem, PluginPolicy, usable_token
from kubeloop.config.kubeconfig.entries import Cluster, KubeconfigUser
from kubeloop.meta.errors import ConfigError

if TYPE_CHECKING:
    from kubeloop.config.load import EntryLocation

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_INTERACTIVE = ("Never", "IfAvailable", "Always")
#: The cluster entry's key for plugin settings. Source: client-go tools/clientcmd/client_config.go, clusterExtensionKey.
_PLUGIN_EXTENSION = "client.authentication.k8s.io/exec"
_INSTEAD_OF_PROVIDER = {
    "oidc": "kubelogin (kubectl oidc-login get-token)",
    "gcp": "gke-gcloud-auth-plugin",
    "azure": "kubelogin get-token",
}


def credentials_of(
    user: KubeconfigUser,
    at: EntryLocation,
    origins: dict[str, SettingOrigin],
    unused: list[str],
    cluster: Cluster,
    policy: PluginPolicy | None,
) -> Credentials:
    """Return the user's credentials. Adds to ``origins`` and ``unused``.

    Args:
        user: The user entry.
        at: The location of the entry, for messages.
        origins: Receives the origin of each setting.
        unused: Receives a text for each setting without effect.
        cluster: The cluster entry, for plugins.
        policy: The credential plugins that may run. None: all.

    Raises:
        ConfigError: The entry cannot be used; the message names file, context and key.
    """
    if user.auth_provider:
        provider = str(user.auth_provider.get("name", ""))
        instead = _INSTEAD_OF_PROVIDER.get(provider, "the provider's credential plugin")
        raise ConfigError(
            f'{at("auth_provider")}: "{provider}": auth-provider is not supported; put an exec plugin in its place: {instead}, '
            "as command and args of exec, with apiVersion client.authentication.k8s.io/v1"
        )
    certificate = pem_of(user, "client_certificate", at, origins, unused)
    key = pem_of(user, "client_key", at, origins, unused)
    for field in ("token", "token_file", "username", "password"):
        if getattr(user, field):
            origins[field] = at.origin(field, "tokenFile" if field == "token_file" else "")
    plugin = _exec(user, at, cluster, policy)
    if plugin is not None:
        origins["exec"] = at.origin("exec")
        if other := next((name for name in ("token", "token_file", "username", "password", "client_certificate") if name in origins), ""):
            unused.append(f"exec of {at.entry}: {origins[other]} is used instead")
    return Credentials(
        token=usable_token(user.token, at("token")),
        token_file=at.path("token_file", user.token_file) if user.token_file else None,
        username=user.username,
        password=user.password,
        client_certificate=certificate,
        client_key=key,
        exec=plugin,
        impersonate=_impersonation(user, at, origins),
        owner=str(at),
    )


def pem_of(
    entry: KubeconfigUser | Cluster, field: str, at: EntryLocation, origins: dict[str, SettingOrigin], unused: list[str]
) -> Pem | None:
    """Return a certificate, authority or key of an entry, or None if it is not set. Data takes precedence over a file.

    The file is read once, so that a missing file is reported at once.

    Args:
        entry: The entry.
        field: The field with the path; data is in the field with the suffix ``-data``.
        at: The location of the entry, for messages.
        origins: Receives the origin of the setting.
        unused: Receives a text if a setting has no effect.

    Raises:
        ConfigError: The file cannot be read, or is not PEM.
    """
    data_field = f"{field}_data"
    data, path = getattr(entry, data_field), getattr(entry, field)
    if data:
        try:
            text = base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"{at(data_field)}: not valid base64; encode the whole PEM file with: base64 -w0 FILE") from error
        pem, origins[field] = Pem(data=text, field=at(data_field)), at.origin(data_field)
        if path:
            unused.append(f"{at(field)}: {data_field.replace('_', '-')} is used instead")
    elif path:
        pem, origins[field] = Pem(path=at.path(field, path), field=at(field)), at.origin(field)
    else:
        return None
    pem.read()
    return pem


def _impersonation(user: KubeconfigUser, at: EntryLocation, origins: dict[str, SettingOrigin]) -> ImpersonatedUser | None:
    if user.impersonate:
        origins["impersonate"] = at.origin("impersonate", "as")
        extra = tuple((key, tuple(values)) for key, values in user.impersonate_extra.items())
        try:
            return ImpersonatedUser(user=user.impersonate, uid=user.impersonate_uid, groups=tuple(user.impersonate_groups), extra=extra)
        except ConfigError as error:
            raise ConfigError(f"{at}: {error}") from None
    if user.impersonate_uid or user.impersonate_groups or user.impersonate_extra:
        raise ConfigError(f"{at}: as-uid, as-groups and as-user-extra need a user to act as; set as")
    return None


def _exec(user: KubeconfigUser, at: EntryLocation, cluster: Cluster, policy: PluginPolicy | None) -> ExecPlugin | None:
    plugin = user.exec
    if plugin is None:
        return None
    if not plugin.command:
        raise ConfigError(f"{at}: exec.command is not set; name the program that prints the credential")
    if plugin.api_version not in _EXEC_VERSIONS:
        raise ConfigError(f'{at}: exec.apiVersion: "{plugin.api_version}" is not supported; supported: {", ".join(_EXEC_VERSIONS)}')
    interactive = plugin.interactive_mode
    if not interactive and plugin.api_version.endswith("/v1"):
        # Only versions before v1 have a default; kubectl refuses it too.
        raise ConfigError(f"{at}: exec.interactiveMode is not set, and {plugin.api_version} has no default; write IfAvailable")
    if interactive and interactive not in _INTERACTIVE:
        raise ConfigError(f'{at}: exec.interactiveMode: "{interactive}" is not one of {", ".join(_INTERACTIVE)}')
    if not all(variable.name for variable in plugin.env):
        raise ConfigError(f"{at}: exec.env: a variable has no name; give each name and value")
    # A bare name is searched in PATH; a name with a separator is a path, relative to the kubeconfig.
    command = str(at.path("exec", plugin.command)) if os.sep in plugin.command else plugin.command
    told = next((one.extension for one in cluster.extensions if one.name == _PLUGIN_EXTENSION), None)
    return ExecPlugin(
        command=command,
        args=tuple(plugin.args),
        env=tuple((variable.name, variable.value) for variable in plugin.env),
        api_version=plugin.api_version,
        install_hint=plugin.install_hint,
        provide_cluster_info=plugin.provide_cluster_info,
        interactive=interactive or "IfAvailable",
        cluster_config=msgspec.json.encode(told) if told is not None else b"",
        policy=policy or PluginPolicy(),
        owner=str(at),
    )
