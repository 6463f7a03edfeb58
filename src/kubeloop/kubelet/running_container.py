"""A running container: its process, log, probes and attached clients, and how it stops."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from kubeloop.kubelet.cgroups import ContainerCgroup
from kubeloop.kubelet.container_process import ContainerProcess, StartError
from kubeloop.kubelet.containers import ContainerRun
from kubeloop.kubelet.logs import LogWriter
from kubeloop.kubelet.probes import ProbeFailure, ProbeTarget, execute, probe_repeatedly
from kubeloop.kubelet.runtime import ProcessRuntime, ProcessSpec, follow_sizes
from kubeloop.kubelet.streaming import Terminal
from kubeloop.meta.errors import KubeloopError
from kubeloop.tasks import Supervisor, end_tasks, finish, result_of, wait_all, wait_within
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.kubelet")
_ENDS = (OSError, KubeloopError)
#: Minimum seconds between a container's stop signal and SIGKILL.
MINIMUM_GRACE = 2.0
#: Seconds for which attached clients may read the rest of an ended container's output. Afterwards only the log gets output.
_SLOW_CLIENT = 10.0
_OUTPUT = 64 * 1024


class RunningContainer:
    """A container whose process runs. The owner must call ``watch`` once, which ends when the process does.

    Args:
        container: The container's specification.
        run: The record of this run, whose ``ready`` and ``started`` the probes set.
        process: The container's process.
        spec: The specification of the process; commands in the container get the same environment and user.
        log: The log for the container's output.
        cgroup: The container's cgroup, which is removed when the process has ended; None: the kubelet may not create any.
    """

    def __init__(
        self,
        container: JSONObject,
        run: ContainerRun,
        process: ContainerProcess,
        spec: ProcessSpec,
        log: LogWriter,
        cgroup: ContainerCgroup | None = None,
    ) -> None:
        self.container = container
        self.run = run
        self.process = process
        self.spec = spec
        self.log = log
        self.cgroup = cgroup
        #: Whether the container was killed because it used more memory than its limit.
        self.out_of_memory = False
        self._attached: set[Terminal] = set()
        self._stopping: asyncio.Future[None] | None = None
        self._output_ended, self._ignore_clients = asyncio.Event(), asyncio.Event()

    async def watch(self, clock: Clock) -> int:
        """Copy the output to the log and to attached clients until the process ends; return its exit code."""
        copying = asyncio.ensure_future(self.process.copy_output(self._write_output))
        try:
            self.run.signal = (await self.process.wait()).signal
            if not await wait_within(clock, _SLOW_CLIENT, copying):
                self._ignore_clients.set()
            return (await result_of(copying)).code
        finally:
            self._output_ended.set()
            await end_tasks(copying, expected=_ENDS, logger=_LOG)
            await self.process.close()
            self.log.close()
            if self.cgroup is not None:
                self.out_of_memory = self.cgroup.oom_kills() > 0
                await finish(asyncio.to_thread(self.cgroup.remove))

    async def _write_output(self, name: str, data: bytes) -> None:
        self.log.write(name, data)
        for terminal in list(self._attached):
            writing, ignoring = asyncio.ensure_future(terminal.write(name, data)), asyncio.ensure_future(self._ignore_clients.wait())
            try:
                await asyncio.wait((writing, ignoring), return_when=asyncio.FIRST_COMPLETED)
                if not writing.done() or writing.exception() is not None:
                    self._attached.discard(terminal)
            finally:
                await end_tasks(writing, ignoring, expected=_ENDS, logger=_LOG)

    # -------------------------------------------------------------------------------------------------------------------- commands

    async def execute(self, runtime: ProcessRuntime, command: list[str], terminal: Terminal, *, tty: bool = False) -> int:
        """Run a command in the container with a client's streams; return its exit code, 126 or 127 if the command cannot be started.

        Args:
            runtime: The runtime that starts the command.
            command: The program and its arguments.
            terminal: The client's streams.
            tty: Whether the command gets a terminal.
        """
        environment = {**self.spec.environment, "TERM": "xterm"} if tty else self.spec.environment
        spec = dataclasses.replace(self.spec, command=command, environment=environment, tty=tty, stdin=True)
        try:
            return await runtime.run(spec, self.process, terminal)
        except StartError as error:
            text = f"OCI runtime exec failed: exec failed: unable to start container process: {error}\n"
            await terminal.print(text, "stdout" if tty else "stderr")
            return 127 if error.missing else 126

    async def collect(self, runtime: ProcessRuntime, command: list[str]) -> tuple[int, str]:
        """Run a command in the container without input; return its exit code and the beginning of its output, about 64 KiB."""
        output: list[bytes] = []

        async def write(_: str, data: bytes) -> None:
            if sum(map(len, output)) < _OUTPUT:
                output.append(data)

        terminal = Terminal()
        terminal.write = write
        terminal.stdin.put_nowait(None)
        code = await self.execute(runtime, command, terminal)
        return code, b"".join(output).decode("utf-8", "replace")

    async def attach(self, terminal: Terminal) -> int:
        """Connect a client's streams to the container's process until its output ends; return 0, which is no exit code of the process."""
        self._attached.add(terminal)
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(follow_sizes(self.process, terminal))]
        tasks.append(asyncio.ensure_future(self._feed(terminal)))
        try:
            await self._output_ended.wait()
            return 0
        finally:
            self._attached.discard(terminal)
            await end_tasks(*tasks, expected=_ENDS, logger=_LOG)

    async def _feed(self, terminal: Terminal) -> None:
        while data := await terminal.input():
            await self.process.write(data)
        if self.container.get("stdinOnce") and not self.spec.tty:
            self.process.close_stdin()

    # ---------------------------------------------------------------------------------------------------------------------- probes

    def start_probes(
        self,
        tasks: Supervisor,
        subject: str,
        target: ProbeTarget,
        changed: Callable[[], object],
        unhealthy: Callable[[str, str], object],
        failed: Callable[[str], object],
    ) -> None:
        """Start the probes of the container; the readiness and liveness probes begin when the startup probe has succeeded.

        Args:
            tasks: The supervisor of the probes.
            subject: The name of the container in log messages.
            target: The container that is probed.
            changed: Called when the container's readiness or startup changes.
            unhealthy: Called with the name of a probe and its output after each failure.
            failed: Called with ``startup`` or ``liveness`` when that probe reaches its failure threshold.
        """
        container, run = self.container, self.run
        run.ready = not container.get("readinessProbe")

        def start_others() -> None:
            run.started = True
            changed()
            for name, on_result in (("readinessProbe", set_ready), ("livenessProbe", check_alive)):
                if probe := container.get(name):
                    report = partial(unhealthy, name.removesuffix("Probe").capitalize())
                    work = partial(probe_repeatedly, probe, target, on_result, report)
                    tasks.start(work, name=f"{name.removesuffix('Probe')}-probe", subject=subject)

        def set_ready(success: bool) -> bool:
            if run.ready != success:
                run.ready = success
                changed()
            return run.running

        def check_alive(success: bool) -> bool:
            if not success:
                failed("liveness")
            return success

        def check_started(success: bool) -> bool:
            if success:
                start_others()
            else:
                failed("startup")
            return False

        if probe := container.get("startupProbe"):
            work = partial(probe_repeatedly, probe, target, check_started, partial(unhealthy, "Startup"))
            tasks.start(work, name="startup-probe", subject=subject)
        else:
            start_others()

    # ------------------------------------------------------------------------------------------------------------------------ stop

    async def stop(self, clock: Clock, target: ProbeTarget, grace: Callable[[], float], hook_failed: Callable[[], object]) -> None:
        """Stop the container: run its preStop hook, send its stop signal, and kill it when the grace period is over.

        Args:
            clock: The clock of the grace period.
            target: The container that the hook addresses.
            grace: Returns the remaining seconds of the grace period, which may be shortened meanwhile.
            hook_failed: Called when the preStop hook fails.
        """
        if self._stopping is not None:
            await result_of(self._stopping)
            return
        self._stopping = asyncio.get_running_loop().create_future()
        try:
            hook = (self.container.get("lifecycle") or {}).get("preStop")
            if hook and grace() > 0:
                try:
                    await execute(hook, target, grace(), "kube-lifecycle/1.36")
                except ProbeFailure:
                    hook_failed()
            self.process.signal(_stop_signal(self.container))
            ended = asyncio.ensure_future(self.process.wait())
            started = clock.now()
            try:
                while not ended.done():
                    left = max(grace(), MINIMUM_GRACE - (clock.now() - started))
                    if left <= 0:
                        self.process.kill()
                        await wait_all(ended)
                        return
                    # In steps, because a second deletion may shorten the grace period.
                    await wait_within(clock, min(left, 1.0), ended)
            finally:
                await end_tasks(ended)
        finally:
            self._stopping.set_result(None)

    async def kill(self) -> None:
        """Kill the container, wait until its processes have ended, and close its log."""
        await self.process.close()
        self._output_ended.set()
        self.log.close()


def _stop_signal(container: JSONObject) -> int:
    name = (container.get("lifecycle") or {}).get("stopSignal")
    return int(getattr(signal, str(name), signal.SIGTERM))
