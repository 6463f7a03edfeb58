"""Copies of bodies: decoded where they can be, and never more than their limit in memory."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.codec.protobuf import encode, encode_event
from kubeloop.tap.bodies import MAX_BODY, MAX_ERROR_TEXT, BodyCopy, WatchFrames, decode_body, error_text

JSON = [("Content-Type", "application/json; charset=utf-8")]
PROTOBUF = [("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")]
POD: dict[str, Any] = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web-0", "resourceVersion": "7"}}


@pytest.mark.parametrize(
    ("data", "headers", "expected"),
    [
        pytest.param(json.dumps(POD).encode(), JSON, POD, id="JSON"),
        pytest.param(json.dumps(POD).encode(), [("content-type", "application/merge-patch+json")], POD, id="a patch"),
        pytest.param(gzip.compress(json.dumps(POD).encode()), [*JSON, ("Content-Encoding", "gzip")], POD, id="compressed JSON"),
        pytest.param(b"not gzip", [*JSON, ("Content-Encoding", "gzip")], None, id="JSON that says it is compressed and is not"),
        pytest.param(
            gzip.compress(b" " * (MAX_BODY + 1)), [*JSON, ("Content-Encoding", "gzip")], None, id="a body that unpacks to too much"
        ),
        pytest.param(b"{", JSON, None, id="JSON that ends too soon"),
        pytest.param(b"3", JSON, None, id="JSON that is no object"),
        pytest.param(b"\xff\xfe", JSON, None, id="JSON that is no UTF-8"),
        pytest.param(b"kind: Pod", [("Content-Type", "application/yaml")], None, id="YAML"),
        pytest.param(b"", JSON, None, id="no body"),
        pytest.param(None, JSON, None, id="a body that was too large to be copied"),
        pytest.param(b"k8s\0\xff", PROTOBUF, None, id="damaged protobuf"),
    ],
)
def test_decode_body(data: bytes | None, headers: list[tuple[str, str]], expected: Any) -> None:
    assert decode_body(data, headers) == expected


def test_protobuf_is_decoded() -> None:
    tree = decode_body(encode(POD), PROTOBUF)
    assert isinstance(tree, dict)
    assert (tree["kind"], tree["metadata"]["name"]) == ("Pod", "web-0")


NOT_FOUND = {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": 'pods "x" not found', "code": 404}
TEXT = [("Content-Type", "text/plain; charset=utf-8")]
HTML = [("Content-Type", "text/html")]


@pytest.mark.parametrize(
    ("status", "data", "headers", "expected"),
    [
        pytest.param(404, json.dumps(NOT_FOUND).encode(), JSON, 'NotFound: pods "x" not found', id="a Status"),
        pytest.param(404, encode({"apiVersion": "v1", **NOT_FOUND}), PROTOBUF, 'NotFound: pods "x" not found', id="a Status in protobuf"),
        pytest.param(503, json.dumps({**NOT_FOUND, "reason": ""}).encode(), JSON, 'pods "x" not found', id="a Status without a reason"),
        pytest.param(404, b"404 page not found\n", TEXT, "404 page not found", id="a text"),
        pytest.param(503, b"no\n  healthy upstream", TEXT, "no healthy upstream", id="a text of two lines"),
        pytest.param(502, b"x" * 300, TEXT, "x" * (MAX_ERROR_TEXT - 1) + "…", id="a long text"),
        pytest.param(
            503, b"<html><style>p {}</style>\n<h1>503 Busy</h1>\n<p>Come again</p></html>", HTML, "503 Busy Come again", id="a page"
        ),
        pytest.param(401, b'{"error": "no session"}', JSON, '{"error": "no session"}', id="JSON that is no Status"),
        pytest.param(403, gzip.compress(b"denied"), [*TEXT, ("Content-Encoding", "gzip")], "denied", id="a compressed text"),
        pytest.param(404, None, TEXT, "", id="a body that was too large to be copied"),
        pytest.param(404, b"\x00\x01", [("Content-Type", "application/octet-stream")], "", id="bytes"),
        pytest.param(200, json.dumps(NOT_FOUND).encode(), JSON, "", id="a success"),
    ],
)
def test_what_an_error_says(status: int, data: bytes | None, headers: list[tuple[str, str]], expected: str) -> None:
    assert error_text(status, decode_body(data, headers), data, headers) == expected


@given(st.lists(st.integers(1, 60)), st.booleans())
def test_frames_are_the_same_wherever_the_chunks_end(sizes: list[int], binary: bool) -> None:
    events: list[dict[str, Any]] = [{"type": "ADDED", "object": {**POD, "metadata": {"name": f"web-{number}"}}} for number in range(4)]
    data = b"".join(encode_event("ADDED", encode(one["object"])) if binary else json.dumps(one).encode() + b"\n" for one in events)
    frames = WatchFrames(PROTOBUF if binary else JSON)
    decoded = []
    for size in (*sizes, len(data)):
        chunk, data = data[:size], data[size:]
        decoded += [frames.decode(frame) for frame in frames.feed(chunk)]
    assert [one and one["object"]["metadata"]["name"] for one in decoded] == ["web-0", "web-1", "web-2", "web-3"]


@pytest.mark.parametrize(
    ("headers", "chunks"),
    [
        pytest.param(JSON, [b'{"type":"' + b"x" * MAX_BODY, b'xx"}\n', b"{}\n"], id="a JSON frame that is too large"),
        pytest.param(PROTOBUF, [(MAX_BODY + 1).to_bytes(4, "big"), b"\0\0\0\1x"], id="a protobuf frame that is too large"),
        pytest.param([*JSON, ("Content-Encoding", "gzip")], [b"{}\n"], id="a compressed stream"),
        pytest.param([("Content-Type", "application/cbor-seq")], [b"\xa0"], id="CBOR"),
    ],
)
def test_a_stream_that_cannot_be_read_has_no_frames(headers: list[tuple[str, str]], chunks: list[bytes]) -> None:
    frames = WatchFrames(headers)
    assert [frame for chunk in chunks for frame in frames.feed(chunk)] == []
    assert not frames.readable


def test_a_copy_ends_at_its_limit_and_counts_on() -> None:
    copy = BodyCopy()
    for _ in range(9):
        copy.add(b"x" * (1 << 20))
    assert (copy.size, copy.data) == (9 << 20, None)


def test_a_copy_with_a_gap_has_no_data() -> None:
    copy = BodyCopy()
    copy.add(b"abc")
    copy.skip(10)
    copy.add(b"def")
    assert (copy.size, copy.data) == (16, None)
