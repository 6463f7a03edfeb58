"""A token in a file that somebody renews, as the kubelet does for a pod's service account.

Source: client-go transport/token_source.go: read again each minute, with 10 s to spare; a failed reading keeps the old token.
"""

from __future__ import annotations

import logging
from pathlib import Path

from kubeloop.config.credentials import usable_token
from kubeloop.meta.errors import ConfigError
from kubeloop.timing import Clock

_logger = logging.getLogger("kubeloop.config")

#: Seconds for which what was read is used; a minute less the leeway.
TOKEN_FILE_PERIOD = 50.0


class TokenFile:
    """The token in ``path``. Until it can be read for the first time, ``first`` is used if there is one."""

    def __init__(self, path: Path, first: str, owner: str, clock: Clock) -> None:
        self._path = path
        self._where = f"{owner}: tokenFile: {path}"
        self._clock = clock
        self._token = first.strip()
        self._read_at: float | None = None
        self._told = ""

    def token(self) -> str:
        """The token as it stood in the file at most ``TOKEN_FILE_PERIOD`` ago. While the file cannot be read, each call tries again.

        Raises:
            ConfigError: there never was one.
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
                _logger.warning("the token read before stays in use: %s", fault)
            return self._token
        self._token, self._read_at, self._told = token, now, ""
        return token

    def refused(self, token: str, started: float | None) -> None:
        """A request sent at ``started`` with this token was answered 401: read the file again, unless that was done since."""
        if self._read_at is None or token != self._token or (started is not None and self._read_at > started):
            return
        self._read_at = None
