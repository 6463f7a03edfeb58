"""Policy for credential plugins: all, none, or a list. Kubeconfigs from others name programs that run as you.

Source: client-go plugin/pkg/client/auth/exec/exec.go (PluginPolicy) and KEP-3104 (kuberc credentialPluginPolicy).
"""

from __future__ import annotations

import os

import msgspec

from kubeloop.meta.errors import ConfigError


class PluginPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Allowed credential plugins. ``allowed`` None: all; an empty tuple: none; else only these commands, as a path or a name in PATH.

    Raises:
        ConfigError: an entry is empty or not a normal path, which could never match.
    """

    allowed: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for entry in self.allowed or ():
            if not entry or os.path.normpath(entry) != entry:
                raise ConfigError(f'plugin policy: "{entry}" is no command; write its name, or its path without "." and ".."')

    def check(self, command: str, owner: str) -> None:
        """
        Raises:
            ConfigError: the command must not run.
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
