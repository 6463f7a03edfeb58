"""Runs one pod: starts and stops its containers, and writes its status, until the pod is deleted.

Source: Kubernetes pkg/kubelet/pod_workers.go, kubelet.go (SyncPod, SyncTerminatingPod, SyncTerminatedPod), kuberuntime_container.go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import TypeVar

from kubeloop.api.core.v1 import Pod
from kubeloop.client import DeleteOptions
from kubeloop.codec import to_dict
from kubeloop.kubelet.container_creation import ContainerInputs, NodeServices, create_container, termination_message
from kubeloop.kubelet.container_process import StartError
from kubeloop.kubelet.container_spec import CreationError, hosts_file
from kubeloop.kubelet.containers import (
    DEADLINE_MESSAGE,
    ContainerRecord,
    ContainerRun,
    all_containers,
    backoff_message,
    deadline_left,
    decide,
    field_path,
    is_sidecar,
    pod_subject,
    restarts,
    restored_records,
)
from kubeloop.kubelet.environment import ConfigurationError, PodFields
from kubeloop.kubelet.images import ImageEntry, ImageError
from kubeloop.kubelet.logs import PodLogs
from kubeloop.kubelet.pod_status import StatusFacts, differs, pod_status, status_patch
from kubeloop.kubelet.probes import ProbeFailure, ProbeTarget, execute
from kubeloop.kubelet.running_container import RunningContainer
from kubeloop.kubelet.volume_mounter import VolumeMounter
from kubeloop.kubelet.volumes import PodVolumes
from kubeloop.meta import Conflict, Invalid, KubeloopError, NotFound
from kubeloop.tasks import end_tasks, result_of, wait_all
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.kubelet")
T = TypeVar("T")
#: Seconds until the worker retries to create a container.
_RETRY = 10.0
_FINAL = ("Succeeded", "Failed")


class _Deleted(Exception):
    """The pod's deletion was requested while a container was being created."""


class PodWorker:
    """Owns the containers, volumes and address of one pod.

    Guarantees:
        The end of a container is recorded before it starts again. When ``run`` returns or is cancelled, no process of the pod is left.
    """

    def __init__(self, pod: Pod, node: NodeServices) -> None:
        self._node = node
        self._pod = pod
        self._tree = to_dict(pod)
        self.records: dict[str, ContainerRecord] = restored_records(self._tree, node.clock.wall())
        self.running: dict[str, RunningContainer] = {}
        status = pod.status
        self._start_time = status.start_time or node.clock.wall()
        self.ip = node.host_ip if pod.spec.host_network else node.addresses.allocate(pod.metadata.uid, status.pod_ip or "")
        self.logs = PodLogs(node.folder / "logs" / f"{pod.metadata.namespace}_{pod.metadata.name}_{pod.metadata.uid}")
        self._wake = asyncio.Event()
        self._deletion = asyncio.Event()
        self._tasks = node.tasks.child()
        self._containers: set[asyncio.Task[None]] = set()
        self._mounter = VolumeMounter(node.volumes, self._tasks, node.sync_frequency, self._mount_failed, self._wake.set)
        self._ready_volumes = False
        #: Times of the clock until which the next attempt to create a container waits, by name of the container.
        self._start_after: dict[str, float] = {}
        self._reason = self._message = ""
        self._retry: float | None = None
        self._back_offs: dict[str, datetime] = {}
        self._deadline = 0.0
        self._hosts = ""
        self.update(pod)

    @property
    def pod(self) -> Pod:
        return self._pod

    @property
    def tree(self) -> JSONObject:
        return self._tree

    @property
    def volumes(self) -> PodVolumes:
        return self._mounter.volumes

    @property
    def uid(self) -> str:
        return self._pod.metadata.uid

    def update(self, pod: Pod) -> None:
        """Replace the pod by a newer version; a deletion timestamp starts its termination."""
        former, self._pod, self._tree = self._tree, pod, to_dict(pod)
        if former["spec"] != self._tree["spec"]:
            self._start_after.clear()
        for container in all_containers(self._tree):
            self.records.setdefault(container["name"], ContainerRecord(container["name"]))
        if pod.metadata.deletion_timestamp is not None:
            grace = float(pod.metadata.deletion_grace_period_seconds or 0)
            deadline = self._node.clock.now() + grace
            self._deadline = min(self._deadline, deadline) if self._deletion.is_set() else deadline
            self._deletion.set()
        self._wake.set()

    def removed(self) -> None:
        """Stop the pod without a further grace period, because the server no longer has it."""
        if not self._deletion.is_set():
            self._deletion.set()
            self._deadline = self._node.clock.now()
        self._deadline = min(self._deadline, self._node.clock.now())
        self._wake.set()

    async def run(self) -> None:
        """Run the pod until it is deleted."""
        try:
            while not self._deletion.is_set():
                self._wake.clear()
                self._retry = None
                with contextlib.suppress(_Deleted):
                    await self._sync()
                await self._wait()
            await self._terminate()
        finally:
            await self._end_all()

    # ----------------------------------------------------------------------------------------------------------------------- sync

    async def _wait(self) -> None:
        """Wait until the pod changes, a container ends, or the time of the next retry comes."""
        if self._retry is None:
            await self._wake.wait()
            return
        waiting = asyncio.ensure_future(self._wake.wait())
        sleeping = asyncio.ensure_future(self._node.clock.sleep(max(self._retry, 0.01)))
        try:
            await asyncio.wait((waiting, sleeping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(waiting, sleeping)

    def _again(self, seconds: float) -> None:
        self._retry = seconds if self._retry is None else min(self._retry, seconds)

    async def _sync(self) -> None:
        try:
            await self._sync_pod()
        except KubeloopError as error:
            _LOG.warning("pod %s: %s; retrying", pod_subject(self._tree), error)
            self._again(_RETRY / 5)

    async def _sync_pod(self) -> None:
        if (self._pod.status.phase or "") in _FINAL:
            await self._end_all()
            return
        now = self._node.clock.wall()
        left = deadline_left(self._tree, self._start_time, now)
        if left is not None and left <= 0:
            self._reason, self._message = "DeadlineExceeded", DEADLINE_MESSAGE
        if self._reason:
            await self._finish()
            return
        if left is not None:
            self._again(left)
        if not await self._mount():
            await self.write_status()
            return
        actions = decide(self._tree, self.records, now)
        if actions.finished:
            await self._finish()
            return
        for name, seconds in actions.back_off.items():
            self._back_off(self.records[name])
            self._again(seconds)
        if actions.start and not self._pod.status.start_time:
            await self.write_status()
        for container in actions.start:
            left = self._start_after.get(container["name"], 0.0) - self._node.clock.now()
            if left > 0:
                self._again(left)
                continue
            await self._start(container)
            await self.write_status()
        await self.write_status()

    async def _mount(self) -> bool:
        """Create or update the volumes; return whether all of them were created, even if an update failed."""
        try:
            if not self._ready_volumes:
                self._make_folders()
        except OSError as error:
            text = f"error making pod data directories: {error.filename or ''}: {(error.strerror or str(error)).lower()}"
            self._node.events.warning(self._pod, "FailedToMakePodDataDirectories", text)
            self._again(_RETRY)
            return False
        seconds = await self._mounter.mount(self._pod, self._tree, self._fields())
        if seconds is not None:
            self._again(seconds)
        self._ready_volumes = self._mounter.mounted(self._tree)
        return self._ready_volumes

    def _mount_failed(self, message: str) -> None:
        self._node.events.warning(self._pod, "FailedMount", message)

    def _make_folders(self) -> None:
        folder = self._node.volumes.pod_folder(self.uid)
        folder.mkdir(parents=True, exist_ok=True)
        self._hosts = ""
        self.write_hosts()
        resolver, warnings = self._node.resolver(self._tree)
        (folder / "resolv.conf").write_text(resolver.text)
        for warning in warnings:
            self._event("DNSConfigForming", warning, "", warning=True)

    def write_hosts(self) -> None:
        """Write the pod's hosts file if its content changed. The file is overwritten in place, because containers have it mounted."""
        path, follows = self._node.volumes.pod_folder(self.uid) / "etc-hosts", self._pod.spec.dns_policy in (None, "", "ClusterFirst")
        text = hosts_file(self._tree, self.ip, self._node.hosts(self._pod.metadata.namespace) if follows else ())
        if text != self._hosts and path.parent.is_dir():
            path.write_text(text)
            self._hosts = text

    def _fields(self) -> PodFields:
        return PodFields(self.ip, self._node.host_ip, self._node.allocatable)

    def _back_off(self, record: ContainerRecord) -> None:
        run = record.current
        record.waiting_reason, record.waiting_message = "CrashLoopBackOff", backoff_message(self._tree, record)
        ended = run.finished_at if run is not None else None
        if ended is not None and self._back_offs.get(record.name) != ended:
            self._back_offs[record.name] = ended
            text = f"Back-off restarting failed container {record.name} in pod {pod_subject(self._tree)}"
            self._event("BackOff", text, record.name, warning=True)

    # ---------------------------------------------------------------------------------------------------------------------- start

    async def _start(self, container: JSONObject) -> None:
        """Start a container, or record why it waits."""
        record = self.records[container["name"]]
        try:
            entry = await self._unless_deleted(self._ensure_image(container))
        except ImageError as error:
            self._start_failed(record, error.reason, error.message, error.reason)
            return
        again = record.current is not None
        run = ContainerRun(f"{self._node.prefix}{uuid.uuid4().hex}", record.restarts + again)
        try:
            started = await self._unless_deleted(self._create(container, entry, run))
        except (ConfigurationError, CreationError) as error:
            reason = "CreateContainerConfigError" if isinstance(error, ConfigurationError) else "CreateContainerError"
            self._start_failed(record, reason, str(error), str(error))
            return
        except StartError as error:
            self._record_start_error(record, run, str(error))
            return
        self._event("Started", "Container started", record.name)
        run.started_at = self._node.clock.wall().replace(microsecond=0)
        record.begin(run)
        self.logs.delete_before(record.name, run.attempt)
        self.running[record.name] = started
        target = self._target(started)
        task = asyncio.create_task(self._watch(started, record), name=f"container {record.name}")
        self._containers.add(task)
        task.add_done_callback(self._containers.discard)
        if not await self._after_start(container, started, target):
            return
        started.start_probes(
            self._tasks,
            self._subject(container),
            target,
            self._wake.set,
            lambda probe, text: self._event("Unhealthy", f"{probe} probe failed: {text}", record.name, warning=True),
            lambda probe: self._restart_unhealthy(started, target, probe),
        )

    def _start_failed(self, record: ContainerRecord, reason: str, message: str, fault: str) -> None:
        """Record why a container could not be created, and retry later. As upstream, each attempt records an Event."""
        self._event("Failed", f"Error: {fault}", record.name, warning=True)
        record.waiting_reason, record.waiting_message = reason, message
        # After a failed pull the next sync, which the written status starts, shows ImagePullBackOff.
        if reason != "ErrImagePull":
            self._start_after[record.name] = self._node.clock.now() + _RETRY
        self._again(_RETRY)

    async def _ensure_image(self, container: JSONObject) -> ImageEntry:
        def report(warning: bool, reason: str, message: str) -> None:
            self._event(reason, message, container["name"], warning=warning)

        policy = container.get("imagePullPolicy") or "IfNotPresent"
        return await self._node.puller.ensure(container.get("image") or "", policy, self.uid, report)

    async def _create(self, container: JSONObject, entry: ImageEntry, run: ContainerRun) -> RunningContainer:
        facts = ContainerInputs(self._tree, container, entry, self.volumes, self._fields(), self.logs.path(container["name"], run.attempt))
        return await create_container(self._node, facts, run, partial(self._event, "Created", "Container created", container["name"]))

    def _record_start_error(self, record: ContainerRecord, run: ContainerRun, fault: str) -> None:
        text = (
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
            f"unable to start container process: {fault}: unknown"
        )
        self._event("Failed", f"Error: {text}", record.name, warning=True)
        run.finished_at = self._node.clock.wall()
        run.exit_code, run.reason, run.message = 128, "StartError", text
        record.begin(run)
        container = next(one for one in all_containers(self._tree) if one["name"] == record.name)
        if restarts(self._tree, container, run):
            record.waiting_reason, record.waiting_message = "RunContainerError", text
        self._wake.set()

    async def _after_start(self, container: JSONObject, started: RunningContainer, target: ProbeTarget) -> bool:
        """Run the postStart hook of a container, if any; if it fails, kill the container and return False."""
        hook = (container.get("lifecycle") or {}).get("postStart")
        if not hook:
            return True
        try:
            await self._unless_deleted(execute(hook, target, 0, "kube-lifecycle/1.36"))
        except ProbeFailure as failure:
            self._event("FailedPostStartHook", "PostStartHook failed", container["name"], warning=True)
            _LOG.info("pod %s: postStart of %s failed: %s", pod_subject(self._tree), container["name"], failure)
            self._kill_soon(started, target, "FailedPostStartHook", self._grace_of(None))
            return False
        return True

    async def _unless_deleted(self, work: Awaitable[T]) -> T:
        """Return the result of ``work``, or cancel ``work`` and raise _Deleted when the pod's deletion is requested."""
        task = asyncio.ensure_future(work)
        deletion = asyncio.ensure_future(self._deletion.wait())
        try:
            await asyncio.wait((task, deletion), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _Deleted
            return task.result()
        finally:
            await end_tasks(task if not task.done() else None, deletion)

    def _subject(self, container: JSONObject) -> str:
        return f"{container['name']} of {pod_subject(self._tree)}"

    def _target(self, started: RunningContainer) -> ProbeTarget:
        run = partial(started.collect, self._node.runtime)
        return ProbeTarget.from_container(started.container, self.ip, run, self._node.clock)

    # ------------------------------------------------------------------------------------------------------------------------ end

    async def _watch(self, started: RunningContainer, record: ContainerRecord) -> None:
        """Wait until a container ends, and record how it ended."""
        run = started.run
        try:
            run.exit_code = code = await started.watch(self._node.clock)
            run.reason = "OOMKilled" if started.out_of_memory else "Error" if code else "Completed"
            run.message = termination_message(self._node, self.uid, started)
        except Exception as error:  # noqa: BLE001  # otherwise the container would seem to run forever
            _LOG.exception("pod %s: the end of %s could not be read", pod_subject(self._tree), record.name)
            run.exit_code, run.reason, run.message = 137, "ContainerStatusUnknown", str(error)
            await started.kill()
        self.running.pop(record.name, None)
        run.ready = run.started = False
        run.finished_at = self._node.clock.wall()
        self._wake.set()

    def _restart_unhealthy(self, started: RunningContainer, target: ProbeTarget, probe: str) -> None:
        container = started.container
        grace = (container.get(f"{probe}Probe") or {}).get("terminationGracePeriodSeconds")
        policy = container.get("restartPolicy") or self._pod.spec.restart_policy or "Always"
        text = f"Container {container['name']} failed {probe} probe" + (", will be restarted" if policy != "Never" else "")
        self._kill_soon(started, target, text, self._grace_of(grace))

    def _kill_soon(self, started: RunningContainer, target: ProbeTarget, message: str, grace: float) -> None:
        self._event("Killing", message, started.container["name"])
        deadline = self._node.clock.now() + grace
        failed = partial(self._event, "FailedPreStopHook", "PreStopHook failed", started.container["name"], warning=True)
        work = partial(started.stop, self._node.clock, target, lambda: deadline - self._node.clock.now(), failed)
        self._tasks.start(work, name="container-stop", subject=self._subject(started.container))

    def _grace_of(self, override: int | None) -> float:
        seconds = override if override is not None else self._pod.spec.termination_grace_period_seconds
        return float(seconds if seconds is not None else 30)

    async def _stop_all(self, grace: Callable[[], float]) -> None:
        """Stop the main containers at the same time, and then the sidecars one by one in reverse order.

        ``grace`` returns the remaining seconds of the grace period.
        """
        sidecars = [one["name"] for one in self._tree["spec"].get("initContainers") or () if is_sidecar(one)]
        first = [one for name, one in self.running.items() if name not in sidecars]
        await asyncio.gather(*(self._stop(one, grace) for one in first))
        for name in reversed(sidecars):
            if name in self.running:
                await self._stop(self.running[name], grace)
        for task in list(self._containers):
            await result_of(task)

    async def _stop(self, started: RunningContainer, grace: Callable[[], float]) -> None:
        name = started.container["name"]
        self._event("Killing", f"Stopping container {name}", name)
        failed = partial(self._event, "FailedPreStopHook", "PreStopHook failed", name, warning=True)
        await started.stop(self._node.clock, self._target(started), grace, failed)

    async def _finish(self) -> None:
        """Stop the containers that still run, and write the final status."""
        deadline = self._node.clock.now() + self._grace_of(None)

        def grace() -> float:
            end = min(deadline, self._deadline) if self._deletion.is_set() else deadline
            return end - self._node.clock.now()

        await self._stop_all(grace)
        await self.write_status(terminal=True)

    async def _terminate(self) -> None:
        """Stop the containers, write the last status, delete volumes and logs, and delete the pod from the server."""
        await self._stop_all(lambda: self._deadline - self._node.clock.now())
        await self._end_all()
        with contextlib.suppress(KubeloopError):
            await self.write_status(terminal=True)
        await asyncio.to_thread(self._node.volumes.unmount, self.uid)
        await asyncio.to_thread(self.logs.delete)
        options = DeleteOptions(uid=self.uid)
        while True:
            try:
                await self._node.client.delete(self._pod, grace_period_seconds=0, options=options)
            except (NotFound, Conflict):
                return  # The pod is deleted, or another pod of the same name has replaced it.
            except KubeloopError as error:
                _LOG.warning("pod %s: the deletion cannot be confirmed: %s; retrying", pod_subject(self._tree), error)
                await self._node.clock.sleep(1.0)
                continue
            return

    async def _end_all(self) -> None:
        """Stop the probes and kill the remaining containers, so that no process of the pod is left."""
        await self._tasks.stop()
        await self._mounter.close()
        for started in list(self.running.values()):
            await started.kill()
        await wait_all(*self._containers)

    # --------------------------------------------------------------------------------------------------------------------- status

    async def write_status(self, *, terminal: bool = False) -> None:
        """Write the pod's status if it changed.

        Args:
            terminal: Whether no container will run again.
        """
        sandbox = self._ready_volumes and not terminal
        facts = StatusFacts(self._node.host_ip, self.ip if self._ready_volumes else "", self._start_time, sandbox, terminal)
        if self._reason and terminal:
            facts = StatusFacts(facts.host_ip, facts.pod_ip, self._start_time, sandbox, terminal, self._reason, self._message)
        status = pod_status(self._tree, self.records, facts, self._node.clock.wall())
        if not differs(self._tree, status):
            return
        metadata, change = self._pod.metadata, status_patch(self._tree, status)
        try:
            stored = await self._node.client.patch(
                Pod, metadata.name, change, type="strategic", namespace=metadata.namespace, subresource="status"
            )
        except NotFound:
            return
        except (Conflict, Invalid) as error:
            if isinstance(error, Invalid) and "metadata.uid" not in str(error):
                raise
            # The uid is a precondition: another pod of the same name may have replaced the pod, which a watch event will report.
            _LOG.debug("pod %s: %s", pod_subject(self._tree), error)
            return
        self._tree["status"] = to_dict(stored).get("status") or {}

    def evict(self, reason: str, message: str) -> None:
        """Fail the pod, with the reason and message for its status; the first reason stays."""
        if not self._reason:
            self._reason, self._message = reason, message
            self._event(reason, message, "", warning=True)
            self._wake.set()

    def reject(self, reason: str, message: str) -> None:
        """Fail the pod before it starts, because the node does not admit it."""
        self.evict(reason, message)
        self._message = f"Pod was rejected: {message}"

    def _event(self, reason: str, message: str, container: str, *, warning: bool = False) -> None:
        record = self._node.events.warning if warning else self._node.events.normal
        record(self._pod, reason, message, field_path=field_path(self._tree, container) if container else "")
