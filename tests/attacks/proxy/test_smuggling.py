"""Requests within requests: client, proxy and API server read the same requests, each with its own look at the rules."""

from __future__ import annotations

import asyncio

import pytest

from tests.attacks.conftest import Thief, parsed
from tests.attacks.proxy.conftest import HIDDEN, HOME

#: A request whose answer is 404 through the rules, and 200 for an attacker who smuggles it past them.
_INNER = "GET {maps}/{hidden} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
#: A path that the rules concern, whose body the proxy reads, and one whose body it streams to the API server.
_PATHS = [pytest.param("configmaps", id="ruled"), pytest.param("secrets", id="passed")]


def _inner(thief: Thief) -> bytes:
    return _INNER.format(maps=thief.written(f"{HOME}/configmaps"), hidden=HIDDEN, token=thief.token).encode()


def _begun(thief: Thief, resource: str, method: str = "POST") -> bytes:
    path = thief.written(f"{HOME}/{resource}?dryRun=All")
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {thief.token}\r\nContent-Type: application/json\r\n".encode()


async def _is_in_step(thief: Thief) -> None:
    """The connections to the API server still answer each request with its own answer."""
    names = ["a-map", HIDDEN, "z-map", "changed"] * 2
    answers = await asyncio.gather(*(thief.ask("GET", f"{HOME}/configmaps/{name}") for name in names))
    for name, answered in zip(names, answers, strict=True):
        assert answered.status == (404 if name == HIDDEN else 200)
        assert f'"name":"{name}"' in answered.body


@pytest.mark.parametrize("resource", _PATHS)
@pytest.mark.parametrize(
    ("fields", "before"),
    [
        pytest.param(b"Content-Length: 0\r\nContent-Length: %d\r\n", b"", id="two lengths"),
        pytest.param(b"Content-Length: 0, %d\r\n", b"", id="a list of lengths"),
        pytest.param(b"Content-Length: +%d\r\n", b"", id="a length with a sign"),
        pytest.param(b"Content-Length: 0x%d\r\n", b"", id="a length in another base"),
        pytest.param(b"Content-Length : %d\r\n", b"", id="a blank before the colon of the length"),
        pytest.param(b"Transfer-Encoding : chunked\r\nContent-Length: %d\r\n", b"0\r\n\r\n", id="a blank before the colon of the coding"),
        pytest.param(b"Transfer-Encoding: xchunked\r\nContent-Length: %d\r\n", b"0\r\n\r\n", id="an unknown coding"),
        pytest.param(b"Transfer-Encoding: chunked, identity\r\nContent-Length: %d\r\n", b"0\r\n\r\n", id="chunks within another coding"),
        pytest.param(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\nContent-Length: %d\r\n", b"0\r\n\r\n", id="two codings"),
        pytest.param(b"Transfer-Encoding: \x0bchunked\r\nContent-Length: %d\r\n", b"0\r\n\r\n", id="a coding behind a control"),
        pytest.param(b"X: a\rTransfer-Encoding: chunked\r\nContent-Length: %d\r\n", b"0\r\n\r\n", id="a coding behind half a line break"),
        pytest.param(b"Content-Length: %d\x00\r\n", b"", id="a zero byte in the length"),
    ],
)
async def test_unclear_framing_is_refused_once(thief: Thief, resource: str, fields: bytes, before: bytes) -> None:
    inner = before + _inner(thief)
    sent = _begun(thief, resource) + (fields % len(inner) if b"%d" in fields else fields) + b"\r\n" + inner
    answers = parsed(await thief.raw(sent))
    assert [answered.status in (400, 501) for answered in answers] == [True]
    await _is_in_step(thief)


@pytest.mark.parametrize("resource", _PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET", "OPTIONS", "FETCH"])
@pytest.mark.parametrize(
    "framing",
    [
        pytest.param(b"Content-Length: %d\r\n\r\n%b", id="of a known length"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n", id="in chunks"),
        pytest.param(
            b"Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n%x\r\n%b\r\n0\r\nImpersonate-User: admin\r\n\r\n", id="with trailers"
        ),
        pytest.param(b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n%b", id="that is announced"),
        pytest.param(b"Connection: Upgrade, close\r\nUpgrade: x\r\nContent-Length: %d\r\n\r\n%b", id="behind an upgrade"),
        pytest.param(b"Connection: Content-Length, close\r\nContent-Length: %d\r\n\r\n%b", id="whose length a proxy must remove"),
    ],
)
async def test_a_body_is_no_request(thief: Thief, resource: str, method: str, framing: bytes) -> None:
    inner = _inner(thief)
    path = resource if method in ("POST", "GET", "OPTIONS") else f"{resource}/a-map"
    head = _begun(thief, path, method).replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n")
    received = await thief.raw(head + framing % (len(inner), inner))
    answers = parsed(received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n"))
    assert len(answers) == 1, answers
    assert not answers[0].has_gold
    await _is_in_step(thief)


async def test_where_chunks_and_a_length_are_named_the_chunks_count(thief: Thief) -> None:
    """RFC 9112 section 6.1. What follows the chunks is a request by itself, to which the rules apply."""
    for resource in ("configmaps", "secrets"):
        sent = _begun(thief, resource) + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + _inner(thief)
        answers = parsed(await thief.raw(sent))
        assert [answered.status for answered in answers] in ([400], [400, 404])
        assert not any(answered.has_gold for answered in answers)


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("HTTP/1.0", id="an old version"),
        pytest.param("HTTP/1.9", id="a later one"),
        pytest.param("HTTP/2.0", id="a version that this connection does not speak"),
        pytest.param("HTTP/0.9", id="an ancient one"),
        pytest.param("http/1.1", id="in small letters"),
        pytest.param("", id="none"),
    ],
)
async def test_no_version_of_http_avoids_the_rules(thief: Thief, version: str) -> None:
    for field in ("", "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"):
        head = f"GET {thief.written(HOME)}/configmaps/{HIDDEN} {version}\r\nHost: x\r\nAuthorization: Bearer {thief.token}\r\n"
        answers = parsed(await thief.raw(f"{head}Connection: close\r\n{field}\r\n".encode()))
        assert answers
        assert all(answered.status in (400, 404, 505) for answered in answers)
        assert not any(answered.has_gold for answered in answers)


async def test_each_of_many_requests_at_once_gets_its_own_answer(thief: Thief) -> None:
    names = ["a-map", HIDDEN, "changed", "z-map"] * 4
    head = "GET {path}/configmaps/{name} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{end}\r\n"
    sent = "".join(
        head.format(path=thief.written(HOME), name=name, token=thief.token, end="Connection: close\r\n" if at == len(names) - 1 else "")
        for at, name in enumerate(names)
    )
    answers = parsed(await thief.raw(sent.encode()))
    assert [answered.status for answered in answers] == [404 if name == HIDDEN else 200 for name in names]
    assert all(f'"name":"{name}"' in answered.body for name, answered in zip(names, answers, strict=True))
    assert not any(answered.has_gold for answered in answers)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("CONNECT kubernetes:443 HTTP/1.1", id="a tunnel"),
        pytest.param("CONNECT {maps}/{hidden} HTTP/1.1", id="a tunnel to a path"),
        pytest.param("GET  {maps}/{hidden} HTTP/1.1", id="two blanks"),
        pytest.param("GET\t{maps}/{hidden}\tHTTP/1.1", id="tabs"),
        pytest.param("GET {maps}/{hidden} HTTP/1.1 HTTP/1.1", id="two versions"),
        pytest.param("GET {maps}/{hidden}\x0bHTTP/1.1 HTTP/1.1", id="a control"),
        pytest.param("GET {maps}/%zz{hidden} HTTP/1.1", id="a broken escape"),
        pytest.param("GET {maps}/{hidden}# HTTP/1.1", id="a fragment"),
        pytest.param("GET api:{maps}/{hidden} HTTP/1.1", id="another scheme"),
        pytest.param("GET //x{maps}/{hidden} HTTP/1.1", id="an address without a scheme"),
        pytest.param("GET *{maps}/{hidden} HTTP/1.1", id="an asterisk"),
        pytest.param("GET * HTTP/1.1", id="only an asterisk"),
        pytest.param("OPTIONS * HTTP/1.1", id="the server itself"),
        pytest.param("PRI * HTTP/2.0", id="the preface of HTTP/2"),
        pytest.param("GET\x00 {maps}/{hidden} HTTP/1.1", id="a zero byte in the method"),
    ],
)
async def test_no_spelling_of_a_request_line_avoids_the_rules(thief: Thief, line: str) -> None:
    first = line.format(maps=thief.written(f"{HOME}/configmaps"), hidden=HIDDEN)
    answers = parsed(await thief.raw(f"{first}\r\nHost: x\r\nAuthorization: Bearer {thief.token}\r\nConnection: close\r\n\r\n".encode()))
    assert len(answers) == 1
    assert not answers[0].has_gold
    assert answers[0].status >= 400 or line.startswith("OPTIONS")
