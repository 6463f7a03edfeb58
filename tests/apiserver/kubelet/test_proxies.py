"""Requests that go through the server to pods, services and nodes, on both servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from kubeloop.serving.answer import Aborted, Answer, Duplex, Hijack, Reply, StreamingResponse
from kubeloop.serving.listener import Listener
from kubeloop.serving.request import Request
from tests.apiserver.kubelet.conftest import Cluster, own_address
from tests.apiserver.kubelet.scripted import ScriptedKubelet

pytestmark = pytest.mark.server

_PAGE = b'<html><!-- /a --><a href="/x?y=1&amp;z">x</a><img src=/i.png alt="/no"><a href="rel">r</a><a href="http://other/x">o</a></html>'


class Backend:
    """A web server in a pod; ``answer`` is what it says."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer: Reply | None = None
        self._listener = Listener(self._serve, None, host="0.0.0.0")

    @property
    def port(self) -> int:
        return self._listener.port

    async def start(self) -> None:
        await self._listener.bind()
        await self._listener.serve()

    async def stop(self) -> None:
        await self._listener.close()

    async def _serve(self, request: Request) -> Reply:
        body = await request.read_body(1 << 30)
        query = f"?{request.query_string}" if request.query_string else ""
        self.requests.append((request.method, request.path + query, {n.lower(): v for n, v in request.headers.items()}, body))
        if self.answer is not None:
            return self.answer
        return Answer(200, body=b'{"b":1,"a":2}', content_type="application/json", headers=[("X-From", "pod"), ("Keep-Alive", "x")])


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    made = Backend()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def pod(cluster: Cluster, kubelet: ScriptedKubelet, backend: Backend) -> str:
    """A pod with the backend in it; its path up to the name."""
    ports = [{"containerPort": backend.port}]
    made = await cluster.pod("web", await cluster.node(kubelet), containers=[{"name": "main", "image": "none", "ports": ports}])
    await cluster.address(made, own_address())
    return made


async def test_a_pod_answers_at_its_first_port(cluster: Cluster, backend: Backend, pod: str) -> None:
    async with cluster.session.get(f"{pod}/proxy/a/b?x=1&y=2", headers={"X-Own": "1", "Accept": "text/odd"}) as answer:
        assert (answer.status, await answer.text()) == (200, '{"b":1,"a":2}')
        assert (answer.headers["X-From"], answer.headers["Content-Type"]) == ("pod", "application/json")
        assert "Keep-Alive" not in answer.headers
    method, path, headers, _ = backend.requests[-1]
    assert (method, path) == ("GET", "/a/b?x=1&y=2")
    assert (headers["x-own"], headers["x-forwarded-for"], headers["x-forwarded-uri"]) == ("1", "127.0.0.1", f"{pod}/proxy/a/b")
    assert "authorization" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_any_method_goes_through_with_its_body(cluster: Cluster, backend: Backend, pod: str, method: str, chunked: bool) -> None:
    sent = b"0123456789" * 100_000

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(sent), 300_000):
            yield sent[at : at + 300_000]

    async with cluster.session.request(method, f"{pod}/proxy/x", data=pieces() if chunked else sent) as answer:
        assert answer.status == 200
    assert (backend.requests[-1][0], len(backend.requests[-1][3])) == (method, len(sent))


async def test_a_path_that_ends_with_proxy_is_sent_to_where_links_work(cluster: Cluster, pod: str) -> None:
    async with cluster.session.get(f"{pod}/proxy?x=1", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (301, f"{pod}/proxy/?x=1")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/", "/", id="the root"),
        pytest.param("/a/", "/a/", id="a trailing slash stays"),
        pytest.param("//a///b", "/a/b", id="empty parts go"),
        pytest.param("/a%20b/%C3%A4", "/a b/ä", id="escapes are kept"),
    ],
)
async def test_paths(cluster: Cluster, backend: Backend, pod: str, path: str, expected: str) -> None:
    from yarl import URL

    url = URL(f"{cluster.server.config.server}{pod}/proxy{path}", encoded=True)
    async with aiohttp.ClientSession(connector=cluster.session.connector, connector_owner=False) as session, session.get(url) as answer:
        assert answer.status == 200
    assert backend.requests[-1][1] == expected


async def test_a_redirect_leads_through_the_server(cluster: Cluster, backend: Backend, pod: str) -> None:
    for sent, expected in (("/other/?x", f"{pod}/proxy/other/?x"), ("http://elsewhere/x", "http://elsewhere/x"), ("next", "next")):
        backend.answer = Answer(302, body=b"", headers=[("Location", sent)])
        async with cluster.session.get(f"{pod}/proxy/x", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, expected)


@pytest.mark.parametrize("packed", [False, True])
async def test_links_of_a_page_lead_through_the_server(cluster: Cluster, backend: Backend, pod: str, packed: bool) -> None:
    import gzip

    headers = [("Access-Control-Allow-Origin", "*"), *([("Content-Encoding", "gzip")] if packed else [])]
    backend.answer = Answer(200, body=gzip.compress(_PAGE) if packed else _PAGE, content_type="text/html; charset=utf-8", headers=headers)
    async with cluster.session.get(f"{pod}/proxy/x") as answer:
        page = await answer.text()
        assert "Access-Control-Allow-Origin" not in answer.headers
    assert page == (
        f'<html><!-- /a --><a href="{pod}/proxy/x?y=1&amp;z">x</a><img src="{pod}/proxy/i.png" alt="/no"><a href="rel">r</a>'
        '<a href="http://other/x">o</a></html>'
    )


async def test_an_answer_that_breaks_off_does_not_look_whole(cluster: Cluster, backend: Backend, pod: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"x" * 1000
        await asyncio.sleep(0.05)
        raise Aborted("as commanded")

    backend.answer = StreamingResponse(chunks(), content_type="text/plain")
    with pytest.raises(aiohttp.ClientPayloadError):
        async with cluster.session.get(f"{pod}/proxy/x") as answer:
            await answer.read()


async def test_an_upgrade_goes_through_to_a_pod(cluster: Cluster, backend: Backend, pod: str) -> None:
    async def echo(duplex: Duplex) -> None:
        while data := await duplex.read():
            await duplex.write(data.upper())

    backend.answer = Hijack(echo, [("Connection", "Upgrade"), ("Upgrade", "shout")])
    config = cluster.server.config
    host, port = config.server.removeprefix("https://").split(":")
    from tests.apiserver.kubelet.conftest import tls_of

    reader, writer = await asyncio.open_connection(host, int(port), ssl=await tls_of(config))
    try:
        writer.write(f"GET {pod}/proxy/x HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n".encode())
        async with asyncio.timeout(10):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert head.startswith("http/1.1 101 ")
            assert "\r\nupgrade: shout\r\n" in head
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"HELLO"
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        pytest.param("pods/none/proxy/", 404, 'pods "none" not found', id="no such pod"),
        pytest.param("pods/a:b:c:d/proxy/", 400, 'invalid pod request "a:b:c:d"', id="no reference to a pod"),
        pytest.param("pods/ftp:web:80/proxy/", 400, 'invalid pod request "ftp:web:80"', id="a scheme that is not proxied"),
        pytest.param("pods/waiting/proxy/", 400, "address not allowed", id="a pod without an address"),
        pytest.param("pods/web/proxy/?dryRun=All", 400, "dryRun is not supported", id="no dry run of others' requests"),
        pytest.param("services/bare/proxy/", 404, 'services "bare" not found', id="a service without endpoints"),
        pytest.param("services/empty/proxy/", 503, 'no endpoints available for service "empty"', id="endpoints without addresses"),
        pytest.param("services/full:81/proxy/", 503, 'no service port 81 found for service "full"', id="a port that the service has not"),
        pytest.param("services/full/proxy/", 503, 'no endpoints available for service "full"', id="named ports want a name"),
        pytest.param("services/x:full:80/proxy/", 400, 'invalid service request "x:full:80"', id="no reference to a service"),
    ],
)
async def test_a_request_that_leads_nowhere(cluster: Cluster, backend: Backend, pod: str, path: str, status: int, message: str) -> None:
    await cluster.pod("waiting", schedulingGates=[{"name": "example.com/wait"}])
    await _services(cluster, backend)
    met, answer = await cluster.request("GET", f"/api/v1/namespaces/{cluster.namespace}/{path}")
    assert (met, answer["message"]) == (status, message)


async def test_a_backend_that_is_not_there_is_named(cluster: Cluster, pod: str) -> None:
    met, answer = await cluster.request("GET", f"{pod}:1/proxy/")
    why = f"dial tcp {own_address()}:1: connect: connection refused"
    assert (met, answer["reason"], answer["message"]) == (503, "ServiceUnavailable", f"error trying to reach service: {why}")


@pytest.mark.parametrize("reference", ["full:80", "full:http", "http:full:http"])
async def test_a_service_is_reached_at_its_endpoints(cluster: Cluster, backend: Backend, pod: str, reference: str) -> None:
    await _services(cluster, backend)
    path = f"/api/v1/namespaces/{cluster.namespace}/services/{reference}/proxy/x"
    async with cluster.session.get(path) as answer:
        assert (answer.status, answer.headers["X-From"]) == (200, "pod")
    assert backend.requests[-1][1] == "/x"


async def test_endpoints_that_are_no_pods_are_not_reached(cluster: Cluster, backend: Backend, pod: str) -> None:
    await _services(cluster, backend, target=None)
    met, answer = await cluster.request("GET", f"/api/v1/namespaces/{cluster.namespace}/services/full:http/proxy/x")
    assert (met, answer["message"]) == (503, 'no endpoints available for service "full:http"')


async def test_a_nodes_kubelet_is_reached_over_tls(cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    name = await cluster.node(kubelet, address=own_address())
    for reference in (name, f"{name}:{kubelet.port}"):
        async with cluster.session.get(f"/api/v1/nodes/{reference}/proxy/stats?only=x") as answer:
            assert (answer.status, answer.headers["X-From"]) == (200, "kubelet")
            assert json.loads(await answer.text())["path"] == "/stats"


async def test_a_nodes_other_ports_are_reached_without_its_credentials(
    cluster: Cluster, backend: Backend, kubelet: ScriptedKubelet
) -> None:
    name = await cluster.node(kubelet, address=own_address())
    async with cluster.session.get(f"/api/v1/nodes/{name}:{backend.port}/proxy/x") as answer:
        assert (answer.status, answer.headers["X-From"]) == (200, "pod")


async def test_the_servers_own_machine_is_not_reached_through_a_node(cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    name = await cluster.node(kubelet)
    met, answer = await cluster.request("GET", f"/api/v1/nodes/{name}/proxy/x")
    assert (met, answer["message"]) == (400, "address not allowed")
    met, answer = await cluster.request("GET", "/api/v1/nodes/none/proxy/x")
    assert (met, answer["message"]) == (404, 'nodes "none" not found')


async def _services(cluster: Cluster, backend: Backend, target: str | None = "web") -> None:
    port: dict[str, Any] = {"port": 80, "name": "http"}
    for name in ("bare", "empty", "full"):
        await cluster.make("services", {"metadata": {"name": name}, "spec": {"clusterIP": "None", "ports": [port]}})
    await cluster.make("endpoints", {"metadata": {"name": "empty"}, "subsets": []})
    address: dict[str, Any] = {"ip": own_address()}
    if target is not None:
        address["targetRef"] = {"kind": "Pod", "namespace": cluster.namespace, "name": target}
    subsets = [{"addresses": [address], "ports": [{"port": backend.port, "name": "http"}]}]
    await cluster.make("endpoints", {"metadata": {"name": "full"}, "subsets": subsets})
