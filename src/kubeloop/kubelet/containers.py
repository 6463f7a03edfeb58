"""The kubelet's records of the containers of a pod, and the decision which containers start next. Pure, without clock or I/O.

Source: Kubernetes pkg/kubelet/kuberuntime (computePodActions, computeInitContainerActions, doBackOff), pkg/kubelet/container/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from kubeloop.meta.time import format_time, parse_time
from kubeloop.types import JSONObject

#: Seconds: the first and the longest back-off, and the time from one end of a container to the next after which back-off starts again.
FIRST_BACKOFF, LONGEST_BACKOFF, RESET_AFTER = 10.0, 300.0, 600.0
#: The start time that containerd reports for a container that never ran.
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


@dataclass
class ContainerRun:
    """One run of a container: from its creation to its end."""

    id: str
    attempt: int
    started_at: datetime = NEVER
    finished_at: datetime | None = None
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    #: Results of the probes: readiness, and startup together with the hook postStart.
    ready: bool = False
    started: bool = False

    @property
    def running(self) -> bool:
        return self.finished_at is None


@dataclass
class ContainerRecord:
    """The current and the last run of a container, its back-off, and the reason why it waits."""

    name: str
    current: ContainerRun | None = None
    last: ContainerRun | None = None
    waiting_reason: str = ""
    waiting_message: str = ""
    #: Seconds to wait between the end of a run and the next one, and the end of the run for which they were computed.
    backoff: float = 0.0
    backoff_since: datetime = NEVER
    restarts: int = 0

    @property
    def running(self) -> bool:
        return self.current is not None and self.current.running

    def left(self, now: datetime) -> float:
        """Return the seconds of back-off that remain before the container may start again."""
        if self.current is None or self.current.finished_at is None or not self.backoff:
            return 0.0
        finished = self.current.finished_at
        if (finished - self.backoff_since).total_seconds() > RESET_AFTER:
            return 0.0
        return max(0.0, self.backoff - (now - finished).total_seconds())

    def count_restart(self) -> None:
        """Double the back-off after the end of the current run, or reset it if the previous end is more than RESET_AFTER seconds ago."""
        if self.current is None or self.current.finished_at is None:
            return
        finished = self.current.finished_at
        if not self.backoff or (finished - self.backoff_since).total_seconds() > RESET_AFTER:
            self.backoff = FIRST_BACKOFF
        else:
            self.backoff = min(self.backoff * 2, LONGEST_BACKOFF)
        self.backoff_since = finished

    def begin(self, run: ContainerRun) -> None:
        """Record a new current run. An earlier one becomes the last run, and its end counts as a restart and for the back-off."""
        if self.current is not None:
            self.count_restart()
            self.restarts += 1
            self.last = self.current
        self.current = run
        self.waiting_reason = self.waiting_message = ""


Records = Mapping[str, ContainerRecord]


@dataclass
class PodActions:
    """The next step of a pod: containers to start in this order, containers that wait for their back-off, or the end of the whole pod."""

    start: list[JSONObject] = field(default_factory=list)
    #: Names of containers whose back-off runs, with the remaining seconds.
    back_off: dict[str, float] = field(default_factory=dict)
    #: No main container will run again: the remaining containers stop, and the pod's phase becomes Succeeded or Failed.
    finished: bool = False


def is_sidecar(container: JSONObject) -> bool:
    """Return whether an init container is a sidecar, which has the restart policy Always (KEP-753)."""
    return container.get("restartPolicy") == "Always"


def all_containers(pod: JSONObject) -> Iterator[JSONObject]:
    """Yield the init containers, containers and ephemeral containers of a pod, in this order."""
    spec = pod["spec"]
    yield from spec.get("initContainers") or ()
    yield from spec["containers"]
    yield from spec.get("ephemeralContainers") or ()


def restarts(pod: JSONObject, container: JSONObject, run: ContainerRun) -> bool:
    """Return whether a container restarts after a run, by its own restart rules and policy or else by the pod's policy.

    Source: KEP-5307 (restartPolicyRules), KEP-753.
    """
    for rule in container.get("restartPolicyRules") or ():
        codes = (rule.get("exitCodes") or {}).get("values") or ()
        operator = (rule.get("exitCodes") or {}).get("operator")
        if rule.get("action") == "Restart" and ((operator == "In") == (run.exit_code in codes)):
            return True
    policy = container.get("restartPolicy") or pod["spec"].get("restartPolicy") or "Always"
    init = any(one is container for one in pod["spec"].get("initContainers") or ())
    if policy == "Always" and init and not is_sidecar(container):
        policy = "OnFailure"
    return bool(policy == "Always" or (policy == "OnFailure" and run.exit_code != 0))


def decide(pod: JSONObject, records: Records, now: datetime) -> PodActions:
    """Return the next step of a pod that is not being deleted: which containers to start, and whether the pod has finished.

    Args:
        pod: The pod.
        records: The records of all containers of the pod, by name.
        now: The present time.
    """
    actions = PodActions()
    spec = pod["spec"]
    mains = [records[one["name"]] for one in spec["containers"]]
    initialized = any(one.current is not None for one in mains)
    for container in spec.get("ephemeralContainers") or ():
        if records[container["name"]].current is None and not records[container["name"]].waiting_reason:
            actions.start.append(container)
    sidecars: list[JSONObject] = []
    for container in spec.get("initContainers") or ():
        record = records[container["name"]]
        if is_sidecar(container):
            if not record.running:
                sidecars.append(container)
            if not initialized and not (record.current is not None and record.running and record.current.started):
                _start(actions, sidecars, records, now)
                return actions
            continue
        if initialized:
            continue
        run = record.current
        if run is not None and not run.running and run.exit_code == 0:
            continue
        if run is not None and not run.running and not restarts(pod, container, run):
            actions.finished = True
            return actions
        if run is None or not run.running:
            sidecars.append(container)
        _start(actions, sidecars, records, now)
        return actions
    chosen = [
        container
        for container, record in zip(spec["containers"], mains, strict=True)
        if record.current is None or (not record.current.running and restarts(pod, container, record.current))
    ]
    if not chosen and not any(one.running for one in mains):
        actions.finished = True
        actions.start.clear()
        return actions
    _start(actions, [*sidecars, *chosen], records, now)
    return actions


def _start(actions: PodActions, containers: list[JSONObject], records: Records, now: datetime) -> None:
    for container in containers:
        left = records[container["name"]].left(now)
        if left > 0:
            actions.back_off[container["name"]] = left
        else:
            actions.start.append(container)


def backoff_message(pod: JSONObject, record: ContainerRecord) -> str:
    """Return the message of a container that waits with the reason CrashLoopBackOff."""
    seconds = int(record.backoff)
    minutes = f"{seconds // 60}m{seconds % 60}s" if seconds >= 60 else f"{seconds}s"
    return f"back-off {minutes} restarting failed container={record.name} pod={pod_subject(pod)}"


def pod_subject(pod: JSONObject) -> str:
    """Return a pod's name in messages of the kubelet: NAME_NAMESPACE(UID)."""
    metadata = pod["metadata"]
    return f"{metadata['name']}_{metadata.get('namespace')}({metadata.get('uid')})"


def restored_records(pod: JSONObject, now: datetime) -> dict[str, ContainerRecord]:
    """Return the records of a pod's containers by name when the kubelet starts, from the status that the previous kubelet wrote.

    Containers that were running ended with the previous kubelet: they get exit code 137 and the reason ContainerStatusUnknown.
    """
    status = pod.get("status") or {}
    written = {one["name"]: one for kind in _STATUSES for one in status.get(kind) or ()}
    result = {}
    for container in all_containers(pod):
        name = container["name"]
        before = written.get(name) or {}
        record = result[name] = ContainerRecord(name, restarts=before.get("restartCount") or 0)
        record.last = _restored(record.restarts - 1, (before.get("lastState") or {}).get("terminated"))
        state = before.get("state") or {}
        if state.get("terminated"):
            record.current = _restored(record.restarts, state["terminated"])
        elif state.get("running"):
            record.current = ContainerRun(
                (before.get("containerID") or "").rpartition("/")[2],
                record.restarts,
                parse_time(state["running"]["startedAt"]),
                now,
                137,
                9,
                "ContainerStatusUnknown",
                "The container could not be located when the pod was terminated",
            )
        elif state.get("waiting") and record.last is not None:
            record.current, record.last = record.last, None
            record.current.attempt = record.restarts
    return result


_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def _restored(attempt: int, tree: JSONObject | None) -> ContainerRun | None:
    if not tree:
        return None
    return ContainerRun(
        (tree.get("containerID") or "").rpartition("/")[2],
        max(attempt, 0),
        parse_time(tree["startedAt"]) if tree.get("startedAt") else NEVER,
        parse_time(tree["finishedAt"]) if tree.get("finishedAt") else NEVER,
        tree.get("exitCode") or 0,
        tree.get("signal") or 0,
        tree.get("reason") or "",
        tree.get("message") or "",
    )


def field_path(pod: JSONObject, container: str) -> str:
    """Return the ``fieldPath`` of a container in Events: ``spec.containers{NAME}`` or ``spec.initContainers{NAME}``."""
    init = any(one["name"] == container for one in pod["spec"].get("initContainers") or ())
    return f"spec.{'initContainers' if init else 'containers'}{{{container}}}"


def deadline_left(pod: JSONObject, start_time: datetime, now: datetime) -> float | None:
    """Return the seconds until a pod's ``activeDeadlineSeconds`` are over; negative afterwards, None without a deadline."""
    seconds = pod["spec"].get("activeDeadlineSeconds")
    return None if seconds is None else (start_time + timedelta(seconds=seconds) - now).total_seconds()


def termination(run: ContainerRun) -> JSONObject:
    """Return the ``terminated`` state of an ended run, for the status of its container."""
    result: JSONObject = {"exitCode": run.exit_code, "startedAt": format_time(run.started_at)}
    result["finishedAt"] = format_time((run.finished_at or NEVER).replace(microsecond=0))
    for name, value in (("reason", run.reason), ("message", run.message), ("containerID", f"process://{run.id}" if run.id else "")):
        if value:
            result[name] = value
    return result
