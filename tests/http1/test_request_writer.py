"""Heads of requests: what a caller gives stays the one header or path that it is, or is not sent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.http1.client_heads import request_head
from kubeloop.transport import Transport
from tests.faults import FaultServer, Reply

HOST = ("Host", "h")


@pytest.mark.parametrize(
    ("path", "headers", "text"),
    [
        pytest.param("/x HTTP/1.1\r\nEvil: 1", {}, "a path begins with /", id="a path with a line break"),
        pytest.param("/x\ny", {}, "a path begins with /", id="a path with half a line break"),
        pytest.param("/x y", {}, "a path begins with /", id="a path with a blank"),
        pytest.param("/x\0", {}, "a path begins with /", id="a path with a zero byte"),
        pytest.param("/é", {}, "percent-encode", id="a path that is not ASCII"),
        pytest.param("/x#y", {}, "a path begins with /", id="a path with a fragment"),
        pytest.param("x", {}, "a path begins with /", id="a path that would stand beside the server's own"),
        pytest.param("", {}, "a path begins with /", id="no path"),
        pytest.param("/x", {"A": "b\r\nEvil: 1"}, "the header 'A' holds a line break", id="a header with a line break"),
        pytest.param("/x", {"A": "b\nEvil: 1"}, "the header 'A' holds a line break", id="a header with half a line break"),
        pytest.param("/x", {"A": "b\rEvil: 1"}, "the header 'A' holds a line break", id="a header with the other half"),
        pytest.param("/x", {"A: b\r\nEvil": "1"}, "its name a blank", id="a header's name with a line break"),
        pytest.param("/x", {"A b": "1"}, "its name a blank", id="a header's name with a blank"),
        pytest.param("/x", {"": "1"}, "its name a blank", id="a header without a name"),
        pytest.param("/x", {"content-length": "9"}, "the transport's own", id="a length of the caller's"),
        pytest.param("/x", {"Transfer-Encoding": "chunked"}, "the transport's own", id="a coding of the caller's"),
        pytest.param("/x", {"HOST": "other"}, "the transport's own", id="another host"),
    ],
)
async def test_what_would_become_another_request_is_not_sent(path: str, headers: dict[str, str], text: str) -> None:
    async with FaultServer(Reply()) as server, Transport(server.config()) as transport:
        with pytest.raises(ValueError, match=text):
            await transport.request("GET", path, headers=headers)
    assert server.received == []


async def test_a_callers_header_takes_the_place_of_ours_however_it_is_spelled() -> None:
    async with FaultServer(Reply()) as server, Transport(server.config()) as transport:
        await transport.request("POST", "/x", body=b"{}", headers={"accept": "text/plain", "CONTENT-TYPE": "text/x"})
    assert server.received[0].headers["accept"] == "text/plain"
    assert server.received[0].headers["content-type"] == "text/x"


def test_a_refused_header_is_not_shown() -> None:
    with pytest.raises(ValueError, match="Authorization") as raised:
        request_head("GET", "", "/x", [HOST, ("Authorization", "Bearer hid\nden")], None)
    assert "hid" not in str(raised.value).replace("holds", "")


def test_names_of_people_are_sent_as_they_are_written() -> None:
    assert "Impersonate-User: jürgen\r\n".encode() in request_head("GET", "", "/x", [HOST, ("Impersonate-User", "jürgen")], None)


@given(method=st.text(max_size=6), target=st.text(max_size=10).map("/".__add__), name=st.text(max_size=6), value=st.text(max_size=10))
@settings(max_examples=150, deadline=None)
def test_whatever_is_given_one_request_with_one_header_more_is_sent_or_none(method: str, target: str, name: str, value: str) -> None:
    try:
        head = request_head(method, "", target, [HOST, (name, value)], None)
    except ValueError:
        return
    assert head.count(b"\n") == head.count(b"\r\n") == 4
    assert head.count(b" ", 0, head.index(b"\r\n")) == 2
