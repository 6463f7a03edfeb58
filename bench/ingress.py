"""The ingress controller with 1,000 Ingresses of 10 paths: start, single changes, a burst, memory, and NGINX beside a hand-written one."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.controlplane import kubeloop_server
from bench.servers import resident_mib, scheduled_seconds
from kubeloop.api.core.v1 import Service
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.api.networking.v1 import Ingress, IngressClass
from kubeloop.client import Client
from kubeloop.config import load_config
from kubeloop.transport import Transport
from tests.realserver.serving import free_ports

_LIMIT = 120.0
_SERVICES = 100
_FIRST_SYNC = re.compile(r"the first sync took ([0-9.]+) s of CPU")
_RATE = re.compile(r"Requests/sec:\s+([0-9.]+)")
_FAILED = re.compile(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)")


#: Directives of a careful author: the headers that backends expect, a log, and no buffering, as the controller has them.
_USUAL = """
map $http_upgrade $connection_upgrade { default upgrade; "" ""; }
map $http_x_request_id $a_request_id { default $http_x_request_id; "" $request_id; }
log_format usual '$remote_addr [$time_iso8601] "$request" $status $body_bytes_sent $request_time '
    '"$host" "$upstream_addr" $upstream_status $upstream_response_time $a_request_id';
access_log LOG usual buffer=64k flush=1s;
proxy_http_version 1.1; proxy_buffering off; proxy_next_upstream_tries 3; sendfile on; tcp_nopush on;
proxy_set_header Host $host; proxy_set_header X-Request-ID $a_request_id; proxy_set_header X-Real-IP $remote_addr;
proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Host $host; proxy_set_header X-Forwarded-Port $server_port;
proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Scheme $scheme; proxy_set_header X-Scheme $scheme;
proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade; proxy_set_header Proxy "";
"""


@dataclass
class IngressRun:
    """The figures of the controller in one mode.

    Attributes:
        mode: With Lua, or with reloads.
        start_cpu_s: CPU time of the model and the configuration at the start.
        endpoint_cpu_ms: CPU time of the controller for a change of one endpoint.
        endpoint_ms: Median time from that change until NGINX serves it.
        ingress_cpu_ms: CPU time of the controller for a change of one Ingress.
        ingress_ms: Median time from that change until NGINX serves it.
        endpoint_reloads: Reloads during the changes of endpoints.
        burst_reloads: Reloads during a burst of 1,000 changes of Ingresses.
        resident_mib: Resident memory of the controller.
        requests: Requests per second through NGINX.
        hand_written: Requests per second through NGINX with a hand-written configuration of the same hosts.
        request_ratio: How much longer a request takes than with the hand-written configuration, the median of all rounds.
    """

    mode: str
    start_cpu_s: float
    endpoint_cpu_ms: float
    endpoint_ms: float
    ingress_cpu_ms: float
    ingress_ms: float
    endpoint_reloads: int
    burst_reloads: int
    resident_mib: float
    requests: float
    hand_written: float
    request_ratio: float


def measure_ingress(*, hosts: int = 1000, changes: int = 20, rounds: int = 15) -> list[IngressRun]:
    """Measure the controller in both modes.

    Args:
        hosts: Number of Ingresses; each has a host and 10 paths.
        changes: Number of single changes of each kind.
        rounds: Number of comparisons with the hand-written configuration.

    Raises:
        RuntimeError: A program is missing or did not start.
    """
    for program in ("nginx", "wrk"):
        if shutil.which(program) is None:
            raise RuntimeError(f"{program} is missing: apt-get install nginx libnginx-mod-http-lua lua-resty-core lua-cjson wrk")
    return [asyncio.run(_measure(mode, hosts, changes, rounds)) for mode in ("Lua", "reload")]


async def _measure(mode: str, hosts: int, changes: int, rounds: int) -> IngressRun:
    with (
        tempfile.TemporaryDirectory() as home,
        _backends(Path(home)) as ports,
        kubeloop_server(Path(home), "--no-controllers", "--allow-loopback-endpoints") as stack,
    ):
        folder = Path(home)
        async with Client(Transport(load_config(stack.kubeconfig)), namespace="default") as client:
            await _create(client, hosts, ports[0])
            (port,) = free_ports(1)
            async with _controller(folder, stack.kubeconfig, port, lua=mode == "Lua") as controller:
                await _wait_for(port, "host-1.example.com", "/path-1/", "0")
                await asyncio.sleep(2)  # until the log has the report of the first sync
                start = float(_found(_FIRST_SYNC, controller.log()))
                reloads = controller.reloads()
                endpoint = await _single_changes(controller, changes, lambda n: _switch(client, port, ports[n % 2], str(n % 2)))
                endpoint_reloads = controller.reloads() - reloads
                ingress = await _single_changes(controller, changes, lambda n: _new_path(client, port, n))
                resident = resident_mib([controller.pid])
                await asyncio.sleep(8)  # until the limiter of reloads has its burst again
                reloads = controller.reloads()
                await _burst(client, hosts)
                await _wait_for(port, f"host-{hosts - 1}.example.com", "/burst/", "")
                await asyncio.sleep(10)
                burst = controller.reloads() - reloads
                rates = _compare(folder, port, hosts, ports[0], rounds)
    return IngressRun(mode, start, *endpoint, *ingress, endpoint_reloads, burst, resident, *rates)


@dataclass
class _Controller:
    pid: int
    log_file: Path

    def log(self) -> str:
        return self.log_file.read_text()

    def reloads(self) -> int:
        return self.log().count("NGINX was reloaded")


@contextlib.asynccontextmanager
async def _controller(folder: Path, kubeconfig: Path, port: int, *, lua: bool) -> AsyncIterator[_Controller]:
    (secure,) = free_ports(1)
    command = [sys.executable, "-m", "examples.ingress_nginx", f"--kubeconfig={kubeconfig}", "--bind-address=127.0.0.1"]
    command += [f"--http-port={port}", f"--https-port={secure}", "--no-leader-election", f"--folder={folder / 'nginx'}"]
    command += [] if lua else ["--no-lua"]
    log_file = folder / "controller.log"
    with log_file.open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(__file__).parents[1])
    try:
        yield _Controller(process.pid, log_file)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


async def _single_changes(controller: _Controller, count: int, change: object) -> tuple[float, float]:
    """Return the CPU time of a change in milliseconds, and the median time until NGINX serves it."""
    assert callable(change)
    times = []
    before = scheduled_seconds(controller.pid)
    for number in range(1, count + 1):
        began = time.perf_counter()
        await change(number)
        times.append(time.perf_counter() - began)
        await asyncio.sleep(0.05 if controller.reloads() == 0 else 4)
    return 1000 * (scheduled_seconds(controller.pid) - before) / count, 1000 * statistics.median(times)


async def _switch(client: Client, port: int, backend: int, answer: str) -> None:
    await client.patch(EndpointSlice, "svc-1-x", {"ports": [{"name": "http", "port": backend}]})
    await _wait_for(port, "host-1.example.com", "/path-1/", answer)


async def _new_path(client: Client, port: int, number: int) -> None:
    found = await client.get(Ingress, "ingress-1")
    assert found.spec.rules[0].http is not None
    found.spec.rules[0].http.paths[9].path = f"/new-{number}"
    await client.update(found)
    await _wait_for(port, "host-1.example.com", f"/new-{number}/", "")


async def _burst(client: Client, hosts: int) -> None:
    limit = asyncio.Semaphore(16)

    async def change(number: int) -> None:
        async with limit:
            patch = [{"op": "replace", "path": "/spec/rules/0/http/paths/8/path", "value": "/burst"}]
            await client.patch(Ingress, f"ingress-{number}", patch, type="json")

    async with asyncio.TaskGroup() as tasks:
        for number in range(hosts):
            tasks.create_task(change(number))


async def _wait_for(port: int, host: str, path: str, answer: str) -> None:
    """Request a path until a backend answers; with its name, where one is given."""
    async with asyncio.timeout(_LIMIT):
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                status, body = await _get(port, host, path)
                if status == 200 and (not answer or body.strip() == answer):
                    return
            await asyncio.sleep(0.002)


async def _get(port: int, host: str, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


async def _create(client: Client, hosts: int, backend: int) -> None:
    await client.create(
        IngressClass.from_dict({"metadata": {"name": "kubeloop"}, "spec": {"controller": "kubeloop.dev/ingress-controller"}})
    )
    for number in range(_SERVICES):
        name = f"svc-{number}"
        ports = [{"name": "http", "port": 80}]
        await client.create(Service.from_dict({"metadata": {"name": name, "namespace": "default"}, "spec": {"ports": ports}}))
        metadata = {"name": f"{name}-x", "namespace": "default", "labels": {"kubernetes.io/service-name": name}}
        endpoints = [{"addresses": ["127.0.0.1"]}]
        await client.create(
            EndpointSlice.from_dict(
                {"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "http", "port": backend}]}
            )
        )
    for number in range(hosts):
        paths = [
            {
                "path": f"/path-{place}",
                "pathType": "Prefix",
                "backend": {"service": {"name": f"svc-{(number + place - 1) % _SERVICES}", "port": {"number": 80}}},
            }
            for place in range(10)
        ]
        spec = {"ingressClassName": "kubeloop", "rules": [{"host": f"host-{number}.example.com", "http": {"paths": paths}}]}
        await client.create(Ingress.from_dict({"metadata": {"name": f"ingress-{number}", "namespace": "default"}, "spec": spec}))


@contextlib.contextmanager
def _backends(folder: Path) -> Iterator[list[int]]:
    """Two web servers, which answer with 0 and 1."""
    ports = free_ports(2)
    servers = "access_log off; keepalive_requests 1000000;\n" + "".join(
        f"server {{ listen 127.0.0.1:{port} backlog=1024; return 200 {number}; }}\n" for number, port in enumerate(ports)
    )
    with _nginx(folder, "backends", servers):
        yield ports


@contextlib.contextmanager
def _nginx(folder: Path, name: str, servers: str) -> Iterator[None]:
    path = folder / f"{name}.conf"
    temporary = " ".join(f"{kind}_temp_path {folder}/{name}-{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    path.write_text(
        f"daemon off; worker_processes auto; pid {folder}/{name}.pid; error_log {folder}/{name}.log;\n"
        "worker_rlimit_nofile 4096; events { worker_connections 2048; }\n"
        f"http {{ server_names_hash_max_size 65536; server_names_hash_bucket_size 128; {temporary}\n"
        f"{servers} }}\n"
    )
    with (folder / f"{name}.out").open("w") as log:
        process = subprocess.Popen(["nginx", "-c", str(path)], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _compare(folder: Path, port: int, hosts: int, backend: int, rounds: int) -> tuple[float, float, float]:
    """Return the median requests per second through the controller's NGINX and a hand-written configuration, and the ratio of times.

    Each round measures both, each of them first in every second round: other machines on the same host change the speed within seconds.
    """
    (other,) = free_ports(1)
    upstream = f"upstream web {{ server 127.0.0.1:{backend}; keepalive 320; }}\n"
    usual = _USUAL.replace("LOG", str(folder / "hand-access.log"))
    servers = "".join(
        f"server {{ listen 127.0.0.1:{other}; server_name host-{number}.example.com;"
        + "".join(f" location /path-{place}/ {{ proxy_pass http://web; }}" for place in range(10))
        + " }\n"
        for number in range(hosts)
    )
    ours: list[float] = []
    theirs: list[float] = []
    with _nginx(folder, "hand", upstream + usual + servers):
        time.sleep(1)
        for number in range(rounds):
            pair = ((port, ours), (other, theirs))
            for measured, rates in pair if number % 2 else reversed(pair):
                rates.append(_rate(measured, hosts))
    ratio = statistics.median(hand / own for own, hand in zip(ours, theirs, strict=True))
    return statistics.median(ours), statistics.median(theirs), ratio


def _rate(port: int, hosts: int) -> float:
    command = ["wrk", "-t1", "-c32", "-d2s", "-H", f"Host: host-{hosts // 2}.example.com", f"http://127.0.0.1:{port}/path-3/x"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if failed := _FAILED.search(printed):
        raise RuntimeError(f"requests failed: {failed[0]}")
    return float(_found(_RATE, printed))


def _found(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    if found is None:
        raise RuntimeError(f"no {pattern.pattern!r} in: {text[-800:]}")
    return found[1]
