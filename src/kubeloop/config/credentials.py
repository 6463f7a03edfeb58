"""Client credentials. Printing any of these never shows a secret.

Source of the rules: k8s.io/client-go tools/clientcmd/api/types.go (AuthInfo) and tools/clientcmd/validation.go.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from kubeloop.meta.errors import ConfigError

# Policy for credential plugins: all, none, or a list. Kubeconfigs from others name programs that run as you.
#
# Source: client-go plugin/pkg/client/auth/exec/exec.go (PluginPolicy) and KEP-3104 (kuberc credentialPluginPolicy).


class PluginPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The credential plugins that may run.

    ``allowed`` lists commands, each a path or a name in PATH. None allows all commands, an empty tuple allows none.

    >>> policy = PluginPolicy(allowed=("aws", "/usr/local/bin/login"))
    >>> nothing_runs = PluginPolicy(allowed=())

    Raises:
        ConfigError: an entry is empty or not a normal path, which could never match.
    """

    allowed: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for entry in self.allowed or ():
            if not entry or os.path.normpath(entry) != entry:
                raise ConfigError(f'plugin policy: "{entry}" is not a command; write its name, or its path without "." and ".."')

    def check(self, command: str, owner: str) -> None:
        """Check that the policy allows a command. ``owner`` names the kubeconfig entry, for messages.

        Raises:
            ConfigError: The command must not run.
        """
        if self.allowed is None:
            return
        import shutil

        command = os.path.normpath(command)
        path = shutil.which(command)
        if command in self.allowed or path in self.allowed:
            return
        name = os.path.basename(command)  # noqa: PTH119 - a string that may be no path
        if path is not None and any(os.path.basename(entry) == name and shutil.which(entry) == path for entry in self.allowed):  # noqa: PTH119
            return
        listed = f"it allows {', '.join(self.allowed)}" if self.allowed else "it allows none"
        raise ConfigError(f"{owner}: exec: {command} may not run: {listed}; add the command to the policy, or use another user")


class Pem(msgspec.Struct, frozen=True, kw_only=True):
    """PEM text, inline (``data``) or in a file (``path``); ``field`` names the setting, for messages.

    >>> ca = Pem(path="ca.crt", field="certificate-authority")
    """

    data: bytes = b""
    path: Path | None = None
    field: str = "PEM"

    def read(self) -> bytes:
        """Return the PEM text; data takes precedence over a file, as in kubeconfig.

        Raises:
            ConfigError: The file cannot be read, or contains no PEM block.
        """
        if self.data:
            text, where = self.data, self.field
        else:
            where = f"{self.field}: {self.path}"
            try:
                text = self.path.read_bytes() if self.path else b""
            except OSError as error:
                raise ConfigError(f"{where}: cannot be read ({error.strerror}); correct the path or create the file") from error
        if b"-----BEGIN" not in text:
            raise ConfigError(f'{where}: no PEM block in it; a block starts with "-----BEGIN"')
        return text

    def __repr__(self) -> str:
        return f"Pem({self.field}, {f'{len(self.data)} bytes' if self.data else self.path})"


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A program that prints an ExecCredential. ``owner`` names the kubeconfig entry, for messages.

    >>> plugin = ExecPlugin(command="aws", args=("eks", "get-token"), api_version="client.authentication.k8s.io/v1")
    >>> credentials = Credentials(exec=plugin)

    ``timeout`` is the maximum duration of a run in seconds; for an interactive plugin it is at least ``INTERACTIVE_TIMEOUT``.
    ``cluster_config`` is JSON from the cluster's entry, which the plugin receives if ``provide_cluster_info`` is set.

    Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
    """

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive: str = "IfAvailable"
    cluster_config: bytes = b""
    policy: PluginPolicy = PluginPolicy()
    timeout: float = 60.0
    owner: str = "user"

    def __repr__(self) -> str:
        # Arguments and environment often carry client secrets.
        return f"ExecPlugin({self.command!r}, {len(self.args)} arguments, {len(self.env)} variables)"


def usable_token(token: str, setting: str) -> str:
    """Return the token without surrounding blanks. ``setting`` names its setting, for messages.

    Raises:
        ConfigError: The token has characters that a header cannot contain.
    """
    token = token.strip()
    if not token.isprintable() or not token.isascii() or " " in token:
        raise ConfigError(f"{setting}: it holds characters that cannot stand in a header; copy it again, without line breaks")
    return token


class ImpersonatedUser(msgspec.Struct, frozen=True, kw_only=True):
    """The user to impersonate; the authenticated user needs the verb ``impersonate`` for each part.

    >>> user = ImpersonatedUser(user="jane", groups=("developers",))
    >>> credentials = Credentials(token="secret", impersonate=user)

    Source: https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/
    """

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __post_init__(self) -> None:
        for value in (self.user, self.uid, *self.groups, *(value for _, values in self.extra for value in values)):
            if not value.isprintable():
                raise ConfigError(f"as, as-uid, as-groups, as-user-extra: {value!r} cannot stand in a header; correct it")


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials of one user. Without any field the user is anonymous.

    >>> Credentials(token="secret")
    Credentials(token=...)

    A ``token_file`` takes precedence over ``token``, which is used until the file can be read. ``exec`` is used only if no other
    credential is set, as in kubectl.

    Raises:
        ConfigError: both a token and a password are set, a certificate has no key, or a token cannot be sent in a header.
    """

    token: str = ""
    token_file: Path | None = None
    username: str = ""
    password: str = ""
    client_certificate: Pem | None = None
    client_key: Pem | None = None
    exec: ExecPlugin | None = None
    impersonate: ImpersonatedUser | None = None
    owner: str = "user"

    def __post_init__(self) -> None:
        usable_token(self.token, f"{self.owner}: token")
        if (self.token or self.token_file) and (self.username or self.password):
            raise ConfigError(f"{self.owner}: token and username and password are both set; keep one way to authenticate")
        if (self.client_certificate is None) != (self.client_key is None):
            missing, there = ("client-key", "client-certificate") if self.client_key is None else ("client-certificate", "client-key")
            raise ConfigError(f"{self.owner}: {there} is set but {missing} is not; set {missing} or {missing}-data too")

    @property
    def plugin(self) -> ExecPlugin | None:
        """Return the plugin if it is used, which requires that no other credential is set."""
        return None if self.token or self.token_file or self.username or self.password or self.client_certificate else self.exec

    @property
    def methods(self) -> list[str]:
        """Return the names of the configured authentication methods, for messages."""
        ways = {
            "token": self.token or self.token_file,
            "username and password": self.username or self.password,
            "client certificate": self.client_certificate,
            "exec": self.exec,
        }
        return [name for name, used in ways.items() if used]

    def only_impersonation(self) -> Credentials:
        """Return the same user without secrets, for a server to which the connection is not encrypted."""
        return Credentials(impersonate=self.impersonate, owner=self.owner)

    def __repr__(self) -> str:
        shown = []
        if self.token:
            shown.append("token=<redacted>")
        if self.token_file:
            shown.append(f"token_file={str(self.token_file)!r}")
        if self.username or self.password:
            shown.append(f"username={self.username!r}, password=<redacted>")
        if self.client_certificate:
            shown.append(f"client_certificate={self.client_certificate!r}, client_key=<redacted>")
        if self.exec:
            shown.append(f"exec={self.exec!r}")
        if self.impersonate:
            shown.append(f"impersonate={self.impersonate!r}")
        return f"Credentials({', '.join(shown) or 'anonymous'})"
