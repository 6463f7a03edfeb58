"""Heads whose lines are written as usual are read with one search, and as if each line were read alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.http1 import client_heads, server_heads
from kubeloop.http1.errors import ProtocolError
from kubeloop.http1.headers import usual_fields

PIECES = ["A", "b-C", "Host", "x", ":", " ", "\t", "\r\n", "\n", "\r", "\0", "\x01", "\x7f", "ä", "€", "Content-Length: 3", "Host: a", ","]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def _read_by_server(raw: bytes) -> object:
    try:
        return server_heads.parse_head(raw)
    except server_heads.RequestRefused as refused:
        return refused.status, refused.text


def _read_by_client(raw: bytes) -> object:
    try:
        status, minor, headers = client_heads.parse_head(raw)
    except ProtocolError as error:
        return str(error)
    return status, minor, {name: headers.values_of(name) for name in headers}


def _written(headers: list[tuple[str, str]]) -> object:
    try:
        return client_heads.request_head("GET", "", "/x", headers, None)
    except ValueError as error:
        return str(error)


def _alone(patch: pytest.MonkeyPatch) -> None:
    """Let every line be read alone."""
    for module in (server_heads, client_heads):
        patch.setattr(module, "usual_fields", lambda _: None)


@given(TEXTS, st.sampled_from(["\r\n\r\n", "\n\n", "\r\n\n"]))
def test_a_server_reads_a_head_alike(lines: str, end: str) -> None:
    raw = f"GET /x HTTP/1.1\r\n{lines}{end}".encode()
    found = _read_by_server(raw)
    with pytest.MonkeyPatch.context() as patch:
        _alone(patch)
        assert found == _read_by_server(raw)


@given(TEXTS, st.sampled_from(["200 OK", "200", "204 a\rb", "200 \0"]))
def test_a_client_reads_a_head_alike(lines: str, status: str) -> None:
    raw = f"HTTP/1.1 {status}\r\n{lines}".encode()
    found = _read_by_client(raw)
    with pytest.MonkeyPatch.context() as patch:
        _alone(patch)
        assert found == _read_by_client(raw)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=3))
def test_a_client_writes_a_head_alike(headers: list[tuple[str, str]]) -> None:
    fields = [("Host", "a"), *headers]
    found = _written(fields)
    with pytest.MonkeyPatch.context() as patch:
        _alone(patch)
        assert found == _written(fields)


def test_a_head_without_fields_is_written_and_a_head_with_an_empty_line_is_refused() -> None:
    assert client_heads.request_head("GET", "", "/a", [], 5) == b"GET /a HTTP/1.1\r\nContent-Length: 5\r\n\r\n"
    assert client_heads.parse_head(b"HTTP/1.1 200 OK")[0] == 200
    with pytest.raises(ProtocolError):
        client_heads.parse_head(b"HTTP/1.1 200 OK\r\n")


USUAL = [
    ("", []),
    ("A: b\r\n", [("A", "b")]),
    ("A:b\r\nA:\t c d\r\nEmpty:\r\n", [("A", "b"), ("A", "c d"), ("Empty", "")]),
    ("A: b\t\r\n", None),
    ("A: b \r\n", None),
    ("A: b\n", None),
    ("A: b", None),
    (" folded: x\r\n", None),
    ("A : b\r\n", None),
    (": b\r\n", None),
    ("A: b\x7f\r\n", None),
    ("A: b\r\n\r\n", None),
]


@pytest.mark.parametrize(("lines", "expected"), USUAL)
def test_only_lines_without_optional_blanks_are_usual(lines: str, expected: list[tuple[str, str]] | None) -> None:
    assert usual_fields(lines) == expected
