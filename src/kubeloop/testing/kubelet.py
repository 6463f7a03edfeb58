"""``ScriptedKubelet``: a node whose pods respond to exec, logs, attach, port-forward and cp by a script, over real sockets."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import Container, Node, Pod, PodSpec
from kubeloop.client import Client
from kubeloop.kubelet.streaming import CommandHandler, Terminal
from kubeloop.meta import ConfigError, Forbidden, NotFound, ObjectMeta, OwnerReference
from kubeloop.tasks import Supervisor
from kubeloop.testing.kubelet_containers import ContainerLog, run_process
from kubeloop.testing.kubelet_server import KubeletRequest, KubeletServer
from kubeloop.testing.local_cluster import LocalCluster

#: Serves one connection to a port, as ``asyncio.start_server`` calls it.
PortHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_NUMBERS = itertools.count(1)
_LOG = logging.getLogger("kubeloop.testing.kubelet")
_LEASES: Final = "kube-node-lease"
#: Seconds between two renewals of a Lease.
_RENEWAL: Final = 10.0
#: Commands for files in a container: cp runs them.
_ON_FILES: Final = ("tar", "test")
_NOT_FOUND: Final = 127


@dataclass
class _Script:
    """The script of one pod. ``logs``: by container, and whether it is the log of the previous container; ``commands``: newest first."""

    commands: list[tuple[list[str] | None, CommandHandler]] = field(default_factory=list)
    attached: CommandHandler | None = None
    logs: dict[tuple[str, bool], ContainerLog] = field(default_factory=dict)
    ports: dict[int, tuple[str, int]] = field(default_factory=dict)


class ScriptedKubelet(KubeletServer):
    """A node for tests of code that runs commands in pods, reads logs, forwards ports and copies files.

    Guarantees
        Clients reach it like a real kubelet: through the API server, by WebSocket and SPDY, kubectl included.
        A pod's files are a folder of this machine (``files``): ``tar`` and ``test`` work on it, so that cp does.
        When the block ends, its node and the pods of ``run_pod`` are gone.

    Not guaranteed
        Behaviour of real containers: commands without a script fail with a message that says how to script them. Pods that something
        else binds to the node are served, but get no status; name the node of simulated pods, ``node="kubeloop-node"``, for those of
        Deployments.

    Args:
        cluster: The cluster, or a client of it. The API server must reach 127.0.0.1.
        node: Name of the node. An existing node is served from now on, and gets its former status back at the end; otherwise the node is
            created. None: a new name.
        namespace: Namespace of pods that are named without one (``"web-0"`` instead of ``"shop/web-0"``).

    Raises:
        KubeloopError: From entering, when the node cannot be made or changed.

    Example:
        >>> async with ScriptedKubelet(cluster, namespace=client.namespace) as kubelet:
        ...     pod = await kubelet.run_pod("web-0")
        ...     kubelet.on_exec("web-0", ["ls"], stdout="app.py")
        ...     result = await client.pods.exec("web-0", ["ls"])
        ...     print(result.stdout)
        b'app.py'
    """

    def __init__(self, cluster: LocalCluster | Client, *, node: str | None = None, namespace: str = "default") -> None:
        super().__init__()
        #: Name of the node.
        self.node_name = node or f"scripted-kubelet-{os.getpid()}-{next(_NUMBERS)}"
        self._cluster = cluster
        self._namespace = namespace
        self._pods: dict[tuple[str, str], _Script] = {}
        self._made: list[Pod] = []
        self._servers: list[asyncio.Server] = []
        self._stack = AsyncExitStack()
        self._folder: Path | None = None
        self._client: Client | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kubeloop-kubelet-")))
            await super().__aenter__()
            stack.push_async_exit(super().__aexit__)
            self._client = self._cluster if isinstance(self._cluster, Client) else self._cluster.client
            stack.push_async_callback(self._clean_up)
            await self._register(self._client, stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def run_pod(self, pod: str | Pod, *, containers: Sequence[str] = ("main",)) -> Pod:
        """Create a pod on the node, running and ready.

        Args:
            pod: Its name, ``namespace/name``, or a whole pod, which gets this node's name.
            containers: Names of its containers; ignored for a whole pod.

        Returns:
            The pod as the server stored it, with its status.

        Raises:
            ApiError: The server rejects the pod.
        """
        client = self._running()
        if isinstance(pod, str):
            namespace, name = self._key(pod)
            spec = PodSpec(
                containers=[Container(name=one, image="scripted", stdin=True) for one in containers], termination_grace_period_seconds=0
            )
            pod = Pod(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec)
        pod.spec.node_name = self.node_name
        made = await self._created(client, pod)
        self._made.append(made)
        running: list[dict[str, Any]] = [
            {
                "name": one.name,
                "image": one.image,
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "started": True,
                "state": {"running": {}},
            }
            for one in made.spec.containers
        ]
        conditions = [{"type": kind, "status": "True"} for kind in ("Initialized", "PodScheduled", "ContainersReady", "Ready")]
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": running, "podIP": "127.0.0.1"}
        status["podIPs"] = [{"ip": "127.0.0.1"}]
        return await client.patch(Pod, made.metadata.name, {"status": status}, namespace=made.metadata.namespace, subresource="status")

    async def end_pod(self, pod: str, exit_code: int = 0) -> Pod:
        """End the containers of a pod of ``run_pod``: its status changes, and followed logs end.

        Args:
            pod: Its name, or ``namespace/name``.
            exit_code: Exit code of every container; 0 makes the phase Succeeded, else Failed.

        Returns:
            The pod with its new status.
        """
        client, (namespace, name) = self._running(), self._key(pod)
        found = await client.get(Pod, name, namespace=namespace)
        ended = {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}}
        states = [
            {"name": one.name, "image": one.image, "imageID": "", "ready": False, "restartCount": 0, "started": False, "state": ended}
            for one in found.spec.containers
        ]
        status = {"phase": "Failed" if exit_code else "Succeeded", "containerStatuses": states}
        updated = await client.patch(Pod, name, {"status": status}, namespace=namespace, subresource="status")
        for log in self._script(pod).logs.values():
            log.end()
        return updated

    def on_exec(
        self,
        pod: str,
        command: Sequence[str] | None = None,
        *,
        stdout: str | bytes = "",
        stderr: str | bytes = "",
        exit_code: int = 0,
        run: CommandHandler | None = None,
    ) -> None:
        """Set the response to a command in a pod. The newest matching script applies.

        Args:
            pod: Its name, or ``namespace/name``.
            command: The whole command; None: any.
            stdout: Its standard output.
            stderr: Its error output.
            exit_code: Its exit code.
            run: Called instead with the command and its streams (``Terminal``); returns the exit code. ``run_process`` runs it for real.
        """
        handler = run if run is not None else _printing(stdout, stderr, exit_code)
        self._script(pod).commands.insert(0, (list(command) if command is not None else None, handler))

    def on_attach(self, pod: str, run: CommandHandler) -> None:
        """Set the response of a pod's main process to an attach.

        Args:
            pod: Its name, or ``namespace/name``.
            run: Called with an empty command and the streams; returns the exit code.
        """
        self._script(pod).attached = run

    def on_logs(self, pod: str, lines: Iterable[str] = (), *, container: str = "", previous: bool = False) -> ContainerLog:
        """Set the log of a container; more lines can be written afterwards.

        Args:
            pod: Its name, or ``namespace/name``.
            lines: The lines that the container has written so far, without newlines.
            container: Name of the container; empty: all containers of the pod without another log.
            previous: The log of the container that ran before a restart.

        Returns:
            The log.
        """
        log = ContainerLog(lines)
        self._script(pod).logs[container, previous] = log
        return log

    async def on_port_forward(self, pod: str, port: int, handler: PortHandler) -> None:
        """Set the handler of connections to a pod's port.

        Args:
            pod: Its name, or ``namespace/name``.
            port: The port in the pod.
            handler: Called with reader and writer of each connection, as by ``asyncio.start_server``.
        """
        self._running()
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        self._servers.append(server)
        self.forward_to(pod, port, "127.0.0.1", server.sockets[0].getsockname()[1])

    def forward_to(self, pod: str, port: int, host: str, to: int) -> None:
        """Forward connections to a pod's port to a running server, at ``host`` and port ``to``.

        Args:
            pod: Its name, or ``namespace/name``.
            port: The port in the pod.
            host: The server's address.
            to: The server's port.
        """
        self._script(pod).ports[port] = (host, to)

    def files(self, pod: str) -> Path:
        """Return the folder for the root of a pod's file system; ``cp`` reads and writes it.

        Args:
            pod: Its name, or ``namespace/name``.
        """
        self._running()
        assert self._folder is not None
        folder = self._folder.joinpath(*self._key(pod))
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def log_of(self, request: KubeletRequest) -> AsyncIterator[bytes]:
        namespace, pod, container = request.target
        logs, previous = self._script(f"{namespace}/{pod}").logs, request.query.get("previous", ["false"])[0] == "true"
        log = logs.get((container, previous)) or logs.get(("", previous))
        if log is None:
            log = logs[container, previous] = ContainerLog()
        return log.serve(request.query)

    def exec_of(self, request: KubeletRequest) -> CommandHandler:
        namespace, pod, _ = request.target
        command = request.query.get("command", [])
        for wanted, handler in self._script(f"{namespace}/{pod}").commands:
            if wanted is None or wanted == command:
                return handler
        if command and command[0] in _ON_FILES:
            return _on_files(self.files(f"{namespace}/{pod}"))
        said = f"nothing is scripted for {command} in pod {namespace}/{pod}: kubelet.on_exec({pod!r}, {command}, stdout=...)\n"
        return _printing("", said, _NOT_FOUND)

    def attach_of(self, request: KubeletRequest) -> CommandHandler:
        namespace, pod, _ = request.target
        said = f"nothing is scripted for an attach to pod {namespace}/{pod}: kubelet.on_attach({pod!r}, ...)\n"
        return self._script(f"{namespace}/{pod}").attached or _printing("", said, _NOT_FOUND)

    async def connect(self, request: KubeletRequest, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        namespace, pod, _ = request.target
        found = self._script(f"{namespace}/{pod}").ports.get(port)
        if found is None:
            script = f"kubelet.on_port_forward({pod!r}, {port}, ...)"
            raise ConnectionRefusedError(f"connection refused: nothing is scripted for port {port} of pod {namespace}/{pod}: {script}")
        return await asyncio.open_connection(*found)

    def _key(self, pod: str) -> tuple[str, str]:
        namespace, _, name = pod.rpartition("/")
        return namespace or self._namespace, name

    def _script(self, pod: str) -> _Script:
        return self._pods.setdefault(self._key(pod), _Script())

    def _running(self) -> Client:
        if self._client is None:
            raise ConfigError("the kubelet does not run: enter it first (async with ScriptedKubelet(cluster) as kubelet)")
        return self._client

    async def _created(self, client: Client, pod: Pod) -> Pod:
        """Create a pod; controllers may make the namespace's default ServiceAccount a moment later."""
        for _ in range(_TRIES):
            try:
                return await client.create(pod)
            except Forbidden as error:
                if "serviceaccount" not in error.status.message:
                    raise
                await asyncio.sleep(_PAUSE)
        return await client.create(pod)

    async def _register(self, client: Client, stack: AsyncExitStack) -> None:
        try:
            found = (await client.get(Node, self.node_name)).to_dict().get("status", {})
        except NotFound:
            # Unschedulable, because no kubelet would run the pods that a scheduler places on the node.
            await client.create(Node.from_dict({"metadata": {"name": self.node_name}, "spec": {"unschedulable": True}}))
            stack.push_async_callback(client.delete, Node, self.node_name)
            conditions = [{"type": "Ready", "status": "True", "reason": "Scripted", "message": "a scripted kubelet serves its pods"}]
            await self._write_node(client, {"conditions": conditions})
            tasks = await stack.enter_async_context(Supervisor(client.clock, _LOG))
            tasks.start(partial(self._renew_lease, client), name="lease-renewal")
        else:
            former = {name: found.get(name) for name in ("addresses", "daemonEndpoints")}
            stack.push_async_callback(self._write_node, client, former)
        address = [{"type": "InternalIP", "address": "127.0.0.1"}]
        await self._write_node(client, {"addresses": address, "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}}})

    async def _renew_lease(self, client: Client) -> None:
        """Renew the node's Lease: a node without heartbeats is lost after 50 seconds. The garbage collector deletes it after the node."""
        uid = (await client.get_metadata(Node, self.node_name)).metadata.uid
        owner = OwnerReference(api_version="v1", kind="Node", name=self.node_name, uid=uid)
        lease = Lease(metadata=ObjectMeta(name=self.node_name, namespace=_LEASES, owner_references=[owner]))
        lease.spec.holder_identity, lease.spec.lease_duration_seconds = self.node_name, 40
        while True:
            now = client.clock.wall()
            lease.spec.renew_time = now
            change = {"spec": {"renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}
            try:
                await client.patch_metadata(Lease, self.node_name, change, namespace=_LEASES)
            except NotFound:
                await client.create(lease)
            except Forbidden:
                return  # The user of the test may not; such a cluster has controllers that are not kubeloop's.
            await client.clock.sleep(_RENEWAL)

    async def _write_node(self, client: Client, status: dict[str, Any]) -> None:
        await client.patch(Node, self.node_name, {"status": status}, type="merge", subresource="status")

    async def _clean_up(self) -> None:
        client, self._client = self._running(), None
        for server in self._servers:
            server.close()
        for script in self._pods.values():
            for log in script.logs.values():
                log.end()
        for pod in self._made:
            with suppress(NotFound):
                await client.delete(Pod, pod.metadata.name, namespace=pod.metadata.namespace, grace_period_seconds=0)


#: Number of tries to create a pod whose service account does not exist yet, and seconds between two tries.
_TRIES, _PAUSE = 100, 0.05


def _printing(stdout: str | bytes, stderr: str | bytes, exit_code: int) -> CommandHandler:
    async def run(command: list[str], terminal: Terminal) -> int:  # noqa: ARG001 - it does the same for every command
        if stdout:
            await terminal.print(stdout)
        if stderr:
            await terminal.print(stderr, "stderr")
        return exit_code

    return run


def _on_files(folder: Path) -> CommandHandler:
    """Return a handler that runs commands in the folder, which absolute paths are relative to, as in a container with that root."""

    async def run(command: list[str], terminal: Terminal) -> int:
        words = [word.lstrip("/") or "." if word.startswith("/") else word for word in command]
        if any(".." in Path(word).parts for word in words[1:]):
            await terminal.print(f"{command[0]}: a path with .. would leave the pod's files\n", "stderr")
            return 2
        return await run_process(words, terminal, folder)

    return run
