"""Turns credentials into request headers, and renews them: token files, credential plugins, impersonation.

Source: client-go transport/round_trippers.go, transport/token_source.go and plugin/pkg/client/auth/exec.
"""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.credentials import ImpersonatedUser, usable_token
from kubeloop.meta.errors import ConfigError
from kubeloop.timing import Clock, SystemClock

if TYPE_CHECKING:
    from kubeloop.config.plugins.credential import ExecCredential
    from kubeloop.config.plugins.source import PluginSource

# A token file that another program renews, as the kubelet does for a pod's service account.
#
# Source: client-go transport/token_source.go: read again each minute, with 10 s of leeway; a failed read keeps the old token.


_LOG = logging.getLogger("kubeloop.config")

#: Seconds for which a read token is used; a minute less the leeway.
TOKEN_FILE_PERIOD = 50.0


class TokenFile:
    """The token in ``path``. Until the file can be read for the first time, the token ``first`` is used, if it is set."""

    def __init__(self, path: Path, first: str, owner: str, clock: Clock) -> None:
        """Create the reader. The file is read at the first use.

        Args:
            path: The token file.
            first: The token until the file can be read; empty: none.
            owner: The kubeconfig entry, for messages.
            clock: The clock of the file's refresh.
        """
        self._path = path
        self._where = f"{owner}: tokenFile: {path}"
        self._clock = clock
        self._token = first.strip()
        self._read_at: float | None = None
        self._told = ""

    def token(self) -> str:
        """Return the token that was in the file at most ``TOKEN_FILE_PERIOD`` ago. While the file cannot be read, each call tries again.

        Raises:
            ConfigError: The file could never be read.
        """
        now = self._clock.now()
        if self._read_at is not None and now - self._read_at < TOKEN_FILE_PERIOD:
            return self._token
        try:
            token = usable_token(self._path.read_bytes().decode("utf-8", "replace"), self._where)
            if not token:
                raise ConfigError(f"{self._where} is empty; write a token into it")
        except (OSError, ConfigError) as error:
            fault = (
                f"{self._where}: cannot be read ({error.strerror}); create it or correct it" if isinstance(error, OSError) else str(error)
            )
            if not self._token:
                raise ConfigError(fault) from error
            if fault != self._told:
                self._told = fault
                _LOG.warning("keeping the previous token: %s", fault)
            return self._token
        self._token, self._read_at, self._told = token, now, ""
        return token

    def refused(self, token: str, started: float | None) -> None:
        """Handle a 401 for a request that was sent at ``started`` with this token. Read the file again, unless it was read since then."""
        if self._read_at is None or token != self._token or (started is not None and self._read_at > started):
            return
        self._read_at = None


#: Characters allowed in header names beside letters and digits (RFC 9110, token); "%" begins escapes.
_IN_HEADER_NAMES = "!#$&'*+-.^_`|~"


class RequestAuthenticator:
    """Authenticates the requests of one transport. Call ``headers()`` before each request and ``refused()`` after a 401.

    >>> from kubeloop.config import ClusterConfig, Credentials
    >>> config = ClusterConfig(server="https://127.0.0.1:6443", credentials=Credentials(token="secret"))
    >>> authenticator = RequestAuthenticator(config)
    >>> (await authenticator.headers())["Authorization"]
    'Bearer secret'

    Guarantees
        A rotated token file takes effect within a minute, and at the next request after a 401. While it cannot be read, the old token is
        used.
        A plugin runs once for any number of waiting requests and of authenticators with the same plugin configuration, and again
        when its credential expires or was refused.

    Not guaranteed
        The request that got 401 is not sent again: the next request has the new credential, as in client-go.
    """

    def __init__(self, config: ClusterConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock: Clock = clock or SystemClock()
        user = config.credentials
        self._fixed = _fixed_headers(config)
        self._file = TokenFile(user.token_file, user.token, user.owner, self._clock) if user.token_file is not None else None
        self._source: PluginSource | None = None
        self._credential: ExecCredential | None = None

    async def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request.

        Raises:
            ConfigError: The token file was never readable, or the plugin failed.
        """
        if self._file is not None:
            return {"Authorization": f"Bearer {self._file.token()}"}
        if self._config.credentials.plugin is None:
            return self._fixed
        token = (await self._from_plugin()).token
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def client_certificate(self) -> tuple[bytes, bytes] | None:
        """Return the PEM chain and key of the plugin's client certificate, or None to use the configured certificate, if any."""
        return (await self._from_plugin()).certificate if self._config.credentials.plugin is not None else None

    def refused(self, headers: dict[str, str], started: float | None = None) -> None:
        """Handle a 401 for a request with these headers. Its credential is not used again, unless it has been renewed since.

        ``started`` is the clock's ``now()`` when the request was sent. It distinguishes an old client certificate, which no header shows,
        from a new one.
        """
        used = headers.get("Authorization", "")
        if self._file is not None:
            self._file.refused(used.removeprefix("Bearer "), started)
        credential = self._credential
        if self._source is not None and credential is not None and used == (f"Bearer {credential.token}" if credential.token else ""):
            self._source.refused(credential, started)

    async def _from_plugin(self) -> ExecCredential:
        plugin = self._config.credentials.plugin
        assert plugin is not None
        if self._source is None:
            # Few programs have a plugin, and importing it would delay all of them.
            from kubeloop.config.plugins.source import source_of

            self._source = source_of(plugin, self._config)
        self._credential = await self._source.credential(plugin, self._config, self._clock)
        return self._credential


def _fixed_headers(config: ClusterConfig) -> dict[str, str]:
    user = config.credentials
    if user.username or user.password:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {"Authorization": f"Bearer {user.token.strip()}"} if user.token else {}


def impersonation_headers(impersonate: ImpersonatedUser) -> list[tuple[str, str]]:
    """Return the headers of user impersonation; groups and extra values repeat, extra keys are escaped as in client-go."""
    headers = [("Impersonate-User", impersonate.user)]
    if impersonate.uid:
        headers.append(("Impersonate-Uid", impersonate.uid))
    headers += [("Impersonate-Group", group) for group in impersonate.groups]
    for key, values in impersonate.extra:
        headers += [(f"Impersonate-Extra-{quote(key, safe=_IN_HEADER_NAMES)}", value) for value in values]
    return headers
