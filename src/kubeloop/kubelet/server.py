"""The HTTPS endpoint of a kubelet: logs, exec, attach, port-forward, the pods of the node, and resource usage.

Source: Kubernetes pkg/kubelet/server/server.go, pkg/kubelet/kuberuntime/kuberuntime_logs.go.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from kubeloop.endpoints.metrics_text import CONTENT_TYPE
from kubeloop.kubelet.access import EndpointAccessReviewer
from kubeloop.kubelet.credentials import KeyPair
from kubeloop.kubelet.health import KubeletHealth
from kubeloop.kubelet.logs import LogSelection, read_log
from kubeloop.kubelet.pod_worker import PodWorker
from kubeloop.kubelet.running_container import RunningContainer
from kubeloop.kubelet.runtime import ProcessRuntime
from kubeloop.kubelet.streaming import Terminal, serve_command, serve_ports
from kubeloop.serving.answer import Answer, Reply, StreamingResponse
from kubeloop.serving.listener import Listener, server_context
from kubeloop.serving.request import Request
from kubeloop.timing import Clock
from kubeloop.types import JSONObject


class EndpointSource(Protocol):
    """The pods and resource usage of a node that a ``KubeletEndpoint`` serves."""

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        """Return the worker of a pod, or None if the node does not have the pod."""

    def workers(self) -> Iterable[PodWorker]:
        """Return the workers of all pods."""

    def summary(self) -> JSONObject:
        """Return the document of /stats/summary."""

    def metrics(self) -> str:
        """Return the text of /metrics/resource."""


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class KubeletEndpoint:
    """Serves a kubelet's endpoint from ``start`` until ``close``.

    Args:
        source: The pods and resource usage of the node.
        runtime: The runtime that runs commands in containers.
        clock: The clock for options of logs that are relative to the present.
        access: Authenticates and authorizes requests; None: every client may do everything.
        health: The health of the node's tasks.
    """

    def __init__(
        self,
        source: EndpointSource,
        runtime: ProcessRuntime,
        clock: Clock,
        access: EndpointAccessReviewer | None,
        health: KubeletHealth,
    ) -> None:
        self._source = source
        self._runtime = runtime
        self._clock = clock
        self._access = access
        self._health = health
        self._listener: Listener | None = None

    @property
    def port(self) -> int:
        return self._listener.port if self._listener is not None else 0

    async def start(self, pair: KeyPair, client_authority: bytes, host: str, port: int) -> None:
        """Listen and start to serve requests.

        Args:
            pair: The endpoint's certificate and key.
            client_authority: The CA of client certificates in PEM; empty: the endpoint's own certificate.
            host: The address to listen on.
            port: The port; 0: any free port.

        Raises:
            ConfigError: The port is in use.
        """
        context = server_context(pair.certificate, pair.key, client_authority or pair.certificate)
        self._listener = Listener(self._serve, context, host=host, port=port)
        await self._listener.bind()
        await self._listener.serve()

    async def close(self) -> None:
        """Stop listening and abort all connections."""
        if self._listener is not None:
            # kube-apiserver keeps connections open, and would not respond to a graceful end.
            self._listener.abort()
            await self._listener.close()

    async def _serve(self, request: Request) -> Reply:
        if request.path == "/healthz":
            return _text(200, "ok")
        if request.path == "/readyz":
            return _text(200 if self._health.healthy else 500, self._health.report(verbose="verbose" in request.query))
        if self._access is not None and (refusal := await self._access.admit(request)) is not None:
            return refusal
        try:
            return await self._route(request)
        except _Refused as error:
            return _text(error.status, str(error))

    async def _route(self, request: Request) -> Reply:
        action, *parts = request.path.strip("/").split("/")
        if action == "containerLogs" and len(parts) == 3:
            return self._logs(request, *parts)
        if action == "exec" and len(parts) in (3, 4):
            return self._exec(request, parts[0], parts[1], parts[-1])
        if action == "attach" and len(parts) in (3, 4):
            return self._attach(request, parts[0], parts[1], parts[-1])
        if action == "portForward" and len(parts) in (2, 3):
            return self._ports(request, parts[0], parts[1])
        if action == "run" and len(parts) in (3, 4) and request.method == "POST":
            return await self._run(request, parts[0], parts[1], parts[-1])
        if request.path in ("/pods", "/pods/", "/runningpods", "/runningpods/"):
            items = [worker.tree for worker in self._source.workers()]
            return _json({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
        if request.path in ("/stats/summary", "/stats/summary/"):
            return _json(self._source.summary())
        if request.path == "/metrics":
            return Answer(200, body=self._metrics().encode(), content_type=CONTENT_TYPE, verbatim=True)
        if request.path == "/metrics/resource":
            return Answer(200, body=self._source.metrics().encode(), content_type="text/plain; version=0.0.4", verbatim=True)
        return _text(404, "404 page not found")

    def _metrics(self) -> str:
        workers = list(self._source.workers())
        return self._health.metrics(len(workers), sum(len(worker.running) for worker in workers))

    # ---------------------------------------------------------------------------------------------------------------------- pods

    def _worker(self, namespace: str, name: str) -> PodWorker:
        worker = self._source.worker(namespace, name)
        if worker is None:
            raise _Refused(404, f'pod "{name}" does not exist')
        return worker

    def _running(self, namespace: str, name: str, container: str) -> RunningContainer:
        worker = self._worker(namespace, name)
        running = worker.running.get(container)
        if running is None:
            known = container in worker.records
            raise _Refused(
                404 if not known else 500, f'container not found ("{container}")' if not known else f"container {container} is not running"
            )
        return running

    def _logs(self, request: Request, namespace: str, name: str, container: str) -> Reply:
        worker = self._worker(namespace, name)
        record = worker.records.get(container)
        if record is None:
            raise _Refused(404, f'container "{container}" not found in pod "{name}"')
        subject = f'container "{container}" in pod "{name}"'
        previous = request.query.get("previous", ["false"])[0].lower() not in ("false", "0")
        run = record.last if previous else record.current
        if previous and run is None and record.current is not None and record.waiting_reason:
            run = record.current
        if run is None:
            if previous:
                raise _Refused(400, f"previous terminated {subject} not found")
            raise _Refused(400, f"{subject} is waiting to start: {record.waiting_reason or 'ContainerCreating'}")
        path = worker.logs.path(container, run.attempt)
        if not path.exists():
            raise _Refused(400, f"{subject} has no log: {run.reason or 'it never ran'}" + (f": {run.message}" if run.message else ""))
        try:
            options = LogSelection.of_query(request.query, self._clock.wall())
        except ValueError as error:
            raise _Refused(400, str(error)) from None
        running = worker.running.get(container)
        writer = running.log if running is not None and running.run is run else None
        return StreamingResponse(read_log(path, options, writer), content_type="text/plain")

    def _exec(self, request: Request, namespace: str, name: str, container: str) -> Reply:
        running = self._running(namespace, name, container)

        async def run(command: list[str], terminal: Terminal) -> int:
            return await running.execute(self._runtime, command, terminal, tty="tty" in request.query)

        return serve_command(request, run)

    def _attach(self, request: Request, namespace: str, name: str, container: str) -> Reply:
        running = self._running(namespace, name, container)

        async def run(_: list[str], terminal: Terminal) -> int:
            return await running.attach(terminal)

        return serve_command(request, run)

    def _ports(self, request: Request, namespace: str, name: str) -> Reply:
        worker = self._worker(namespace, name)
        return serve_ports(request, partial(_connect, worker.ip))

    async def _run(self, request: Request, namespace: str, name: str, container: str) -> Reply:
        """Run the command of a request to /run without streams, and return its output with status 200, or 500 if it failed."""
        running = self._running(namespace, name, container)
        words = request.query.get("cmd", [""])[0].split()
        if not words:
            raise _Refused(400, "missing the parameter cmd")
        code, output = await running.collect(self._runtime, words)
        return _text(200 if code == 0 else 500, output)


async def _connect(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a port of a pod at the pod's address or, for programs that listen on localhost only, at 127.0.0.1.

    Raises:
        OSError: No connection to either address is possible.
    """
    try:
        return await asyncio.open_connection(host, port)
    except OSError as error:
        first = error
    try:
        return await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        text = f"failed to connect to localhost:{port} inside the pod: dial tcp {host}:{port}: connect: {first.strerror or first}".lower()
        raise OSError(first.errno or 0, text) from None


def _text(status: int, text: str) -> Answer:
    return Answer(status, body=text.encode(), content_type="text/plain; charset=utf-8")


def _json(tree: JSONObject) -> Answer:
    return Answer(200, body=json.dumps(tree).encode(), content_type="application/json")
