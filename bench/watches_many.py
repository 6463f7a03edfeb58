"""What 1,000 concurrent watches in one process take: memory of each beside bare TLS connections, CPU to open them and to read an event.

python -m bench.watches_many            1,000 watches over TLS
python -m bench.watches_many --kind socket|asyncio|transport|client --count 100

The server is a separate process that sends every watch the same frames on command. Memory is the resident set of the client
process after a collection and a trim, over what it was before the first watch; what the kernel holds of a socket is not in it. Readers
hold the last event of each watch, as readers do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

KINDS = ("socket", "asyncio", "transport", "client")
#: KiB for each watch beyond its socket.
TARGET = 50
_FRAMES = 20
_PAGE = os.sysconf("SC_PAGE_SIZE") // 1024


def _frame(number: int) -> bytes:
    labels = {f"label-{place}": "x" * 40 for place in range(40)}
    metadata = {"name": "one", "namespace": "default", "uid": "u", "resourceVersion": str(number), "labels": labels}
    return json.dumps({"type": "MODIFIED", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}}).encode() + b"\n"


async def serve(certificate: Path) -> None:
    """Until stdin ends: each line on it sends the next frame to every watch."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each client that has left
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    writers: list[asyncio.StreamWriter] = []

    async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            writers.append(writer)
            await reader.read()
        writer.transport.abort()

    server = await asyncio.start_server(watch, "127.0.0.1", 0, ssl=context, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    number = 1
    while await orders.readline():
        number += 1
        frame = _frame(number)
        for writer in writers:
            writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
    server.close()


def _resident() -> int:
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def plain(count: int, port: int, authority: bytes) -> dict[str, float]:
    """What the sockets alone take: blocking ones with TLS, as the standard library makes them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.decode())

    def connect() -> ssl.SSLSocket:
        made = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1")
        made.sendall(b"GET / HTTP/1.1\r\n\r\n")
        made.recv(1024)
        return made

    with contextlib.ExitStack() as stack:
        stack.enter_context(connect())
        before, cpu = _resident(), _cpu()
        for _ in range(count):
            stack.enter_context(connect())
        used = (_resident() - before) / count
        return {"idle_kib": used, "used_kib": used, "opening_ms": (_cpu() - cpu) * 1000 / count, "event_us": 0.0}


async def measure(kind: str, count: int, port: int, authority: bytes, orders: int) -> dict[str, float]:
    """Open the watches, have each read ``_FRAMES`` events, and give what that took."""
    from kubeloop.api.core.v1 import ConfigMap
    from kubeloop.client import Client
    from kubeloop.config import ClusterConfig, Pem
    from kubeloop.transport import Transport

    config = ClusterConfig(server=f"https://127.0.0.1:{port}", ca=Pem(data=authority))
    seen, opened, done = 0, asyncio.Event(), asyncio.Event()
    ready = 0

    def started() -> None:
        nonlocal ready
        ready += 1
        if ready == count:
            opened.set()

    def event() -> None:
        nonlocal seen
        seen += 1
        if seen % count == 0:
            done.set()

    async def transport_watch(transport: Transport) -> None:
        async with transport.stream("GET", "/api/v1/configmaps", query={"watch": True}) as stream:
            started()
            async for chunk in stream.chunks():
                for _ in range(chunk.count(b"\n")):
                    event()

    async def client_watch(client: Client) -> None:
        async with client.watch(ConfigMap, namespace="default", resource_version="1") as events:
            started()
            async for _ in events:
                event()

    async def bare(context: ssl.SSLContext) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        started()
        try:
            while chunk := await reader.read(65536):
                for _ in range(chunk.count(b'"MODIFIED"')):
                    event()
        finally:
            writer.transport.abort()

    async with Transport(config) as transport, Client(transport) as client:
        context = config.ssl_context()

        def make() -> Coroutine[Any, Any, None]:
            if kind == "asyncio":
                return bare(context)
            return transport_watch(transport) if kind == "transport" else client_watch(client)

        # What one watch needs is not what the thousandth needs: imports, code, tables.
        warm = asyncio.create_task(make())
        await asyncio.sleep(0.5)
        warm.cancel()
        await asyncio.wait([warm])
        ready, seen = 0, 0
        opened.clear()
        before, cpu = _resident(), _cpu()
        tasks: list[asyncio.Task[None]] = []
        for first in range(0, count, 50):
            tasks += [asyncio.create_task(make()) for _ in range(first, min(first + 50, count))]
            while ready < len(tasks):
                await asyncio.sleep(0.005)
        await asyncio.sleep(1)
        idle, opening = _resident(), _cpu() - cpu
        cpu = _cpu()
        for _ in range(_FRAMES):
            done.clear()
            os.write(orders, b"\n")
            async with asyncio.timeout(120):
                await done.wait()
        reading = _cpu() - cpu
        used = _resident()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return {
        "idle_kib": (idle - before) / count,
        "used_kib": (used - before) / count,
        "opening_ms": opening * 1000 / count,
        "event_us": reading * 1e6 / count / _FRAMES,
    }


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[tuple[int, bytes, subprocess.Popen[bytes]]]:
    from kubeloop.pki import CertificateAuthority

    authority = CertificateAuthority.create("watches")
    issued = authority.issue("loopback", server=True, dns_names=["localhost"], ip_addresses=["127.0.0.1"])
    file = folder / "server.pem"
    file.touch(0o600)
    file.write_bytes(issued.certificate + issued.key)
    command = [sys.executable, "-m", "bench.watches_many", "--serve", str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline()), authority.certificate, server
        finally:
            server.terminate()


def _one(kind: str, count: int) -> dict[str, float]:
    """Measured in this process, which has done nothing else."""
    with tempfile.TemporaryDirectory() as name, _server(Path(name)) as (port, authority, server):
        assert server.stdin is not None
        if kind == "socket":
            return plain(count, port, authority)
        return asyncio.run(measure(kind, count, port, authority, server.stdin.fileno()))


def run(count: int) -> dict[str, dict[str, float]]:
    """Each kind in its own process."""
    found: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        command = [sys.executable, "-m", "bench.watches_many", "--kind", kind, "--count", str(count)]
        found[kind] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.watches_many", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if arguments.serve:
        asyncio.run(serve(arguments.serve))
        return
    if arguments.kind:
        print(json.dumps(_one(arguments.kind, arguments.count)))
        return
    found = run(arguments.count)
    print(f"{arguments.count} watches over TLS, each of which read {_FRAMES} events of {len(_frame(1))} bytes\n")
    print(f"{'':10} {'KiB idle':>10} {'KiB after':>10} {'ms to open':>11} {'us an event':>12}")
    for kind, figures in found.items():
        print(
            f"{kind:10} {figures['idle_kib']:10.1f} {figures['used_kib']:10.1f} {figures['opening_ms']:11.2f} {figures['event_us']:12.1f}"
        )
    beyond = found["client"]["used_kib"] - found["socket"]["used_kib"]
    print(f"\na typed watch beyond its socket: {beyond:.1f} KiB (target: at most {TARGET})")


if __name__ == "__main__":
    main()
