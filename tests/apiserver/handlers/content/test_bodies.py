"""Bodies of requests and responses: content types, compression, indentation, YAML."""

from __future__ import annotations

import gzip
import zlib

import pytest

from tests.apiserver.handlers.content.conftest import JSON, PROTOBUF, YAML, Wire, config_map

pytestmark = pytest.mark.server

UNKNOWN = (
    "the body of the request was in an unknown format - accepted media types include: "
    "application/json, application/yaml, application/vnd.kubernetes.protobuf"
)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        pytest.param("", 201, id="no type is JSON"),
        pytest.param("Application/JSON; charset=utf-8", 201, id="in any case, with parameters"),
        pytest.param("application/json;", 201, id="a semicolon too many"),
        pytest.param("application/yaml", 201, id="JSON is YAML too"),
        pytest.param("application/json; q", 415, id="a parameter without a value"),
        pytest.param("; x", 415, id="parameters without a type"),
        pytest.param("application/json,application/yaml", 415, id="two types"),
        pytest.param("text/yaml", 415, id="another name for YAML"),
        pytest.param("application/cbor", 415, id="CBOR"),
        pytest.param("*/*", 415, id="anything"),
    ],
)
async def test_a_body_of_type(wire: Wire, content_type: str, status: int) -> None:
    answer = await wire("POST", "configmaps", config_map("a"), **({"content_type": content_type} if content_type else {}))
    assert answer.status == status
    if status == 415:
        assert answer.message == UNKNOWN


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        pytest.param("application/merge-patch+json; charset=utf-8", 200, id="with parameters"),
        pytest.param("Application/Merge-Patch+json", 415, id="in another case"),
        pytest.param("application/json", 415, id="that is no patch"),
        pytest.param("application/apply-patch+cbor", 415, id="that is off by default"),
    ],
)
async def test_a_patch_of_type(wire: Wire, content_type: str, status: int) -> None:
    await wire.create("a")
    answer = await wire("PATCH", "configmaps/a", b'{"data":{"k":"v"}}', content_type=content_type)
    assert answer.status == status
    if status == 415:
        assert answer.message == "415: Unsupported Media Type"


async def test_a_body_is_never_unpacked(wire: Wire) -> None:
    packed = gzip.compress(config_map("a"), mtime=0)
    answer = await wire("POST", "configmaps", packed, content_type=JSON, content_encoding="gzip")
    assert answer.status == 400
    assert "invalid character '\\x1f' looking for beginning of value" in answer.message
    plain = await wire("POST", "configmaps", config_map("b"), content_type=JSON, content_encoding="gzip")
    assert plain.status == 201


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        pytest.param("gzip", True, id="gzip"),
        pytest.param("deflate, gzip", True, id="gzip among others"),
        pytest.param("gzip;q=1", False, id="not gzip with a quality"),
        pytest.param("GZIP", False, id="not gzip in capitals"),
        pytest.param("deflate", False, id="nothing else"),
        pytest.param("*", False, id="not anything"),
    ],
)
async def test_a_large_answer_is_packed_for(wire: Wire, accepted: str, *, packed: bool) -> None:
    await wire.create("a", k="x" * 200_000)
    answer = await wire("GET", "configmaps/a", accept_encoding=accepted)
    assert (answer.headers.get("content-encoding") == "gzip") is packed
    assert ("accept-encoding" in answer.headers.get("vary", "").lower()) is packed
    body = zlib.decompress(answer.body, 31) if packed else answer.body
    assert b"x" * 200_000 in body


async def test_a_small_answer_is_not_packed(wire: Wire) -> None:
    await wire.create("a")
    answer = await wire("GET", "configmaps/a", accept_encoding="gzip")
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("query", "headers", "indented"),
    [
        pytest.param("", {}, False, id="not for a program"),
        pytest.param("", {"user_agent": "curl/8"}, True, id="for curl"),
        pytest.param("", {"user_agent": "Mozilla/5.0 (X11)"}, True, id="for a browser"),
        pytest.param("", {"user_agent": "Mozilla/4.0"}, False, id="not for an old browser"),
        pytest.param("?pretty=true", {}, True, id="when asked for"),
        pytest.param("?pretty=T", {}, True, id="when asked for in a word that Go takes for true"),
        pytest.param("?pretty=yes", {}, False, id="not in a word that it does not"),
        pytest.param("?pretty=false", {"user_agent": "curl/8"}, False, id="not for curl that does not want it"),
        pytest.param("?pretty=", {"user_agent": "curl/8"}, True, id="for curl that says nothing"),
        pytest.param("?pretty=false", {"accept": "application/json;pretty=1"}, True, id="when the Accept header asks for it"),
    ],
)
@pytest.mark.parametrize("path", ["configmaps/a", "configmaps", "configmaps/nosuch", "/apis/apps"])
async def test_json_is_indented(wire: Wire, path: str, query: str, headers: dict[str, str], *, indented: bool) -> None:
    await wire.create("a")
    answer = await wire("GET", f"{path}{query}", **headers)
    assert answer.body.startswith(b"{\n  ") is indented
    # Go's encoder ends a document with a newline, its indenting one does not.
    assert answer.body.endswith(b"\n") is not indented


@pytest.mark.parametrize("path", ["/version", "/"])
async def test_some_documents_are_always_indented(wire: Wire, path: str) -> None:
    answer = await wire("GET", f"{path}?pretty=false")
    assert answer.body.startswith(b"{\n  ")


@pytest.mark.parametrize("path", ["/openapi/v3", "/openapi/v3/version"])
async def test_openapi_never_is(wire: Wire, path: str) -> None:
    answer = await wire("GET", f"{path}?pretty=true", user_agent="curl/8")
    assert b"\n" not in answer.body


async def test_yaml_is_written_as_go_writes_it(wire: Wire) -> None:
    folded = "a text of many words, so many that they do not fit into the eighty columns that a line may have"
    odd = {
        "a": "2020-01-01",
        "b": "1",
        "c": "yes",
        "d": "",
        "e": "a: b",
        "f": "one\ntwo\n",
        "g": folded,
        "h": "plain",
        "on": "~",
        "i": "1:30",
    }
    await wire.create("a", **odd)
    text = (await wire("GET", "configmaps/a", accept=YAML)).body.decode()
    assert text.startswith("apiVersion: v1\ndata:\n")
    data = text.partition("data:\n")[2].partition("kind:")[0]
    assert data == (
        '  a: "2020-01-01"\n'
        '  b: "1"\n'
        '  c: "yes"\n'
        '  d: ""\n'
        "  e: 'a: b'\n"
        "  f: |\n    one\n    two\n"
        "  g: a text of many words, so many that they do not fit into the eighty columns that\n    a line may have\n"
        "  h: plain\n"
        '  i: "1:30"\n'
        '  "on": "~"\n'
    )


async def test_protobuf_and_json_say_the_same(wire: Wire) -> None:
    await wire.create("a", k="v")
    packed, plain = await wire("GET", "configmaps/a", accept=PROTOBUF), await wire("GET", "configmaps/a", accept=JSON)
    assert packed.tree == plain.tree
    listed, pages = await wire("GET", "configmaps?limit=1", accept=PROTOBUF), await wire("GET", "configmaps?limit=1", accept=JSON)
    assert {**listed.tree, "metadata": {}} == {**pages.tree, "metadata": {}}
