"""Turns credentials into request headers, and keeps them fresh: token files, exec plugins, impersonation.

Source: client-go transport/token_source.go (60 s, 401 drops older tokens) and plugin/pkg/client/auth/exec.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.credentials import Impersonation, usable_token
from kubeloop.meta.errors import ConfigError
from kubeloop.timing import Clock, SystemClock

if TYPE_CHECKING:
    from kubeloop.config.exec_plugin import ExecCredential

_logger = logging.getLogger("kubeloop.config")

TOKEN_FILE_PERIOD = 60.0


class Authenticator:
    """One per transport. ``headers()`` before each request; ``refused()`` after a 401.

    Guarantees
        A rotated token file is seen within 60 s, and at the next request after a 401. While it cannot be read, the old token stays.
        An exec plugin runs once for any number of waiting requests, and again when its credential expires or was refused.
    """

    def __init__(self, config: ClusterConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock: Clock = clock or SystemClock()
        self._fixed = _fixed_headers(config)
        self._token = config.credentials.token
        self._read_at: float | None = None
        self._credential: ExecCredential | None = None
        self._running = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """Headers that say who asks.

        Raises:
            ConfigError: the token file was never readable, or the exec plugin failed.
        """
        user = self._config.credentials
        token = self._token
        if user.token_file is not None:
            token = self._file_token(user.token_file)
        elif user.exec is not None:
            token = (await self._exec_credential()).token
        return {**self._fixed, "Authorization": f"Bearer {token.strip()}"} if token else self._fixed

    async def client_certificate(self) -> tuple[bytes, bytes] | None:
        """What the exec plugin gave: PEM chain and key; None if the configured certificate, or none, is to be used."""
        return (await self._exec_credential()).certificate if self._config.credentials.exec is not None else None

    def refused(self, headers: dict[str, str]) -> None:
        """A request with these headers was answered 401: what they were made of is not used again, unless it was renewed meanwhile."""
        used = headers.get("Authorization", "")
        if self._read_at is not None and used == f"Bearer {self._token}":
            self._read_at = None
        credential = self._credential
        if credential is not None and used == (f"Bearer {credential.token}" if credential.token else ""):
            self._credential = None

    def _file_token(self, path: Path) -> str:
        now = self._clock.now()
        if self._read_at is not None and now - self._read_at < TOKEN_FILE_PERIOD:
            return self._token
        where = f"{self._config.credentials.owner}: tokenFile: {path}"
        try:
            token = usable_token(path.read_bytes().decode("utf-8", "replace"), where)
            if not token:
                raise ConfigError(f"{where} is empty; write a token into it")
        except (OSError, ConfigError) as error:
            if not self._token:
                if isinstance(error, ConfigError):
                    raise
                raise ConfigError(f"{where}: cannot be read ({error.strerror}); create it or correct it") from error
            _logger.warning("token file %s cannot be read, the token read before stays in use: %s", path, error)
            token = self._token
        self._token, self._read_at = token, now
        return token

    async def _exec_credential(self) -> ExecCredential:
        plugin = self._config.credentials.exec
        if plugin is None:
            raise ConfigError(f"{self._config.credentials.owner}: no exec plugin is configured")
        from kubeloop.config.exec_plugin import run_plugin

        async with self._running:
            credential = self._credential
            if credential is None or credential.expired(self._clock.wall()):
                credential = self._credential = await run_plugin(plugin, self._config)
        return credential


def _fixed_headers(config: ClusterConfig) -> dict[str, str]:
    user = config.credentials
    headers: dict[str, str] = {}
    if user.username or user.password:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    elif user.token and user.token_file is None:
        headers["Authorization"] = f"Bearer {user.token.strip()}"
    return headers


def impersonation_headers(impersonate: Impersonation) -> list[tuple[str, str]]:
    """Headers of user impersonation; groups and extra values repeat, extra keys are escaped as client-go does (headerKeyEscape)."""
    headers = [("Impersonate-User", impersonate.user)]
    if impersonate.uid:
        headers.append(("Impersonate-Uid", impersonate.uid))
    headers += [("Impersonate-Group", group) for group in impersonate.groups]
    for key, values in impersonate.extra:
        headers += [(f"Impersonate-Extra-{quote(key, safe='!#$&*+-.^_`|~')}", value) for value in values]
    return headers
