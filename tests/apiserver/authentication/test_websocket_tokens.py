"""Tokens of browsers, offered as a subprotocol of a WebSocket."""

from __future__ import annotations

import base64

import pytest
from multidict import CIMultiDict

from kubeloop.apiserver.authentication import Authenticator, StaticTokens
from kubeloop.endpoints.access import User
from kubeloop.meta import Unauthorized
from kubeloop.serving.request import Request

AUDIENCES = ("https://kubernetes.default.svc.cluster.local",)
TOKENS = StaticTokens({"t1": User("ann")}, AUDIENCES)


def offered(token: bytes) -> str:
    return "base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def request(*protocols: str, upgrade: str = "websocket") -> Request:
    async def nothing(_: int) -> bytes:
        return b""

    headers = CIMultiDict([("Upgrade", upgrade), ("Connection", "Upgrade"), *(("Sec-WebSocket-Protocol", one) for one in protocols)])
    return Request("GET", "/api/v1/pods", "watch=1", headers, nothing)


async def who(asked: Request) -> str:
    return (await Authenticator((TOKENS,), AUDIENCES).authenticate(asked, [])).name


async def test_a_token_among_other_protocols_counts_and_is_not_passed_on() -> None:
    asked = request(f"v4.channel.k8s.io, {offered(b't1')}", "v5.channel.k8s.io")
    assert await who(asked) == "ann"
    assert asked.header("Sec-WebSocket-Protocol") == "v4.channel.k8s.io,v5.channel.k8s.io"


@pytest.mark.parametrize(
    "protocols",
    [
        pytest.param((offered(b"t1"),), id="nothing else to speak"),
        pytest.param((offered(b"t2"), "v4"), id="an unknown token"),
        pytest.param((offered(b"t1"), offered(b"t1"), "v4"), id="two tokens"),
        pytest.param((offered(b"t1") + "=", "v4"), id="padding"),
        pytest.param((offered(b"t1") + "!", "v4"), id="no base64"),
        pytest.param((offered(b"\xff"), "v4"), id="no text"),
    ],
)
async def test_unauthorized_is(protocols: tuple[str, ...]) -> None:
    with pytest.raises(Unauthorized):
        await who(request(*protocols))


async def test_without_a_token_or_a_websocket_there_is_no_check() -> None:
    assert await who(request("v4.channel.k8s.io")) == "system:anonymous"
    assert await who(request(offered(b"t1"), "v4", upgrade="SPDY/3.1")) == "system:anonymous"
    assert await who(request(offered(b""), "v4")) == "system:anonymous"
