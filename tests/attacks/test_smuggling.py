"""Requests within requests: framing that two parties could read differently ends the connection, or is read in one way only."""

from __future__ import annotations

import pytest

from tests.attacks.conftest import Thief, parsed

pytestmark = pytest.mark.server

#: What an attacker would like the server, or a proxy before it, to take for a separate request.
HIDDEN = b"GET /api/v1/namespaces/%s/secrets/gold HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n"


def _hidden(thief: Thief) -> bytes:
    return HIDDEN % (thief.other.encode(), thief.token.encode())


def _begun(thief: Thief, method: bytes = b"POST") -> bytes:
    path = b"/api/v1/namespaces/%s/configmaps?dryRun=All" % thief.home.encode()
    return b"%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n" % (
        method,
        path,
        thief.token.encode(),
    )


@pytest.mark.parametrize(
    ("fields", "before"),
    [
        pytest.param(b"Content-Length: 0\r\nContent-Length: %d\r\n", b"", id="two lengths"),
        pytest.param(b"Content-Length: 0, %d\r\n", b"", id="a list of lengths"),
        pytest.param(b"Content-Length: 0x%d\r\n", b"", id="a length that is no decimal number"),
        pytest.param(b"Content-Length: -%d\r\n", b"", id="a length below zero"),
        pytest.param(b"Content-Length : %d\r\n", b"", id="a blank before the colon of the length"),
        pytest.param(b"Transfer-Encoding : chunked\r\nContent-Length: %d\r\n", b"0\r\n\r\n", id="a blank before the colon of the coding"),
        pytest.param(b"Transfer-Encoding: xchunked\r\nContent-Length: %d\r\n", b"0\r\n\r\n", id="an unknown coding"),
        pytest.param(b"Transfer-Encoding: chunked, identity\r\nContent-Length: %d\r\n", b"0\r\n\r\n", id="chunks within another coding"),
        pytest.param(
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: %d\r\n", b"0\r\n\r\n", id="two codings"
        ),
        pytest.param(b"Transfer-Encoding: \x0bchunked\r\nContent-Length: %d\r\n", b"0\r\n\r\n", id="a coding behind a control"),
        pytest.param(b"X: a\rTransfer-Encoding: chunked\r\nContent-Length: %d\r\n", b"0\r\n\r\n", id="a coding behind half a line break"),
        pytest.param(b"Content_Length: 0\r\nContent-Length: %d\x00\r\n", b"", id="a zero byte in the length"),
    ],
)
async def test_unclear_framing_is_refused_once_and_ends_the_connection(thief: Thief, fields: bytes, before: bytes) -> None:
    hidden = _hidden(thief)
    sent = _begun(thief) + (fields % len(before + hidden) if b"%d" in fields else fields) + b"\r\n" + before + hidden
    answers = parsed(await thief.raw(sent))
    assert len(answers) == 1, answers
    assert answers[0].status in (400, 501)


async def test_where_chunks_and_a_length_are_named_the_chunks_count(thief: Thief) -> None:
    """RFC 9112 section 6.1: chunks overrule the length; what follows them is a request by itself, with its own authorization."""
    sent = _begun(thief) + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + _hidden(thief)
    answers = parsed(await thief.raw(sent))
    assert [one.status for one in answers[:1]] in ([400], [415], [422])
    assert all(one.status == 403 for one in answers[1:])
    assert not any(one.has_gold for one in answers)


async def test_the_body_of_a_read_is_no_request(thief: Thief) -> None:
    hidden = _hidden(thief)
    for framing in (
        b"Content-Length: %d\r\n\r\n%s" % (len(hidden), hidden),
        b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(hidden), hidden),
    ):
        answers = parsed(await thief.raw(_begun(thief, b"GET") + b"Connection: close\r\n" + framing))
        assert [one.status for one in answers] == [200]


async def test_an_upgrade_that_is_refused_leaves_no_tunnel(thief: Thief) -> None:
    """What comes behind a request to upgrade is answered as what it is, or not at all."""
    begun = b"GET /api/v1/namespaces/%s/pods/x/exec?command=id HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % (
        thief.home.encode(),
        thief.token.encode(),
    )
    for protocol in (b"websocket", b"SPDY/3.1", b"h2c", b"TLS/1.0"):
        sent = (
            begun
            + b"Connection: Upgrade\r\nUpgrade: "
            + protocol
            + b"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        answers = parsed(await thief.raw(sent + _hidden(thief)))
        assert answers
        assert not any(one.has_gold or one.status == 101 for one in answers)


async def test_header_fields_are_not_folded_into_others(thief: Thief) -> None:
    """A line that begins with a blank continues the field before it, and never becomes a separate field."""
    begun = b"GET /api/v1/namespaces/%s/secrets/gold HTTP/1.1\r\nHost: x\r\n" % thief.other.encode()
    sent = begun + b"X: a\r\n Impersonate-User: admin\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n" % thief.token.encode()
    answers = parsed(await thief.raw(sent))
    assert [one.status for one in answers] == [403]
    assert "system:serviceaccount" in answers[0].body


async def test_of_two_authorizations_the_first_counts_for_everything(thief: Thief) -> None:
    begun = b"GET /api/v1/namespaces/%s/secrets/gold HTTP/1.1\r\nHost: x\r\n" % thief.other.encode()
    sent = begun + b"Authorization: Bearer %s\r\nAuthorization: Bearer x\r\nConnection: close\r\n\r\n" % thief.token.encode()
    assert [one.status for one in parsed(await thief.raw(sent))] == [403]
