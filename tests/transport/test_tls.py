"""TLS as servers really end and refuse it: an end without goodbye is no end of a body, versions, client certificates."""

from __future__ import annotations

import contextlib
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeloop.config import ClusterConfig, Credentials, Pem
from kubeloop.meta import TransportError
from kubeloop.pki import CertificateAuthority, IssuedCertificate
from kubeloop.transport import Transport
from tests.faults import authority, loopback_certificate

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\n\r\n"


def load(context: ssl.SSLContext, issued: IssuedCertificate) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "pair.pem"
        file.write_bytes(issued.certificate + issued.key)
        context.load_cert_chain(file)


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load(context, loopback_certificate())
    return context


@contextlib.contextmanager
def serving(handle: Callable[[ssl.SSLSocket], None], context: ssl.SSLContext) -> Iterator[int]:
    """A server of blocking sockets: unlike asyncio's they end without close_notify by default. Returns its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)
    ended = threading.Event()

    def accept() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                raw, _ = listener.accept()
                raw.settimeout(10)
                if ended.is_set():
                    raw.close()
                    return
                with raw, context.wrap_socket(raw, server_side=True) as secured:
                    received = b""
                    while b"\r\n\r\n" not in received and (data := secured.recv(4096)):
                        received += data
                    handle(secured)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        ended.set()
        socket.create_connection(listener.getsockname()).close()
        thread.join()
        listener.close()


def config(port: int, credentials: Credentials | None = None) -> ClusterConfig:
    ca = Pem(data=authority().certificate, field="certificate-authority-data")
    return ClusterConfig(server=f"https://127.0.0.1:{port}", ca=ca, credentials=credentials or Credentials())


async def body_of(port: int, credentials: Credentials | None = None) -> bytes:
    async with Transport(config(port, credentials), max_retries=0) as transport:
        return (await transport.request("GET", "/x")).body


@pytest.mark.parametrize(
    ("sent", "goodbye"),
    [
        pytest.param(b"", False, id="no answer"),
        pytest.param(LENGTH + b"hal", False, id="a length, without a goodbye"),
        pytest.param(LENGTH + b"hal", True, id="a length, with a goodbye"),
        pytest.param(CHUNKED + b"4\r\nhalf\r\n", False, id="chunks, without a goodbye"),
        pytest.param(CHUNKED + b"4\r\nhalf\r\n", True, id="chunks, with a goodbye"),
        pytest.param(UNTIL_CLOSE + b"half", False, id="a body until the end of the connection, without a goodbye"),
    ],
)
async def test_a_body_that_was_cut_off_is_noticed(sent: bytes, goodbye: bool) -> None:
    def handle(secured: ssl.SSLSocket) -> None:
        secured.sendall(sent)
        if goodbye:
            secured.unwrap()

    ended = "the connection ended before the answer was complete"
    with serving(handle, server_context()) as port, pytest.raises(TransportError, match=ended):
        await body_of(port)


@pytest.mark.parametrize(
    ("sent", "goodbye"),
    [
        pytest.param(LENGTH + b"full", False, id="a length"),
        pytest.param(CHUNKED + b"4\r\nfull\r\n0\r\n\r\n", False, id="chunks"),
        pytest.param(UNTIL_CLOSE + b"full", True, id="a body until the end of the connection, with its goodbye"),
    ],
)
async def test_a_body_that_is_whole_needs_no_more_than_its_framing_says(sent: bytes, goodbye: bool) -> None:
    def handle(secured: ssl.SSLSocket) -> None:
        secured.sendall(sent)
        if goodbye:
            with contextlib.suppress(OSError):
                secured.unwrap()

    with serving(handle, server_context()) as port:
        assert await body_of(port) == b"full"


@pytest.mark.parametrize("goodbye", [True, False])
async def test_a_write_is_not_sent_on_a_connection_whose_end_the_event_loop_had_no_time_to_see(goodbye: bool) -> None:
    closed = threading.Semaphore(0)

    def handle(secured: ssl.SSLSocket) -> None:
        secured.sendall(LENGTH + b"full")
        if goodbye:
            secured.setblocking(False)
            with contextlib.suppress(ssl.SSLError):
                secured.unwrap()
        secured.shutdown(socket.SHUT_RDWR)
        closed.release()

    with serving(handle, server_context()) as port:
        async with Transport(config(port)) as transport:
            for _ in range(10):
                assert (await transport.request("POST", "/x", body=b"{}")).body == b"full"
                assert closed.acquire(timeout=5)  # the event loop stands still meanwhile


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_current_versions_are_spoken(version: ssl.TLSVersion) -> None:
    context = server_context()
    context.minimum_version = context.maximum_version = version
    seen: list[str | None] = []

    def handle(secured: ssl.SSLSocket) -> None:
        seen.append(secured.version())
        secured.sendall(LENGTH + b"full")

    with serving(handle, context) as port:
        assert await body_of(port) == b"full"
    assert seen == [version.name.replace("_", ".")]


async def test_an_older_version_is_refused() -> None:
    context = server_context()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with serving(lambda _: None, context) as port, pytest.raises(TransportError, match=r"speaks only TLS older than 1\.2"):
        await body_of(port)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_certificate_is_shown_and_a_wrong_one_is_named(version: ssl.TLSVersion) -> None:
    context = server_context()
    context.minimum_version = context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority().certificate.decode())

    def user(issued: IssuedCertificate) -> Credentials:
        return Credentials(client_certificate=Pem(data=issued.certificate), client_key=Pem(data=issued.key), owner='user "jane"')

    with serving(lambda secured: secured.sendall(LENGTH + b"full"), context) as port:
        assert await body_of(port, user(authority().issue("jane", client=True))) == b"full"
        with pytest.raises(TransportError, match=r'refuses the client certificate of user "jane"|the connection ended'):
            await body_of(port, user(CertificateAuthority.create("other").issue("jane", client=True)))
        with pytest.raises(TransportError, match=r"the server wants a client certificate|the connection ended"):
            await body_of(port)
