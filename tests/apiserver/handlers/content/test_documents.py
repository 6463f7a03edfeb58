"""Forms and caching of OpenAPI documents, their HTTP methods, and responses for unknown paths."""

from __future__ import annotations

import zlib

import pytest

from tests.apiserver.handlers.content.conftest import JSON, Wire

pytestmark = pytest.mark.server

V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
V3 = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"


@pytest.mark.parametrize(
    ("path", "accept", "status", "content_type"),
    [
        pytest.param("/openapi/v2", "", 200, JSON, id="version 2 is JSON"),
        pytest.param("/openapi/v2", V2, 200, V2.replace("@", "."), id="version 2 in protobuf, under another name"),
        pytest.param("/openapi/v2", V2.replace("@", "."), 200, V2.replace("@", "."), id="asked for by that other name"),
        pytest.param("/openapi/v2", V3, 406, "", id="version 2 is not acceptable as version 3"),
        pytest.param("/openapi/v3/apis/apps/v1", "application/*", 200, JSON, id="version 3 is JSON"),
        pytest.param("/openapi/v3/apis/apps/v1", f"{JSON};q=0.1,{V3}", 200, V3.replace("@", "."), id="version 3 in protobuf"),
        pytest.param("/openapi/v3/apis/apps/v1", "application/yaml", 406, "", id="there is no YAML"),
        pytest.param("/openapi/v3/nosuch", "text/html", 404, "", id="what does not exist is not found before it is negotiated"),
    ],
)
async def test_openapi(wire: Wire, path: str, accept: str, status: int, content_type: str) -> None:
    answer = await wire("GET", path, **({"accept": accept} if accept else {}))
    assert (answer.status, answer.content_type) == (status, content_type)
    if status == 200:
        assert "accept" in answer.headers["vary"].lower()
        assert answer.headers["last-modified"].endswith(" GMT")
        # A real server publishes the definitions of other tests some seconds later: only then is the document another one.
        for _ in range(10):
            again = await wire("GET", path, if_none_match=answer.headers["etag"], **({"accept": accept} if accept else {}))
            if again.status == 304 or again.headers["etag"] == answer.headers["etag"]:
                break
            answer = again
        assert (again.status, again.body) == (304, b"")


async def test_the_hash_of_the_index_lets_a_document_be_cached_without_expiry(wire: Wire) -> None:
    index = (await wire("GET", "/openapi/v3")).tree
    kept = await wire("GET", index["paths"]["apis/apps/v1"]["serverRelativeURL"])
    assert kept.headers["cache-control"] == "public, immutable"
    assert "expires" in kept.headers
    stale = await wire("GET", "/openapi/v3/version")
    assert stale.headers["cache-control"] == "no-cache, private"


@pytest.mark.parametrize(("accepted", "packed"), [("gzip", True), ("GZIP;q=0.5", True), ("gzip;q=0", False), ("deflate", False)])
async def test_only_version_2_is_packed(wire: Wire, accepted: str, *, packed: bool) -> None:
    answer = await wire("GET", "/openapi/v2", accept_encoding=accepted)
    assert (answer.headers.get("content-encoding") == "gzip") is packed
    assert (zlib.decompress(answer.body, 31) if packed else answer.body).startswith(b'{"swagger":"2.0"')
    assert "content-encoding" not in (await wire("GET", "/openapi/v3/apis/apps/v1", accept_encoding=accepted)).headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("POST", "/apis", 200, id="groups answer whatever the method"),
        pytest.param("DELETE", "/apis/apps", 200, id="so does a group"),
        pytest.param("PUT", "/openapi/v2", 200, id="so does OpenAPI"),
        pytest.param("PATCH", "/", 200, id="so does the root"),
        pytest.param("POST", "/api", 405, id="the core group's versions are only read"),
        pytest.param("POST", "/apis/apps/v1", 405, id="resources are only read"),
        pytest.param("HEAD", "/version", 405, id="the version knows no HEAD"),
        pytest.param("POST", "/apis/apps/v99", 404, id="an unknown version is not found, whatever the method"),
        pytest.param("GET", "/apis/nosuch.example.com", 404, id="an unknown group is not found"),
    ],
)
async def test_a_document_answers_a_method_with_a_status(wire: Wire, method: str, path: str, status: int) -> None:
    assert (await wire(method, path)).status == status


@pytest.mark.parametrize("path", ["/nosuch", "/apis/nosuch.example.com/v1/things", "/healthz/", "/openapi"])
async def test_an_unknown_path_gets_a_plain_page(wire: Wire, path: str) -> None:
    answer = await wire("GET", path)
    assert (answer.status, answer.body) == (404, b"404 page not found\n")
    assert answer.headers["x-content-type-options"] == "nosniff"
