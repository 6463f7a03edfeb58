"""Static bearer tokens, from a file.

Source: Kubernetes documentation, "Authenticating" (static token file).
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from kubeloop.endpoints.access import AUTHENTICATED, Proof, User
from kubeloop.meta.errors import ConfigError
from kubeloop.pki.watched import WatchedFile

_LOG = logging.getLogger("kubeloop.apiserver.authentication")


class StaticTokens:
    """Tokens given, and those of ``file``, which is read again when it changes. They are meant for the server, under any of its names.

    Raises:
        ConfigError: the file cannot be read at the beginning; later on, what was read before stays in force, and it is logged.
    """

    def __init__(self, tokens: Mapping[str, User], audiences: tuple[str, ...], file: Path | None = None) -> None:
        self._given = tokens
        self._audiences = audiences
        self._file = WatchedFile(file, "--token-auth-file") if file is not None else None
        self._mark = self._file.mark() if self._file is not None else None
        self._tokens = {**tokens, **(read_tokens(file) if file is not None else {})}

    async def authenticate(self, token: str, audiences: tuple[str, ...]) -> Proof | None:
        """None: not one of them."""
        if self._file is not None:
            self._refresh(self._file)
        user = self._tokens.get(token)
        if user is None:
            return None
        both = tuple(one for one in self._audiences if one in audiences)
        return Proof(user, both) if both else None

    def _refresh(self, file: WatchedFile) -> None:
        mark = file.mark()
        if mark == self._mark:
            return
        self._mark = mark
        try:
            self._tokens = {**self._given, **read_tokens(file.path)}
        except ConfigError as fault:
            _LOG.warning("%s; what was read before stays in force", fault)
        else:
            _LOG.info("%s %s was read again", file.flag, file.path)


def read_tokens(path: Path) -> dict[str, User]:
    """A token file: CSV lines ``token,user,uid[,"group1,group2"]``, as kube-apiserver's --token-auth-file.

    Raises:
        ConfigError: unreadable, or a line with fewer than three columns, or without a token.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return _tokens(csv.reader(file, skipinitialspace=True), path)
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise ConfigError(f"cannot read token file {path}: {fault}") from None


def _tokens(rows: Iterable[list[str]], path: Path) -> dict[str, User]:
    found = {}
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        if len(row) < 3 or not row[0].strip():
            raise ConfigError(f'token file {path}, line {number}: wanted token,user,uid[,"groups"]')
        token, name, uid = (one.strip() for one in row[:3])
        groups = tuple(one.strip() for one in row[3].split(",") if one.strip()) if len(row) > 3 else ()
        found[token] = User(name, (*groups, AUTHENTICATED), uid)
    return found
