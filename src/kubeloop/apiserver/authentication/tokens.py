"""Static bearer tokens, from a file.

Source: Kubernetes documentation, "Authenticating" (static token file).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from kubeloop.apiserver.authentication.users import AUTHENTICATED, User
from kubeloop.meta.errors import ConfigError


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
