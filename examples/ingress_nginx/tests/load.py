"""``python -m examples.ingress_nginx.tests.load``: requests while endpoints, Ingresses and certificates change; each failure is counted.

A backend leaves the endpoints first and closes its port some time later, as pods do. A request that finds its reused connection closed,
before the first byte of an answer, is sent again on a new one: RFC 9110, section 9.2.2, allows that for GET, and clients do it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from examples.ingress_nginx.tests.objects import ingress, tls_secret
from examples.ingress_nginx.tests.stage import ControllerStage, controller_stage, stage_options, tls_context
from kubeloop.api.networking.v1 import Ingress

HOST = "load.test"


@dataclass
class LoadReport:
    """What happened to the requests. ``failures``: number by the text of the failure. ``changes``: changes of the cluster meanwhile."""

    requests: int = 0
    reopened: int = 0
    changes: int = 0
    reloads: int = 0
    seconds: float = 0.0
    failures: dict[str, int] = field(default_factory=dict)

    def fail(self, text: str) -> None:
        self.failures[text] = self.failures.get(text, 0) + 1


async def run_load(at: ControllerStage, requests: int, connections: int = 8) -> LoadReport:
    """Send requests over TLS and change the cluster until all are answered.

    Args:
        at: The controller with NGINX.
        requests: Number of requests.
        connections: Number of connections at the same time.
    """
    first = await at.backend("first")
    await at.expose("web", first)
    await at.put(tls_secret("cert", HOST), _ingress(1))
    await at.answers("first", HOST)
    report = LoadReport()
    began = time.perf_counter()
    numbers = itertools.count()
    changing = asyncio.create_task(_change(at, report))
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(connections):
                tasks.create_task(_send(at.tls_port, numbers, requests, report))
    finally:
        changing.cancel()
        # A change that failed is an error of the run: later requests met a cluster without changes.
        with contextlib.suppress(asyncio.CancelledError):
            await changing
    report.seconds = time.perf_counter() - began
    report.reloads = sum(sync.applied.reloaded for sync in at.reports)
    return report


async def _send(port: int, numbers: itertools.count[int], requests: int, report: LoadReport) -> None:
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while next(numbers) < requests:
        report.requests += 1
        for attempt in range(2):
            reused = streams is not None
            try:
                if streams is None:
                    streams = await asyncio.open_connection("127.0.0.1", port, ssl=tls_context(), server_hostname=HOST)
                status, keep = await _exchange(*streams)
            except (OSError, asyncio.IncompleteReadError) as error:
                if streams is not None:
                    streams[1].close()
                streams = None
                fresh = not reused or bool(getattr(error, "partial", b""))
                if fresh or attempt:
                    report.fail(f"{type(error).__name__}: {error}")
                    break
                report.reopened += 1
                continue
            if status != 200:
                report.fail(f"status {status}")
            if not keep:
                streams[1].close()
                streams = None
            break
    if streams is not None:
        streams[1].close()


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, bool]:
    """Send a request, and return the status of the answer and whether the connection stays open."""
    writer.write(f"GET /load HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"transfer-encoding: chunked" in head:
        size = -1
        while size:
            size = int(await reader.readline(), 16)
            await reader.readexactly(size + 2)
    else:
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
    return int(head.split(b" ", 2)[1]), b"connection: close" not in head


async def _change(at: ControllerStage, report: LoadReport) -> None:
    """Change endpoints, the certificate and the policy of the Ingress in turn, until it is cancelled."""
    old = "first"
    for number in itertools.count(1):
        name = f"backend-{number}"
        await at.endpoints("web", await at.backend(name))
        await at.answers(name, HOST)
        await asyncio.sleep(0.5)  # requests in progress end, as in the grace period of a pod
        at.close_backend(old)
        old = name
        await at.put(tls_secret("cert", HOST))
        # Another limit is another policy: a reload in both modes.
        await at.put(_ingress(number))
        await at.handled()
        report.changes += 3


def _ingress(megabytes: int) -> Ingress:
    return ingress("web", f"{HOST} / web:80", tls=[f"cert {HOST}"], ssl_redirect="false", proxy_body_size=f"{megabytes}m")


@click.command()
@click.option("--requests", default=100_000, show_default=True, help="Number of requests in each mode.")
def main(requests: int) -> None:
    """Count failed requests while the cluster changes, with Lua and with reloads."""
    table = Table(title="requests over TLS while endpoints, certificates and settings change")
    for column in ("mode", "requests", "failed", "reopened", "changes", "reloads", "seconds"):
        table.add_column(column, justify="right")
    failures = []
    for mode in ("lua", "reload"):
        report = asyncio.run(_measure(mode, requests))
        failed = sum(report.failures.values())
        numbers = (report.requests, failed, report.reopened, report.changes, report.reloads, f"{report.seconds:.0f}")
        table.add_row(mode, *map(str, numbers))
        failures += [f"{mode}: {count} x {text}" for text, count in report.failures.items()]
    console = Console()
    console.print(table)
    for line in failures:
        console.print(line, style="red")
    sys.exit(1 if failures else 0)


async def _measure(mode: str, requests: int) -> LoadReport:
    with tempfile.TemporaryDirectory() as home:
        async with controller_stage(stage_options(mode, Path(home) / "nginx"), mode) as at:
            return await run_load(at, requests)


if __name__ == "__main__":
    main()
