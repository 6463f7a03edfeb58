"""Impersonation: whom a request asks to be taken for.

Source: Kubernetes documentation, "User impersonation".
"""

from __future__ import annotations

import json

from kubeloop.apiserver import api_errors
from kubeloop.apiserver.authentication.request_header import unescaped
from kubeloop.apiserver.authentication.users import User
from kubeloop.serving.request import Request


def impersonated(request: Request) -> User | None:
    """Whom the request asks to be taken for, as its headers say it; None when it does not ask.

    Whether it may, and which groups he has besides, is for authorization to say.

    Raises:
        BadRequest: groups, uid or extra without a user.
    """
    name = request.header("Impersonate-User")
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    uid = request.header("Impersonate-Uid")
    for header, value in request.headers.items():
        lower = header.lower()
        if lower == "impersonate-group":
            groups.append(value)
        elif lower.startswith("impersonate-extra-"):
            extra.setdefault(unescaped(lower.removeprefix("impersonate-extra-")), []).append(value)
    if not name:
        if groups or extra or uid:
            asked = f'&user.DefaultInfo{{Name:"", UID:{_go(uid)}, Groups:{_go_list(groups)}, Extra:{_go_map(extra)}}}'
            raise api_errors.bad_request(f"requested {asked} without impersonating a user name")
        return None
    return User(name, tuple(groups), uid, {key: tuple(values) for key, values in extra.items()})


def _go(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _go_list(texts: list[str]) -> str:
    """As Go prints a slice of strings with %#v."""
    return f"[]string{{{', '.join(map(_go, texts))}}}" if texts else "[]string(nil)"


def _go_map(extra: dict[str, list[str]]) -> str:
    inner = ", ".join(f"{_go(name)}:{_go_list(values)}" for name, values in sorted(extra.items()))
    return f"map[string][]string{{{inner}}}" if extra else "map[string][]string(nil)"
