"""Errors derive from those of Python that callers catch already; a deadline that passes inside a wait is the reported one."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.api.core.v1 import Pod
from kubeloop.cache import UnknownCluster, UnknownIndex
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.config import ClusterConfig
from kubeloop.meta import ConnectionRefused, DeadlineError, KubeloopError, TransportError, UnknownKind, UntrustedCertificate
from kubeloop.transport import Transport
from tests.faults import SILENCE, FaultServer


@pytest.mark.parametrize(
    ("error", "base"),
    [
        pytest.param(DeadlineError, TimeoutError, id="a deadline is a timeout"),
        pytest.param(UnknownKind, LookupError, id="an unknown kind is a failed look-up"),
        pytest.param(UnknownCluster, LookupError, id="an unknown cluster is a failed look-up"),
        pytest.param(UnknownIndex, LookupError, id="an unknown index is a failed look-up"),
        pytest.param(TransportError, ConnectionError, id="a request without an answer is a connection error"),
        pytest.param(UntrustedCertificate, ConnectionError, id="a certificate that is not trusted is a connection error"),
        pytest.param(ConnectionRefused, ConnectionRefusedError, id="a refused connection is one for Python too"),
    ],
)
def test_an_error_is_caught_by_its_name_in_python(error: type[KubeloopError], base: type[Exception]) -> None:
    with pytest.raises(base, match=r"^the text$") as caught:
        raise error("the text")
    assert isinstance(caught.value, KubeloopError)


async def test_a_server_that_is_not_there_is_a_refused_connection() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    async with Client(Transport(ClusterConfig(server=f"http://127.0.0.1:{port}"))) as client:
        with pytest.raises(ConnectionRefusedError, match="connection refused: nothing listens there"):
            await client.get(Pod, "a")


async def test_a_list_that_is_late_ends_a_watch_with_its_own_error() -> None:
    async with (
        FaultServer(SILENCE) as server,
        Client(Transport(server.config(), timeout=0.05)) as client,
        client.watch(Pod, timeout=30, namespace=ALL_NAMESPACES) as events,
    ):
        with pytest.raises(DeadlineError, match=r"no answer within 0\.05 s .list pods"):
            await anext(aiter(events))


async def test_a_list_that_is_late_ends_a_wait_with_its_own_error() -> None:
    async with FaultServer(SILENCE) as server, Client(Transport(server.config(), timeout=0.05)) as client:
        with pytest.raises(DeadlineError, match=r"no answer within 0\.05 s .list pods"):
            await client.wait_for_events(Pod, lambda event: event.type == "DELETED", timeout=30, namespace=ALL_NAMESPACES)
