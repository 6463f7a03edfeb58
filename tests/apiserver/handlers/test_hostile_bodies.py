"""Bodies that cost their sender little must not cost the server much: it answers 4xx, within bounded memory, and goes on."""

import json
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeloop.client import Client
from kubeloop.meta.errors import ApiError
from kubeloop.testing import LocalCluster

pytestmark = pytest.mark.embedded

YAML, JSON = "application/yaml", "application/json"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
#: Address space in bytes beyond what the server has when it is ready.
ALLOWED = 512 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=False) as started:
        size = int(Path(f"/proc/{started.pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(started.pid, resource.RLIMIT_AS, (size + ALLOWED, size + ALLOWED))
        yield started


def _aliases(merged: bool) -> bytes:
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata: {name: x}", "a0: &a0 {x: y}"]
    for level in range(1, 30):
        references = ",".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} {{'<<': [{references}]}}" if merged else f"a{level}: &a{level} [{references}]")
    return "\n".join(lines).encode()


def _config_map(data: bytes) -> bytes:
    return b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":' + data + b"}"


def _metadata(inner: bytes) -> bytes:
    return b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x",' + inner + b"}}"


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        pytest.param(YAML, _aliases(merged=False), 400, id="aliases of aliases"),
        pytest.param(YAML, _aliases(merged=True), 400, id="merged maps of merged maps"),
        pytest.param(YAML, b"a: " + b"[" * 1_000_000, 400, id="a million open lists in YAML"),
        pytest.param(YAML, b"a: [" + b"a," * 1_400_000 + b"]", 400, id="a million values in YAML"),
        pytest.param(
            YAML,
            b"apiVersion: v1\nkind: ConfigMap\nmetadata: {generation: 0x" + b"f" * 2_000_000 + b"}",
            400,
            id="a long hexadecimal number",
        ),
        pytest.param(JSON, _config_map(b"[" * 1_000_000 + b"]" * 1_000_000), 400, id="a million nested lists"),
        pytest.param(JSON, _config_map(b'{"a":' * 400_000 + b"1" + b"}" * 400_000), 400, id="many nested maps"),
        pytest.param(JSON, _metadata(b'"generation":' + b"9" * 2_500_000), 400, id="a number of millions of digits"),
        pytest.param(JSON, _metadata(b'"generation":1e999999999'), 400, id="a number beyond all floats"),
        pytest.param(JSON, _config_map(b"[" + b"[]," * 900_000 + b"[]]"), 400, id="a million empty lists"),
        pytest.param(
            JSON, _metadata(b'"labels":{' + b",".join(b'"!%d":"!"' % n for n in range(50_000)) + b"}"), 422, id="many faults at once"
        ),
        pytest.param(JSON, _config_map(b'{"a":"' + b"a" * 4_000_000 + b'"}'), 413, id="more than 3 MiB"),
    ],
)
async def test_a_body_is_refused(cluster: LocalCluster, content_type: str, body: bytes, status: int) -> None:
    async with Client.from_config(cluster.kubeconfig) as client:
        with pytest.raises(ApiError) as refused:
            await client.transport.request("POST", CONFIGMAPS, body=body, content_type=content_type)
        assert refused.value.status.code == status
        assert (await client.transport.request("GET", "/readyz")).status == 200


async def test_a_patch_that_copies_a_parent_into_its_child_is_refused(cluster: LocalCluster) -> None:
    async with Client.from_config(cluster.kubeconfig) as client:
        await client.transport.request("POST", CONFIGMAPS, body=b'{"metadata":{"name":"y","annotations":{"a":"b"}}}')
        patch = [{"op": "copy", "from": "/metadata", "path": f"/metadata/x{n}"} for n in range(60)]
        with pytest.raises(ApiError) as refused:
            await client.transport.request(
                "PATCH", f"{CONFIGMAPS}/y", body=json.dumps(patch).encode(), content_type="application/json-patch+json"
            )
        assert refused.value.status.code == 422
        assert (await client.transport.request("GET", "/readyz")).status == 200
