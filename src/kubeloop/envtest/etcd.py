"""The ``etcd`` that envtest starts: it answers health checks and locks the data directory, in which the API server stores its objects.

It is not etcd: it stores no keys, and rejects clients of etcd's API. It imports only the standard library, to start quickly.
"""

from __future__ import annotations

import ipaddress
import json
import os
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kubeloop import __version__
from kubeloop.envtest.etcd_flags import ETCD
from kubeloop.envtest.flags import CommandLine, FlagError, parse_bool

#: Path at which the API server's launcher requests the folder of the store; specific to kubeloop.
STORE_PATH: Final = "/kubeloop/store"

_REFUSAL: Final = "this etcd is kubeloop's launcher for envtest: it stores no keys and has no etcd API; talk to the API server instead"
_HEALTHY: Final = b'{"health":"true","reason":""}'
_LOCK: Final = "kubeloop-etcd.lock"
#: Folder that a real etcd makes in its data directory.
_MEMBER: Final = "member"

#: RFC 9113, section 3.4: the first bytes of a gRPC client.
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _SETTINGS, _PING = 1, 4, 6
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
_MAX_FRAME: Final = 1 << 20
#: gRPC status code UNIMPLEMENTED.
_UNIMPLEMENTED: Final = "12"

#: Seconds for which a connection may be idle.
_IDLE: Final = 60.0
_MAX_HEAD: Final = 16 * 1024
#: Seconds between checks that the parent process still runs.
_PARENT_POLL: Final = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the launcher of etcd until SIGTERM, SIGINT or the end of the parent process. Return 0, or 1 with the reason on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        line = ETCD.parse(arguments)
        if line.values.get("help"):
            print(ETCD.help())
            return 0
        if line.values.get("version"):
            print(f"etcd Version: 3.6 (kubeloop {__version__}: {_REFUSAL})")
            return 0
        if line.harmless:
            _log(f"accepted without effect: {line.harmless_text()}")
        return _serve(line)
    except (FlagError, OSError) as error:
        _log(f"cannot start: {error}")
        return 1


def _serve(line: CommandLine) -> int:
    parent = os.getppid()
    folder = Path(line.last("data-dir") or "default.etcd").absolute()
    lock = _lock(folder)
    store = json.dumps({"dataDir": str(folder), "fsync": not parse_bool(line.last("unsafe-no-fsync", "false"))}).encode()
    wake, waker = socket.socketpair()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: None)
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    listeners = [_listen(address) for address in _addresses(line)]
    with selectors.DefaultSelector() as selector:
        selector.register(wake, selectors.EVENT_READ)
        for listener in listeners:
            selector.register(listener, selectors.EVENT_READ)
        _log(f"serving health checks at {', '.join(_shown(one) for one in listeners)}, data directory {folder}; {_REFUSAL}")
        while os.getppid() == parent:
            for key, _ in selector.select(_PARENT_POLL):
                if key.fileobj is wake:
                    return 0
                connection, _address = key.fileobj.accept()  # type: ignore[union-attr]  # all others are sockets
                threading.Thread(target=_answer, args=(connection, store), daemon=True).start()
    _log(f"the program that started this one (process {parent}) has ended; ending")
    os.close(lock)
    return 0


def _addresses(line: CommandLine) -> Iterator[tuple[str, int]]:
    """Yield the addresses to listen on. Raises FlagError for URLs that are not local or need TLS."""
    for url in line.all("listen-client-urls") or ("http://localhost:2379",):
        parts = urlsplit(url)
        host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
        if parts.scheme != "http":
            raise FlagError(f"--listen-client-urls={url}: kubeloop's etcd speaks http only; write http://127.0.0.1:PORT")
        try:
            loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise FlagError(f"--listen-client-urls={url}: kubeloop's etcd serves this machine only; write http://127.0.0.1:PORT")
        try:
            yield host, parts.port or 2379
        except ValueError:
            raise FlagError(f"--listen-client-urls={url}: the port is not a number from 0 to 65535") from None


def _listen(address: tuple[str, int]) -> socket.socket:
    """Listen on an address. Raise FlagError if it is in use."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        return socket.create_server(address, family=family, backlog=128)
    except OSError as error:
        raise FlagError(
            f"listen tcp {address[0]}:{address[1]}: {os.strerror(error.errno or 0)}; end the program that uses the port, or choose another"
        ) from None


def _lock(folder: Path) -> int:
    """Lock the data directory until the process ends.

    Raises:
        FlagError: Another process has locked the directory, or the directory contains the data of a real etcd.
        OSError: The directory cannot be made or written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (folder / _MEMBER).exists():
        raise FlagError(f"--data-dir={folder} holds the data of a real etcd, which kubeloop cannot read; name another directory")
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        import fcntl  # POSIX only; the module is imported on every system

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FlagError(f"--data-dir={folder} is in use by another etcd of kubeloop; end that one, or name another directory") from None
    return handle


def _answer(connection: socket.socket, store: bytes) -> None:
    """Serve the requests of one connection, in a thread."""
    with connection:
        connection.settimeout(_IDLE)
        try:
            if connection.recv(len(_PREFACE), socket.MSG_PEEK)[:3] == _PREFACE[:3]:
                _refuse_grpc(connection)
            else:
                _answer_http(connection, store)
        except OSError:
            return  # the client has disconnected, or is idle


def _answer_http(connection: socket.socket, store: bytes) -> None:
    """Serve HTTP/1.1 requests without bodies. A request with a body is rejected and ends the connection."""
    kept = b""
    while True:
        while b"\r\n\r\n" not in kept:
            received = connection.recv(4096)
            if not received or len(kept) > _MAX_HEAD:
                return
            kept += received
        head, _, kept = kept.partition(b"\r\n\r\n")
        request, *fields = head.decode("latin-1").split("\r\n")
        names = {name.strip().lower(): value.strip().lower() for name, _, value in (field.partition(":") for field in fields)}
        method, path, _protocol = (*request.split(" "), "", "")[:3]
        path = path.partition("?")[0]
        last = "content-length" in names or "transfer-encoding" in names or names.get("connection") == "close"
        if method == "GET" and path == "/health":
            status, body = "200 OK", _HEALTHY
        elif method == "GET" and path in ("/livez", "/readyz"):
            status, body = "200 OK", b"ok"
        elif method == "GET" and path == STORE_PATH:
            status, body = "200 OK", store
        else:
            status, body = "501 Not Implemented", f"{_REFUSAL}\n".encode()
        kind = "application/json" if body.startswith(b"{") else "text/plain; charset=utf-8"
        ending = "Connection: close\r\n" if last else ""
        answer = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{ending}\r\n".encode()
        connection.sendall(answer + (b"" if method == "HEAD" else body))
        if last:
            return


def _refuse_grpc(connection: socket.socket) -> None:
    """Respond to each call with UNIMPLEMENTED and the reason, which a client of etcd's API reports.

    Sources: RFC 9113 (frames), RFC 7541 (header fields without compression), gRPC over HTTP/2 ("Trailers-Only").
    """
    stream = connection.makefile("rb")
    if stream.read(len(_PREFACE)) != _PREFACE:
        return
    connection.sendall(_frame(_SETTINGS, 0, 0))
    fields = (("content-type", "application/grpc"), ("grpc-status", _UNIMPLEMENTED), ("grpc-message", _REFUSAL))
    trailers = b"\x88" + b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields)  # 0x88: ":status: 200"
    while len(head := stream.read(9)) == 9:
        length, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
        if length > _MAX_FRAME:
            return
        payload = stream.read(length)
        if kind == _SETTINGS and not flags & _ACK:
            connection.sendall(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            connection.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind == _HEADERS:
            connection.sendall(_frame(_HEADERS, _END_STREAM | _END_HEADERS, int.from_bytes(head[5:]) & 0x7FFFFFFF, trailers))


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _text(text: str) -> bytes:
    """Return a string literal of RFC 7541, section 5.2, without Huffman code."""
    data = text.encode()
    return (bytes((len(data),)) if len(data) < 127 else bytes((127, len(data) - 127))) + data


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _log(text: str) -> None:
    print(f"kubeloop etcd: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
