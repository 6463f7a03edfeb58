"""Runs a credential plugin and reads the ExecCredential that it prints.

Source: https://kubernetes.io/docs/reference/config-api/client-authentication.v1/
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import sys
from datetime import datetime
from typing import Any

import msgspec

from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.credentials import ExecPlugin, usable_token
from kubeloop.meta.errors import ConfigError


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None

    def __repr__(self) -> str:
        return f"Status(expires={self.expiration_timestamp})"


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecCredential(msgspec.Struct, frozen=True):
    """A token, a client certificate with its key, or both."""

    token: str
    certificate: tuple[bytes, bytes] | None
    expires: datetime | None

    def expired(self, now: datetime) -> bool:
        return self.expires is not None and now >= self.expires

    def __repr__(self) -> str:
        return f"ExecCredential(expires={self.expires})"


async def run_plugin(plugin: ExecPlugin, config: ClusterConfig) -> ExecCredential:
    """Run the program once. It inherits the environment; its stderr is the user's, its stdout is the answer.

    Raises:
        ConfigError: not installed, failed, or printed something else; the kubeconfig entry and the install hint are named.
    """
    at = f"{plugin.owner}: exec: {plugin.command}"
    interactive = plugin.interactive != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive == "Always" and not interactive:
        raise ConfigError(f"{at}: interactiveMode is Always, and there is no terminal here; run it once at a terminal")
    environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": _info(plugin, config, interactive)}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
    except OSError as error:
        hint = f"\n{_printable(plugin.install_hint)}" if plugin.install_hint else "; install it or correct exec.command"
        raise ConfigError(f"{at}: cannot be run ({error.strerror}){hint}") from error
    try:
        output, _ = await process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise ConfigError(f"{at}: ended with exit status {process.returncode}; run it by hand to see why")
    return _read(output, plugin, at)


def _read(output: bytes, plugin: ExecPlugin, at: str) -> ExecCredential:
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{at}: printed no ExecCredential ({type(error).__name__}); it must print JSON and nothing else") from None
    if answer.api_version != plugin.api_version or answer.kind != "ExecCredential":
        raise ConfigError(f'{at}: printed "{answer.kind}" of "{answer.api_version}"; wanted ExecCredential of {plugin.api_version}')
    status = answer.status
    if status is None or not (status.token or status.client_certificate_data):
        raise ConfigError(f"{at}: printed neither status.token nor status.clientCertificateData; run it by hand to see why")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ConfigError(f"{at}: printed only one of status.clientCertificateData and status.clientKeyData")
    certificate = None
    if status.client_certificate_data:
        certificate = status.client_certificate_data.encode(), status.client_key_data.encode()
    expires = status.expiration_timestamp
    if expires is not None and expires.tzinfo is None:
        raise ConfigError(f"{at}: status.expirationTimestamp has no time zone; write it as RFC 3339")
    return ExecCredential(usable_token(status.token, f"{at}: printed status.token"), certificate, expires)


def _info(plugin: ExecPlugin, config: ClusterConfig, interactive: bool) -> str:
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = {
            "server": config.server,
            **({"tls-server-name": config.tls_server_name} if config.tls_server_name else {}),
            **({"insecure-skip-tls-verify": True} if config.insecure_skip_tls_verify else {}),
            **({"certificate-authority-data": base64.b64encode(config.ca.read()).decode()} if config.ca else {}),
        }
    return msgspec.json.encode({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}).decode()


def _printable(text: str) -> str:
    """Without control characters: a hint from a file must not drive the terminal."""
    return "".join(one for one in text if one.isprintable() or one == "\n")
