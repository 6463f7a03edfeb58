"""Ports of pods, as sockets of this machine and within the process, by way of either server; kubectl forwards the same beside us."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import Service
from kubeloop.client import Client
from kubeloop.client.streams import ForwardingError, PortForward, StreamError
from kubeloop.meta import ApiError, NotFound, TransportError
from kubeloop.pki import CertificateAuthority
from kubeloop.serving.answer import Answer
from kubeloop.transport import Transport
from tests.client.streams.conftest import Cluster, ScriptedKubelet, echo_server
from tests.client.streams.relay import Relay

pytestmark = pytest.mark.server

SENT = b"abc" * 100_000


async def _echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes = SENT) -> bytes:
    """Everything that comes back."""

    async def send() -> None:
        writer.write(sent)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.ensure_future(send())
    async with asyncio.timeout(30):
        got = await reader.read()
        await sending
    writer.close()
    return got


async def test_connections_to_a_local_socket_reach_the_port_of_the_pod(client: Client, cluster: Cluster, node: str) -> None:
    await cluster.pod("web", node)
    async with echo_server() as port, client.pods.port_forward("web", f":{port}") as forward:
        assert [(one.address, one.remote, one.pod_port) for one in forward.ports] == [("127.0.0.1", str(port), port)]
        opened = [await asyncio.open_connection("127.0.0.1", forward.local(port)) for _ in range(3)]
        assert await asyncio.gather(*(_echoed(*one) for one in opened)) == [SENT.upper()] * 3
    await _refuses(forward)


async def test_kubectl_forwards_the_same(client: Client, cluster: Cluster, node: str) -> None:
    await cluster.pod("web", node)
    async with echo_server() as port, client.pods.port_forward("web", f":{port}") as forward:
        process = await cluster.start_kubectl("port-forward", "web", f":{port}")
        assert process.stdout is not None
        try:
            async with asyncio.timeout(30):
                found = re.search(r"127\.0\.0\.1:(\d+) -> ", (await process.stdout.readline()).decode())
            assert found
            theirs = await _echoed(*await asyncio.open_connection("127.0.0.1", int(found[1])))
            assert theirs == await _echoed(*await asyncio.open_connection("127.0.0.1", forward.local(port)))
        finally:
            process.terminate()
            await process.communicate()


async def test_a_connection_within_the_process_needs_no_socket(client: Client, cluster: Cluster, node: str) -> None:
    await cluster.pod("web", node)
    async with echo_server() as port, client.pods.port_forward("web") as forward:
        assert forward.ports == ()
        assert await _echoed(*await forward.connect(port)) == SENT.upper()
        first, second = [await forward.connect(port) for _ in range(2)]
        second[1].write(b"two")
        assert await second[0].readexactly(3) == b"TWO"
        first[1].write(b"one")
        assert await first[0].readexactly(3) == b"ONE"


async def test_connections_that_are_left_unread_delay_no_other(client: Client, cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"x" * 2_000_000)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    await cluster.pod("web", await cluster.node(kubelet))
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with client.pods.port_forward("web") as forward, echo_server() as port, asyncio.timeout(30):
            for _ in range(5):
                reader, writer = await forward.connect(server.sockets[0].getsockname()[1])
                await reader.readexactly(1)
                writer.close()
            assert await _echoed(*await forward.connect(port)) == SENT.upper()
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def _https(authority: CertificateAuthority) -> AsyncIterator[int]:
    """A server that answers one request; its port."""
    own = authority.issue("web", dns_names=("web.example",), server=True)
    from kubeloop.serving.listener import server_context

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context(own.certificate, own.key, authority.certificate))
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await server.wait_closed()


async def test_tls_runs_over_a_connection_within_the_process(client: Client, cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    await cluster.pod("web", await cluster.node(kubelet))
    authority = CertificateAuthority.create("web-ca")
    trusting = ssl.create_default_context(cadata=authority.certificate.decode())
    async with _https(authority) as port, client.pods.port_forward("web") as forward:
        reader, writer = await forward.connect(port)
        await writer.start_tls(trusting, server_hostname="web.example")
        writer.write(b"GET / HTTP/1.1\r\nHost: web.example\r\n\r\n")
        async with asyncio.timeout(30):
            assert (await reader.read()).endswith(b"hello")
        writer.close()


async def test_an_http_client_uses_the_local_socket(client: Client, cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    from aiohttp import web

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(text=request.path)

    await cluster.pod("web", await cluster.node(kubelet))
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with client.pods.port_forward("web", f":{port}") as forward, aiohttp.ClientSession() as session:
            for path in ("/one", "/two"):
                async with session.get(f"http://127.0.0.1:{forward.local(port)}{path}") as response:
                    assert await response.text() == path
    finally:
        await runner.cleanup()


async def test_a_port_that_the_pods_node_cannot_connect_to_is_an_error(
    client: Client, cluster: Cluster, node: str, closed_port: int
) -> None:
    await cluster.pod("web", node)
    async with client.pods.port_forward("web", f":{closed_port}") as forward:
        reader, writer = await forward.connect(closed_port)
        with pytest.raises(ForwardingError, match=rf'port {closed_port} of pod "web" in namespace .* an error occurred forwarding'):
            await reader.read()
        writer.close()
        # By the socket it is a connection that breaks off; the others, and those to come, are not concerned.
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local(closed_port))
        with pytest.raises(ConnectionError):
            await reader.read()
        writer.close()
        assert isinstance(forward.last_error, ForwardingError)
        async with echo_server() as port:
            assert await _echoed(*await forward.connect(port)) == SENT.upper()


async def test_q202_a_lost_connection_ends_with_an_error_and_a_stop_without(
    client: Client, cluster: Cluster, kubelet: ScriptedKubelet
) -> None:
    await cluster.pod("web", await cluster.node(kubelet))
    config = client.transport.config
    async with (
        Relay(config.server) as relay,
        Client(Transport(msgspec.structs.replace(config, server=relay.url)), namespace=cluster.namespace) as through,
        echo_server() as port,
    ):
        async with through.pods.port_forward("web", f":{port}") as forward:
            waiting = asyncio.ensure_future(forward.wait())
            forward.stop()
            await waiting
        async with through.pods.port_forward("web", f":{port}") as forward:
            reader, writer = await forward.connect(port)
            by_socket, socket_writer = await asyncio.open_connection("127.0.0.1", forward.local(port))
            for one in (writer, socket_writer):
                one.write(b"x")
            assert (await reader.readexactly(1), await by_socket.readexactly(1)) == (b"X", b"X")
            waiting = asyncio.ensure_future(forward.wait())
            relay.cut()
            with pytest.raises(TransportError, match=r'port-forward to pod "web"|pod "web" in namespace'):
                await waiting
            with pytest.raises(TransportError):
                await reader.read()
            with pytest.raises(ConnectionError):
                await by_socket.read()
            for one in (writer, socket_writer):
                one.close()
            with pytest.raises(TransportError):
                await forward.connect(port)
            await _refuses(forward)


async def _refuses(forward: PortForward) -> None:
    """The local socket is closed soon after."""
    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", forward.ports[0].local)
            except OSError:
                return
            writer.close()
            await asyncio.sleep(0)


@pytest.mark.parametrize("target", ["svc/web", "service/web", "deploy/web", "Service", "Deployment"])
async def test_services_and_deployments_lead_to_their_best_pod(
    client: Client, cluster: Cluster, kubelet: ScriptedKubelet, target: str
) -> None:
    node = await cluster.node(kubelet)
    labels = {"app": "web"}
    async with echo_server() as port:
        containers = [{"name": "main", "image": "none", "ports": [{"name": "http", "containerPort": port}]}]
        for name, where in (("waits", ""), ("runs", node)):
            more = {} if where else {"schedulingGates": [{"name": "example.com/wait"}]}
            path = await cluster.pod(name, where, containers=containers, **more)
            headers = {"Content-Type": "application/merge-patch+json"}
            await cluster.request("PATCH", path, {"metadata": {"labels": labels}}, headers=headers)
        await cluster.make(
            "services",
            {"metadata": {"name": "web"}, "spec": {"selector": labels, "ports": [{"name": "main", "port": 80, "targetPort": "http"}]}},
        )
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        deployment = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "replicas": 0, "template": template}}
        status, answer = await cluster.request("POST", f"/apis/apps/v1/namespaces/{cluster.namespace}/deployments", deployment)
        assert status == 201, answer
        meant: str | Service | Deployment = target
        if target == "Service":
            meant = await client.get(Service, "web")
        elif target == "Deployment":
            meant = await client.get(Deployment, "web")
        by_service = target.lower().startswith(("svc", "service"))
        async with client.pods.port_forward(meant, *([":80", ":main"] if by_service else [":http"])) as forward:
            assert forward.pod == "runs"
            assert {one.pod_port for one in forward.ports} == {port}
            reader, writer = await asyncio.open_connection("127.0.0.1", forward.ports[0].local)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"X"
            writer.close()


async def test_a_server_without_tunnels_is_spoken_to_by_spdy(client: Client, cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    """201: an upgrade that is refused is tried once more by SPDY."""
    await cluster.pod("web", await cluster.node(kubelet, features=["ExtendWebSocketsToKubelet"]))
    kubelet.refuses_websockets = True
    async with echo_server() as port, client.pods.port_forward("web") as forward:
        assert await _echoed(*await forward.connect(port)) == SENT.upper()
    assert [one.headers["upgrade"].lower() for one in kubelet.requests] == ["websocket", "spdy/3.1"]


@pytest.mark.parametrize(
    ("target", "ports", "error", "says"),
    [
        pytest.param("none", (80,), NotFound, 'pods "none" not found', id="a pod that is not there"),
        pytest.param("waits", (80,), StreamError, r"it is not running \(phase Pending\)", id="a pod that does not run"),
        pytest.param("web", (":http",), StreamError, 'pod "web" has no port named "http"', id="a name that no port has"),
        pytest.param("web", (":53",), StreamError, "port 53 is for UDP, and only TCP can be forwarded", id="a port for UDP"),
        pytest.param("node/x", (80,), ValueError, '"node" has no pods', id="a kind without pods"),
    ],
)
async def test_what_cannot_be_forwarded_is_named(
    client: Client, cluster: Cluster, kubelet: ScriptedKubelet, target: str, ports: tuple[int | str, ...], error: type[Exception], says: str
) -> None:
    await cluster.pod("waits", schedulingGates=[{"name": "example.com/wait"}])
    containers = [{"name": "main", "image": "none", "ports": [{"containerPort": 53, "protocol": "UDP"}]}]
    await cluster.pod("web", await cluster.node(kubelet), containers=containers)
    with pytest.raises(error, match=says):
        async with client.pods.port_forward(target, *ports):
            pass


async def test_a_local_port_that_is_taken_is_named(client: Client, cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    await cluster.pod("web", await cluster.node(kubelet))
    async with echo_server() as port:
        with pytest.raises(StreamError, match=rf"cannot listen on local port {port} at 127.0.0.1"):
            async with client.pods.port_forward("web", f"{port}:80"):
                pass


async def test_a_kubelets_refusal_names_the_pod(client: Client, cluster: Cluster, kubelet: ScriptedKubelet) -> None:
    await cluster.pod("web", await cluster.node(kubelet))
    kubelet.refusal = Answer(500, body=b"no network")
    with pytest.raises(ApiError, match=r'no network.*port-forward to pod "web"'):
        async with client.pods.port_forward("web"):
            pass


@pytest.fixture
async def closed_port() -> int:
    """A port of this machine where nothing listens."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    return port
