"""HTTP requests to pods and services through either server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kubeloop.api.core.v1 import Pod, Service
from kubeloop.client import Client
from kubeloop.client.streams import OutputTooLarge, StreamError
from kubeloop.client.streams import pod_proxy as proxying_module
from kubeloop.meta import NotFound, ServiceUnavailable
from kubeloop.serving.answer import Answer, StreamingResponse
from tests.apiserver.kubelet.conftest import own_address
from tests.apiserver.kubelet.test_proxies import Backend, backend
from tests.client.streams.conftest import Cluster, ScriptedKubelet
from tests.client.streams.peer import Peer, UpgradeRequest

__all__ = ["backend"]

pytestmark = pytest.mark.server


@pytest.fixture
async def web(cluster: Cluster, kubelet: ScriptedKubelet, backend: Backend) -> str:
    """A pod, and a service of the same name, with the backend in it."""
    ports = [{"name": "http", "containerPort": backend.port}]
    made = await cluster.pod("web", await cluster.node(kubelet), containers=[{"name": "main", "image": "none", "ports": ports}])
    await cluster.address(made, own_address())
    await cluster.make("services", {"metadata": {"name": "web"}, "spec": {"ports": [{"name": "http", "port": 80}]}})
    reference = {"kind": "Pod", "name": "web", "namespace": cluster.namespace}
    addresses = [{"ip": own_address(), "targetRef": reference}]
    subsets = [{"addresses": addresses, "ports": [{"name": "http", "port": backend.port}]}]
    await cluster.make("endpoints", {"metadata": {"name": "web"}, "subsets": subsets})
    return "web"


async def test_a_pod_answers_a_request(client: Client, backend: Backend, web: str) -> None:
    answer = await client.pods.proxy(web, "/a b/\u00e4%", query={"x": "1&2", "y": ["1", "2"]}, headers={"X-Own": "1"})
    assert (answer.status, answer.body, answer.headers["X-From"]) == (200, b'{"b":1,"a":2}', "pod")
    method, path, headers, body = backend.requests[-1]
    assert (method, path, headers["x-own"], body) == ("GET", "/a b/\u00e4%?x=1%262&y=1&y=2", "1", b"")


async def test_a_body_goes_with_it(client: Client, backend: Backend, web: str) -> None:
    await client.pods.proxy(web, "/in", method="POST", port=backend.port, body=b"x" * 300_000, content_type="text/plain")
    method, path, headers, body = backend.requests[-1]
    assert (method, path, headers["content-type"], len(body)) == ("POST", "/in", "text/plain", 300_000)


@pytest.mark.parametrize("port", [80, "http"])
async def test_a_service_leads_to_a_pod_of_its(client: Client, cluster: Cluster, backend: Backend, web: str, port: int | str) -> None:
    assert (await client.pods.proxy("svc/web", "/x", port=port)).status == 200
    assert (await client.pods.proxy(await client.get(Service, "web"), "/y", port=port)).status == 200
    assert (await client.pods.proxy(await client.get(Pod, "web"), "/z")).status == 200
    assert [path for _, path, *_ in backend.requests] == ["/x", "/y", "/z"]
    beside = await cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{cluster.namespace}/services/web:{port}/proxy/raw")
    assert beside.out == '{"b":1,"a":2}'


async def test_an_answer_is_read_as_it_comes_and_left_when_one_likes(client: Client, backend: Backend, web: str) -> None:
    left = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            left.set()

    backend.answer = StreamingResponse(endless(), content_type="text/plain")
    async with client.pods.proxy(web) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain")
        assert await anext(aiter(answer.chunks())) == b"first"
    async with asyncio.timeout(20):
        await left.wait()


async def test_what_the_program_refuses_is_raised_with_its_code_and_words(client: Client, backend: Backend, web: str) -> None:
    backend.answer = Answer(404, body=b"no such page", content_type="text/plain")
    with pytest.raises(NotFound, match="no such page") as refused:
        await client.pods.proxy(web, "/none")
    assert refused.value.status.code == 404
    backend.answer = Answer(503, body=b"busy", headers=[("Retry-After", "1")], content_type="text/plain")
    with pytest.raises(ServiceUnavailable, match="busy"):
        await client.pods.proxy(web, "/once", method="POST", body=b"")
    assert [path for _, path, *_ in backend.requests] == ["/none", "/once"]


async def test_a_large_answer_is_bounded(client: Client, backend: Backend, web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxying_module, "MAX_BODY", 10)
    with pytest.raises(OutputTooLarge, match="GET /x through the API server: the answer is larger than 10 bytes"):
        await client.pods.proxy(web, "/x")


@pytest.mark.parametrize(
    ("target", "path", "port", "error", "says"),
    [
        pytest.param("web", "/a/../b", None, ValueError, "are resolved on the way", id="a way up"),
        pytest.param("web", "/a?x=1", None, ValueError, "by query=", id="a query in the path"),
        pytest.param("web/x", "/", None, ValueError, '"web" has no pods', id="a name of two parts"),
        pytest.param("web:80", "/", None, ValueError, "give the port by port=", id="a port in the name"),
        pytest.param("deploy/web", "/", None, StreamError, "only pods and services can be reached", id="a kind that has no proxy"),
        pytest.param("web", "/", "a/b", ValueError, 'port "a/b" cannot be used in a path', id="a port that leads elsewhere"),
    ],
)
async def test_what_would_arrive_elsewhere_is_refused_before_it_is_sent(
    target: str, path: str, port: str | None, error: type[Exception], says: str
) -> None:
    async def serve(call: UpgradeRequest) -> None:
        call.say("200 OK")

    async with Peer(serve) as peer:
        with pytest.raises(error, match=says):
            await peer.client.pods.proxy(target, path, port=port)
        assert not peer.calls
