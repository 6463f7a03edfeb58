"""The kind and version in the body of a custom object, on both servers."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator

import pytest

from kubeloop.meta import ApiError
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
async def group(server: ServerUnderTest) -> AsyncIterator[str]:
    """Of a definition of Foos, which are served."""
    name = f"bodies-{secrets.token_hex(4)}.example.com"
    schema = {"openAPIV3Schema": {"type": "object"}}
    spec = {
        "group": name,
        "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"foos.{name}"}, "spec": spec}
    async with Transport(server.config) as transport, asyncio.timeout(20):
        await transport.request("POST", DEFINITIONS, body=json.dumps(body).encode())
        while True:
            try:
                await transport.request("GET", f"/apis/{name}/v1/foos")
                break
            except ApiError:
                await asyncio.sleep(0.05)
        yield name
        await transport.request("DELETE", f"{DEFINITIONS}/foos.{name}")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            '{"metadata": {"name": "c"}}',
            "the object provided is unrecognized (must be of type Foo): Object 'Kind' is missing in "
            '\'{"metadata": {"name": "c"}}\' ({"metadata": {"name": "c"}})',
            id="neither kind nor version",
        ),
        pytest.param(
            '{"kind": "", "apiVersion": "GROUP/v1"}',
            "the object provided is unrecognized (must be of type Foo): Object 'Kind' is missing in "
            '\'{"kind": "", "apiVersion": "GROUP/v1"}\' ({"kind": "", "apiVersion": "bo ...)',
            id="no kind",
        ),
        pytest.param(
            '{"kind": "Foo", "metadata": {"name": "c"}}',
            "the API version in the data () does not match the expected API version (GROUP/v1)",
            id="no version",
        ),
        pytest.param(
            "null",
            "the object provided is unrecognized (must be of type Foo): Object 'Kind' is missing in 'null' (6e756c6c)",
            id="nothing at all",
        ),
    ],
)
async def test_a_body_is_refused_without(server: ServerUnderTest, namespace: str, group: str, body: str, message: str) -> None:
    path = f"/apis/{group}/v1/namespaces/{namespace}/foos"
    sent = body.replace("GROUP", group).encode()
    async with Transport(server.config) as transport:
        for method, where in (("POST", path), ("PUT", f"{path}/c")):
            with pytest.raises(ApiError) as caught:
                await transport.request(method, where, body=sent)
            status = caught.value.status
            assert (status.code, status.reason, status.message) == (400, "BadRequest", message.replace("GROUP", group))
