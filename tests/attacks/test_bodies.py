"""Bodies that are larger, deeper or other than they look: each is refused or read in the usual way, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable

import pytest

from tests.attacks.conftest import Thief, config_map

pytestmark = pytest.mark.server

MAPS = "/api/v1/namespaces/{home}/configmaps?dryRun=All"
YAML = "application/yaml"
BLANKS = 50_000_000


@pytest.mark.parametrize(
    ("coding", "make_body"),
    [
        pytest.param("gzip", lambda: gzip.compress(b" " * BLANKS), id="gzip"),
        pytest.param("deflate", lambda: zlib.compress(b" " * BLANKS), id="deflate"),
        pytest.param("gzip, gzip", lambda: gzip.compress(gzip.compress(b" " * BLANKS)), id="gzip in gzip"),
        pytest.param("br", lambda: b"\x00" * 100, id="brotli"),
    ],
)
async def test_bodies_are_not_unpacked(thief: Thief, coding: str, make_body: Callable[[], bytes]) -> None:
    """A compressed body is taken for the bytes that it is, which are no object."""
    answered = await thief.ask("POST", MAPS, {"Content-Encoding": coding}, make_body())
    assert answered.status == 400, answered.body[:300]


def _laughs(levels: int) -> bytes:
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata: {name: x}", 'a0: &a0 ["lol"]']
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        pytest.param(YAML, _laughs(12), 400, id="a billion laughs"),
        pytest.param(YAML, b"a: &a [*a]", 400, id="a list that holds itself"),
        pytest.param(YAML, b"a: &a {<<: *a}", 400, id="a map that is merged with itself"),
        pytest.param(YAML, b"!!python/object/apply:os.system ['true']", 400, id="a tag that makes an object"),
        pytest.param(YAML, b"{" * 100_000, 400, id="deep YAML"),
        pytest.param("application/json", b'{"a":' * 200_000, 400, id="deep JSON"),
        pytest.param("application/json", b"[" * 1_000_000, 400, id="deeper JSON"),
        pytest.param("application/json", config_map("x", data={"a": "b"})[:-1], 400, id="half an object"),
        pytest.param(
            "application/json", b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"generation":1e400}}', 400, id="a number beyond floats"
        ),
        pytest.param(
            "application/json",
            b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"generation":' + b"9" * 100_000 + b"}}",
            400,
            id="a number of many digits",
        ),
        pytest.param("application/json", b"\xff\xfe{}", 400, id="no text"),
        pytest.param("application/json", b"null", 422, id="nothing"),
        pytest.param("application/vnd.kubernetes.protobuf", b"k8s\x00" + b"\xff" * 1000, 400, id="broken protobuf"),
        pytest.param("application/vnd.kubernetes.protobuf", b"{}", 400, id="protobuf that is JSON"),
        pytest.param("application/cbor", b"\xd9\xd9\xf7\xa0", 415, id="a form that is off"),
        pytest.param("text/plain", config_map("x"), 415, id="no form at all"),
        pytest.param("multipart/form-data; boundary=x", config_map("x"), 415, id="a form of a page"),
    ],
)
async def test_a_hostile_body_is_refused(thief: Thief, content_type: str, body: bytes, status: int) -> None:
    answered = await thief.ask("POST", MAPS, {"Content-Type": content_type}, body)
    assert answered.status == status, answered.body[:300]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","name":"b"}}',
            'duplicate field \\"metadata.name\\"',
            id="a name twice",
        ),
        pytest.param(
            b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"a":"1","a":"2"}}',
            'duplicate field \\"data.a\\"',
            id="a key twice",
        ),
    ],
)
async def test_a_duplicate_field_is_an_error_with_strict_validation_and_else_a_warning(thief: Thief, body: bytes, message: str) -> None:
    strict = await thief.ask("POST", f"{MAPS}&fieldValidation=Strict", body=body)
    assert strict.status == 400
    assert message in strict.body
    warned = await thief.ask("POST", f"{MAPS}&fieldValidation=Warn", body=body)
    assert warned.status == 201
    assert "Warning: 299" in warned.headers
    last = json.loads(warned.body)
    assert last["metadata"]["name"] == "b" or last["data"] == {"a": "2"}


async def test_a_patch_that_grows_without_end_is_refused(thief: Thief) -> None:
    await thief.ask("POST", "/api/v1/namespaces/{home}/configmaps", body=config_map("grows", data={"a": "x" * 1000}))
    steps = [{"op": "copy", "from": "/data", "path": f"/data/{number}"} for number in range(10_000)]
    answered = await thief.ask(
        "PATCH",
        "/api/v1/namespaces/{home}/configmaps/grows",
        {"Content-Type": "application/json-patch+json"},
        json.dumps(steps).encode(),
    )
    assert answered.status in (400, 413, 422), answered.body[:300]
    many = [{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001
    answered = await thief.ask(
        "PATCH", "/api/v1/namespaces/{home}/configmaps/grows", {"Content-Type": "application/json-patch+json"}, json.dumps(many).encode()
    )
    assert answered.status == 413, answered.body[:300]
