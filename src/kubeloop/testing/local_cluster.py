"""``LocalCluster``: the embedded API server in a separate process, so that tests may block."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import kubeloop
from kubeloop.meta.errors import ConfigError
from kubeloop.tasks import close_all, finish, result_of

if TYPE_CHECKING:
    from kubeloop.client import Client
    from kubeloop.config import ClusterConfig


class LocalCluster:
    """A cluster on this machine. Use it with ``with``, with ``async with``, or by ``start`` and ``stop``.

    Guarantees
        After entering, the server responds and its controllers have done their first work: every namespace has its ``default``
        ServiceAccount, the node is ready, the built-in roles are complete. After leaving, the process has ended and its files are deleted,
        also after errors. If this program dies, the server ends by itself.

    Not guaranteed
        Only address and certificate authority survive ``kill`` and ``restart``: the store is in memory, and versions restart,
        unless it has a folder, ``data``.
        The built-in controllers hold no Leases, so they do not wait for other control planes: use ``controllers=False`` beside one.

    Args:
        controllers: Run the built-in controllers too (Deployments get pods, namespaces end ...).
        token_auth_file: File of bearer tokens, see ``kubeloop server --help``.
        history: Seconds of the server's history. None: five minutes. Older versions are answered with 410.
        history_revisions: Number of the newest changes in the history. None: all within ``history``.
        data: Folder for objects, for ``restart`` or another cluster. None: in memory.
        enable_admission_plugins: Admission plug-ins to run in addition to kube-apiserver's defaults.
        disable_admission_plugins: Admission plug-ins not to run. None: all run; but without controllers ``ServiceAccount`` does not (as in
            envtest), because it requires accounts, which controllers make.
        descriptions: Texts of ``kubectl explain``: an OpenAPI document, or a context of the user's kubeconfig whose cluster has the
            texts. None: the texts of the last ``kubeloop descriptions import``, else short texts.
        nodes: Simulated nodes: their number, or names with commas between them.
        simulation: File with simulated nodes and the behaviour of pods (docs/server.md).
        metrics: Serve the usage of simulated nodes and pods at metrics.k8s.io.
        loopback_endpoints: Allow loopback addresses in Endpoints and EndpointSlices, for tests of proxies and load balancers. Kubernetes
            refuses them.
        timeout: Seconds to wait for the start.

    Raises:
        ConfigError: The server did not start; the text has the end of its log.

    Example:
        >>> async with LocalCluster(controllers=False) as local:
        ...     namespaces = await local.client.list(Namespace)
        ...     print([namespace.metadata.name for namespace in namespaces])
        ['default', ...]
    """

    def __init__(
        self,
        controllers: bool = True,
        *,
        token_auth_file: Path | None = None,
        history: float | None = None,
        history_revisions: int | None = None,
        data: Path | None = None,
        enable_admission_plugins: Sequence[str] = (),
        disable_admission_plugins: Sequence[str] | None = None,
        descriptions: Path | str | None = None,
        nodes: int | str | None = None,
        simulation: Path | None = None,
        metrics: bool = False,
        loopback_endpoints: bool = False,
        timeout: float = 60.0,
    ) -> None:
        options: dict[str, object] = {"--token-auth-file": token_auth_file, "--history": history, "--data": data}
        options["--history-revisions"] = history_revisions
        options["--descriptions"] = descriptions
        options |= {"--nodes": nodes, "--simulation": simulation}
        if disable_admission_plugins is None:
            lacking = () if controllers else ("ServiceAccount",)
            disable_admission_plugins = [name for name in lacking if name not in enable_admission_plugins]
        options["--enable-admission-plugins"] = ",".join(enable_admission_plugins) or None
        options["--disable-admission-plugins"] = ",".join(disable_admission_plugins) or None
        # No Leases: no other controllers work on a cluster of one program, and its tests shall see only their own writes.
        self._options = ["--leader-elect=false"] + ["--no-controllers"] * (not controllers) + ["--metrics"] * metrics
        self._options += ["--allow-loopback-endpoints"] * loopback_endpoints
        self._options += [text for name, value in options.items() if value is not None for text in (name, str(value))]
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._client: Client | None = None
        self._url = ""
        self._abandoned = False

    def __repr__(self) -> str:
        return f"<LocalCluster at {self._url}>" if self._process is not None else "<LocalCluster that does not run>"

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the server and return when it is ready.

        Raises:
            ConfigError: The server did not start, or runs already.
            asyncio.CancelledError: The caller was cancelled; the server's process has ended, and its files are deleted.
        """
        starting = asyncio.ensure_future(asyncio.to_thread(self._start))
        try:
            await result_of(starting)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: it ends when its process does.
            self._abandoned = True
            process = self._process
            if process is not None:
                process.kill()
            with contextlib.suppress(ConfigError):  # says that the server ended
                await finish(starting)
            await self.stop()
            raise
        finally:
            self._abandoned = False

    async def stop(self) -> None:
        """Close the client, end the server's process and remove its files. Without a running server it does nothing.

        Raises:
            asyncio.CancelledError: The caller was cancelled; the server is stopped and its files are deleted nevertheless.
        """
        client, self._client = self._client, None
        steps = [] if client is None else [client.close]
        await close_all(*steps, lambda: finish(asyncio.to_thread(self._stop)))

    def kill(self) -> None:
        """Kill the server's process, as a crash: connections break, and requests fail. ``restart`` starts it again."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Start a new process at the same address, which the same clients trust; the old process is killed if it runs.

        Stored objects are lost unless the cluster has ``data``.

        Raises:
            ConfigError: as on entering, or the port was taken meanwhile.
        """
        self.kill()
        self._end_process()
        self._launch(int(self._url.rpartition(":")[2]))

    @contextlib.asynccontextmanager
    async def closing(self) -> AsyncIterator[Self]:
        """Stop the server at the end of the block, in which the caller starts it."""
        try:
            yield self
        finally:
            await self.stop()

    @property
    def url(self) -> str:
        """The URL of the server: ``https://127.0.0.1:PORT``."""
        return self._url

    @property
    def kubeconfig(self) -> Path:
        """The path of an administrator's kubeconfig, which is deleted with the cluster."""
        return self._path("kubeconfig")

    @property
    def ca_file(self) -> Path:
        """The path of the certificate authority (PEM) that clients of the server must trust."""
        return self._path("ca.crt")

    @property
    def log(self) -> str:
        """The server's log so far."""
        return self._path("server.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def config(self) -> ClusterConfig:
        from kubeloop.config import load_config

        return load_config(self.kubeconfig)

    @property
    def client(self) -> Client:
        """A client of the running event loop, closed with the cluster. Only for ``async with LocalCluster()`` or ``await start()``."""
        if self._client is None:
            from kubeloop.client import Client

            self._client = Client.from_config(self.kubeconfig)
        return self._client

    def _path(self, name: str) -> Path:
        if self._folder is None:
            raise ConfigError("the cluster is not running: enter LocalCluster (with, or async with) first")
        return self._folder / name

    def _start(self) -> None:
        if self._folder is not None:
            raise ConfigError(f"the cluster at {self._url} runs already: stop it first, or make another LocalCluster")
        self._folder = Path(tempfile.mkdtemp(prefix="kubeloop-cluster-"))
        self._launch(0)

    def _launch(self, port: int) -> None:
        command = [sys.executable, "-m", "kubeloop", "server", "--port", str(port), "--exit-with-stdin"]
        command += ["--kubeconfig", str(self.kubeconfig), "--cert-dir", str(self._path("authority")), *self._options]
        # The server is the kubeloop of this process, wherever it was imported from.
        package = str(Path(kubeloop.__file__).parent.parent)
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
        try:
            with self._path("server.log").open("ab") as log:
                # A separate process group: Ctrl-C is for the program, which may still need the server to end in order.
                self._process = subprocess.Popen(  # noqa: S603 - this very Python, and arguments made above
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env={**os.environ, "PYTHONPATH": path},
                    process_group=0,  # Windows ignores it, and has a flag instead
                    creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                )
            if self._abandoned:
                raise ConfigError("the start was cancelled")
            self._url = self._await_ready(self._process)
            self._write_ca()
        except BaseException:
            self._stop()
            raise

    def _await_ready(self, process: subprocess.Popen[bytes]) -> str:
        # In a thread, since Windows cannot wait for a pipe with a timeout. It ends with the line, or with the process.
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_read_line, args=(process, lines), name="kubeloop-cluster-ready", daemon=True).start()
        try:
            line = lines.get(timeout=self._timeout)
        except queue.Empty:
            raise ConfigError(f"the server was not ready within {self._timeout:g} s:\n{self._tail()}") from None
        if not line.endswith(b"\n"):
            raise ConfigError(f"the server ended with exit status {process.wait()}:\n{self._tail()}")
        found = re.match(r"ready (https://\S+) kubeconfig=", line.decode())
        if found is None:
            raise ConfigError(f"the server said {line.decode().strip()!r} instead of its ready line:\n{self._tail()}")
        return found[1]

    def _write_ca(self) -> None:
        found = re.search(r"certificate-authority-data: (\S+)", self.kubeconfig.read_text())
        assert found is not None
        self.ca_file.write_bytes(base64.b64decode(found[1]))

    def _tail(self) -> str:
        return "\n".join(self.log.splitlines()[-30:])

    def _stop(self) -> None:
        try:
            self._end_process()
        finally:
            folder, self._folder = self._folder, None
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                pass  # killed below
            finally:
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        pipe.close()


def _read_line(process: subprocess.Popen[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    assert process.stdout is not None
    lines.put(process.stdout.readline())
