"""Other users: no header, token or certificate makes a client of the proxy another user, for the rules or for the API server."""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from kubeloop.endpoints.access import User
from tests.attacks.conftest import Thief, parsed
from tests.attacks.proxy.conftest import HIDDEN, HOME, Proxied

_MAPS = f"{HOME}/configmaps"
_REVIEW = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_WEBSOCKET_TOKEN = "base64url.bearer.authorization.k8s.io."
_ADMIN = "system:masters"

#: Headers that name a user, and the status of a request with them.
_CLAIMS = [
    pytest.param({"Impersonate-User": "admin", "Impersonate-Group": _ADMIN}, 403, id="impersonation of an administrator"),
    pytest.param({"impersonate-user": "admin"}, 403, id="impersonation in small letters"),
    pytest.param({"IMPERSONATE-USER": "admin"}, 403, id="impersonation in capitals"),
    pytest.param({"Impersonate-User": "system:anonymous"}, 403, id="impersonation of the anonymous user"),
    pytest.param({"Impersonate-User": "system:serviceaccount:default:default"}, 403, id="impersonation of another account"),
    pytest.param({"Impersonate-Group": _ADMIN}, 400, id="a group alone"),
    pytest.param({"Impersonate-Uid": "1"}, 400, id="a uid alone"),
    pytest.param({"Impersonate-Extra-Scopes": "all"}, 400, id="an extra alone"),
    pytest.param({"Impersonate_User": "admin", "Impersonate_Group": _ADMIN}, 200, id="impersonation with underscores"),
    pytest.param({"Impersonate-Users": "admin"}, 200, id="impersonation by a name that is none"),
    pytest.param({"X-Remote-User": "admin", "X-Remote-Group": _ADMIN}, 200, id="the headers of a front proxy"),
    pytest.param({"x-remote-user": "admin", "X-REMOTE-EXTRA-SCOPES": "all", "X-Remote-Uid": "0"}, 200, id="these in other letters"),
    pytest.param({"X-Forwarded-User": "admin", "X-Webauth-User": "admin", "Remote-User": "admin"}, 200, id="those of other proxies"),
    pytest.param({"X-Forwarded-Client-Cert": "Subject=CN=admin", "Ssl-Client-Subject-Dn": "CN=admin"}, 200, id="a certificate in a header"),
    pytest.param({"Proxy-Authorization": "Bearer x"}, 200, id="credentials for a proxy"),
    pytest.param({"Connection": "Authorization, close"}, 200, id="credentials that a proxy must remove"),
    pytest.param({"Connection": "Impersonate-User, close", "Impersonate-User": "admin"}, 403, id="impersonation that a proxy must remove"),
    pytest.param({"Cookie": "token=x; user=admin"}, 200, id="a cookie"),
]


def _user(body: str) -> str:
    return str(json.loads(body)["status"]["userInfo"]["username"])


async def _is_still_itself(thief: Thief, headers: dict[str, str], status: int, user: str) -> None:
    listed = await thief.ask("GET", _MAPS, headers)
    assert listed.status == status, listed.body[:300]
    assert not listed.has_gold
    assert HIDDEN not in listed.body
    hidden = await thief.ask("GET", f"{_MAPS}/{HIDDEN}", headers)
    assert hidden.status == (404 if status == 200 else status), hidden.body
    reviewed = await thief.ask("POST", _REVIEWS, headers, _REVIEW)
    assert reviewed.status == (201 if status == 200 else status), reviewed.body
    if status == 200:
        assert _user(reviewed.body) == thief.written(user)


@pytest.mark.parametrize(("headers", "status"), _CLAIMS)
async def test_no_header_changes_the_user_of_a_token(thief: Thief, headers: dict[str, str], status: int) -> None:
    await _is_still_itself(thief, headers, status, "system:serviceaccount:{home}:thief")


@pytest.fixture(scope="module")
def certified(proxied: Proxied, tmp_path_factory: pytest.TempPathFactory) -> Thief:
    """The attacker with a certificate of the proxy's authority, and without its token."""
    home = proxied.thief.home
    issued = proxied.proxy.issue(User(f"system:serviceaccount:{home}:thief", (f"system:serviceaccounts:{home}",)))
    return replace(proxied.thief, tls=_with_certificate(proxied, issued.certificate, issued.key, tmp_path_factory.mktemp("pki")), token="")


def _with_certificate(proxied: Proxied, certificate: bytes, key: bytes, folder: Path) -> ssl.SSLContext:
    path = folder / "pair.pem"
    path.write_bytes(certificate + key)
    context = ssl.create_default_context(cadata=proxied.proxy.authority.decode())
    context.load_cert_chain(path)
    return context


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        *_CLAIMS,
        pytest.param({"Authorization": "Bearer rubbish"}, 200, id="a token beside the certificate"),
        pytest.param({"Authorization": "Basic YWRtaW46YWRtaW4="}, 200, id="a password beside the certificate"),
        pytest.param({"Sec-WebSocket-Protocol": f"{_WEBSOCKET_TOKEN}cnViYmlzaA"}, 200, id="a token as a protocol beside the certificate"),
    ],
)
async def test_no_header_changes_the_user_of_a_certificate(certified: Thief, headers: dict[str, str], status: int) -> None:
    await _is_still_itself(certified, {"Authorization": "", **headers}, status, "system:serviceaccount:{home}:thief")


@pytest.mark.parametrize("headers", [{}, {"Impersonate-User": "admin"}, {"X-Remote-User": "admin", "X-Remote-Group": _ADMIN}])
async def test_a_client_without_credentials_stays_anonymous(thief: Thief, headers: dict[str, str]) -> None:
    answered = await thief.ask("GET", _MAPS, {"Authorization": "", **headers})
    assert answered.status == 403
    assert 'User \\"system:anonymous\\"' in answered.body


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["Sec-WebSocket-Protocol: {token}, v5.channel.k8s.io"], id="the token alone"),
        pytest.param(["Sec-WebSocket-Protocol: v5.channel.k8s.io", "Sec-WebSocket-Protocol: {token}"], id="the token in a second header"),
        pytest.param(["Authorization: Basic eDp4", "Sec-WebSocket-Protocol: v5.channel.k8s.io, {token}"], id="the token beside a password"),
        pytest.param(["Authorization: Bearer", "Sec-WebSocket-Protocol: v5.channel.k8s.io, {token}"], id="the token beside an empty one"),
        pytest.param(["Impersonate-User: x", "Sec-WebSocket-Protocol: v5.channel.k8s.io, {token}"], id="the token with an impersonation"),
    ],
)
async def test_a_token_as_a_websocket_protocol_does_not_avoid_the_rules_for_its_user(thief: Thief, lines: list[str]) -> None:
    """The API server takes such a token from WebSockets alone, so that the proxy cannot know whose it is."""
    token = _WEBSOCKET_TOKEN + base64.urlsafe_b64encode(thief.token.encode()).decode().rstrip("=")
    text = f"GET {thief.written(HOME)}/pods/{HIDDEN}/log?follow=true HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\n"
    text += "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    text += "".join(f"{line.replace('{token}', token)}\r\n" for line in lines)
    answers = parsed(await thief.raw(f"{text}\r\n".encode()))
    assert [answered.status for answered in answers] == [403]
    assert "send the token in the header Authorization" in answers[0].body


async def test_of_two_authorizations_the_same_counts_for_rules_and_server(thief: Thief) -> None:
    for first, second in ((thief.token, "rubbish"), ("rubbish", thief.token)):
        sent = (
            f"GET {thief.written(_MAPS)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Authorization: Bearer {first}\r\nAuthorization: Bearer {second}\r\n\r\n"
        )
        (answered,) = parsed(await thief.raw(sent.encode()))
        assert answered.status == (200 if first == thief.token else 401)
        assert not answered.has_gold
        assert HIDDEN not in answered.body


async def test_a_folded_header_names_no_user(thief: Thief) -> None:
    sent = (
        f"GET {thief.written(_MAPS)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-A: b\r\n Impersonate-User: admin\r\n"
        f"Authorization: Bearer {thief.token}\r\n\r\n"
    )
    (answered,) = parsed(await thief.raw(sent.encode()))
    assert answered.status == 200
    assert not answered.has_gold


async def test_a_user_name_cannot_break_out_of_its_header(proxied: Proxied, thief: Thief, tmp_path: Path) -> None:
    """The proxy sends the name of a certificate in a header."""
    for name in ("eve\r\nImpersonate-Group: system:masters", "eve\nX: y", "eve\x00admin"):
        try:
            issued = proxied.proxy.issue(User(name))
        except ValueError:
            continue
        client = replace(thief, tls=_with_certificate(proxied, issued.certificate, issued.key, tmp_path))
        answered = await client.ask("GET", _MAPS, {"Authorization": ""})
        assert answered.status in (401, 403), answered
        assert not answered.has_gold
