"""The states of simulated containers: from waiting to running to terminated, and again after a delay. No I/O.

The next state is computed from the state in the pod's status, the behaviour of the container, and the time. ``PodMemory`` has what a
kubelet remembers in addition (delays, attempts to pull), which is lost when the program restarts, as with a real kubelet.

Source: Kubernetes pkg/kubelet/kuberuntime (kuberuntime_manager.go, kuberuntime_container.go), pkg/kubelet/images/image_manager.go,
pkg/api/v1/pod/util.go (ContainerShouldRestart).
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from kubeloop.controlplane.simulation.annotations import ContainerRole, Simulation
from kubeloop.controlplane.simulation.pod_references import MissingReferences
from kubeloop.controlplane.simulation.probes import RetryDelay, Timeline, go_duration, next_delay, probe_results, remaining_delay, result_at
from kubeloop.meta import Quantity, format_time
from kubeloop.meta.time import parse_time
from kubeloop.types import JSONObject

#: Seconds for which the status shows that a container has ended, or that its image was not pulled, before the next state.
_SYNC = 1.0
#: The reason of containers that the action RestartAllContainers of a restart rule has removed.
RESTARTING_ALL = "RestartingAllContainers"
_REMOVED = "The container is removed because RestartAllContainers in place"
_TERMINATION_GRACE = 30
_NAME_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?{_NAME_PART}(?:/{_NAME_PART})*(?::\w[\w.-]{{0,127}})?(?:@[A-Za-z0-9+._-]+:[0-9a-fA-F]{{32,}})?"
)


class PodEvent(NamedTuple):
    """An Event to record about a pod."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass
class PodMemory:
    """A simulated kubelet's memory of a pod: delays of restarts and pulls by container, and results of probes.

    ``outcomes`` has the results of probes by container, probe and start of the run.
    """

    restarts: dict[str, RetryDelay] = field(default_factory=dict)
    pulls: dict[str, RetryDelay] = field(default_factory=dict)
    outcomes: dict[tuple[str, str, str], Timeline] = field(default_factory=dict)


class _End(NamedTuple):
    """The end of a container's run: seconds after its start, exit code, reason, and in ``message`` the probe that ended it, if any."""

    seconds: float
    code: int
    reason: str
    message: str = ""


def should_restart(spec: JSONObject, container: JSONObject, code: int) -> bool:
    """Return whether an ended container is restarted.

    Args:
        spec: The spec of the pod.
        container: The container in the spec.
        code: The exit code of the container.
    """
    if container.get("restartPolicy") and restart_action(container, code):
        return True
    policy = container.get("restartPolicy") or spec.get("restartPolicy") or "Always"
    return bool(policy == "Always" or (policy == "OnFailure" and code))


def restart_action(container: JSONObject, code: int) -> str:
    """Return the action of the first restart rule of a container that matches an exit code: Restart, RestartAllContainers or ""."""
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        if (code in (codes.get("values") or ())) is (codes.get("operator") == "In"):
            return str(rule.get("action") or "")
    return ""


def is_sidecar(container: JSONObject) -> bool:
    """Return whether an init container is a sidecar, which keeps running while later containers run (KEP-753)."""
    return bool(container.get("restartPolicy") == "Always")


def waiting(container: JSONObject, reason: str, message: str = "", before: JSONObject | None = None) -> JSONObject:
    """Return the status of a waiting container.

    Args:
        container: The container in the spec.
        reason: The reason of the waiting state.
        message: The message of the waiting state; empty: none.
        before: The previous status, from which restart count, last state and ids are copied.
    """
    state = {"reason": reason, "message": message} if message else {"reason": reason}
    result = {"name": container["name"], "image": container.get("image") or "", "imageID": "", "ready": False, "started": False}
    taken = {name: before[name] for name in ("restartCount", "lastState", "containerID", "imageID") if before.get(name)} if before else {}
    return result | {"restartCount": 0, "lastState": {}, "state": {"waiting": state}} | taken


def stopped(status: JSONObject, now: datetime, code: int) -> JSONObject:
    """Return the status of a container after it was stopped. The status of a container that is not running is returned unchanged."""
    started = (status["state"].get("running") or {}).get("startedAt")
    if started is None:
        return status
    ended = _termination(status, started, format_time(now.replace(microsecond=0)), code, "Error" if code else "Completed")
    return status | {"ready": False, "started": False, "state": {"terminated": ended}}


def _termination(status: JSONObject, started: str, ended: str, code: int, reason: str) -> JSONObject:
    return {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": ended, "containerID": status["containerID"]}


class ContainerSimulator:
    """Computes the present states of a pod's containers.

    ``events`` collects Events, ``wake`` is the number of seconds until the next change of a state, and ``restarts_all`` says that a restart
    rule with the action RestartAllContainers applies.

    Args:
        pod: The pod.
        simulation: The behaviour of the pod's containers.
        memory: The memory of the pod, which ``step`` updates.
        missing: The references that prevent containers from starting.
        now: The present time.
    """

    def __init__(self, pod: JSONObject, simulation: Simulation, memory: PodMemory, missing: MissingReferences, now: datetime) -> None:
        self._pod = pod
        self._simulation = simulation
        self._memory = memory
        self._missing = missing
        self._now = now
        self._seconds = now.timestamp()
        self.wake = math.inf
        self.events: list[PodEvent] = []
        self.restarts_all = False
        self._role: ContainerRole = "main"

    def step(self, container: JSONObject, before: JSONObject, role: ContainerRole = "main") -> JSONObject:
        """Return the present status of a container.

        Args:
            container: The container in the spec.
            before: The previous status of the container; {} for none.
            role: The role of the container. The success of an init container is final, and an ephemeral container is never restarted.
        """
        self._role = role
        state = before.get("state") or {}
        if running := state.get("running"):
            return self._run(container, before, running["startedAt"])
        ended = state.get("terminated") or (before.get("lastState") or {}).get("terminated")
        if ended is None or ended.get("reason") == RESTARTING_ALL:
            return self._start(container, before, before.get("restartCount") or 0)
        if "terminated" in state and not self._restarts(container, ended):
            return before
        return self._restart(container, before, ended)

    def _restarts(self, container: JSONObject, ended: JSONObject) -> bool:
        code = ended["exitCode"]
        if self._role == "ephemeral" or (self._role == "init" and code == 0):
            return False
        return should_restart(self._pod["spec"], container, code)

    # ----------------------------------------------------------------------------------------------------------------------- start

    def _restart(self, container: JSONObject, before: JSONObject, ended: JSONObject) -> JSONObject:
        name, finished = container["name"], parse_time(ended["finishedAt"]).timestamp()
        state = before["state"]
        if "terminated" in state and self._seconds - finished < _SYNC:
            self._wake_after(_SYNC - (self._seconds - finished))
            return before
        delay = self._memory.restarts.get(name)
        left = remaining_delay(delay, finished, self._seconds)
        if left > 0 and delay is not None:
            self._wake_after(left)
            pod = f"{self._pod['metadata']['name']}_{self._pod['metadata'].get('namespace')}({self._pod['metadata'].get('uid')})"
            message = f"back-off {go_duration(delay.seconds)} restarting failed container={name} pod={pod}"
            if "terminated" in state:
                self._warn("BackOff", f"Back-off restarting failed container {name} in pod {pod}")
            shown = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
            return before | {"ready": False, "started": False, "state": shown, "lastState": {"terminated": ended}}
        status = self._start(container, before, (before.get("restartCount") or 0) + 1)
        if "waiting" not in status["state"]:
            self._memory.restarts[name] = next_delay(delay, finished, self._seconds)
        return status | {"lastState": {"terminated": ended}}

    def _start(self, container: JSONObject, before: JSONObject, run: int) -> JSONObject:
        name = container["name"]
        if name in self._missing.containers:
            return waiting(container, "CreateContainerConfigError", self._missing.containers[name], before)
        if pull := self._pull(container, before):
            return waiting(container, *pull, before)
        started = format_time(self._now.replace(microsecond=0))
        self.events.append(PodEvent("Normal", "Started", "Container started"))
        self._memory.outcomes = {key: one for key, one in self._memory.outcomes.items() if key[0] != name}
        status = self._created(container, run) | {"restartCount": run, "lastState": before.get("lastState") or {}}
        return self._run(container, status | {"state": {"running": {"startedAt": started}}}, started, first=True)

    def _created(self, container: JSONObject, run: int) -> JSONObject:
        image = container.get("image") or ""
        identity = hashlib.sha256(f"{self._pod['metadata'].get('uid')}/{container['name']}/{run}".encode()).hexdigest()
        return {
            "name": container["name"],
            "image": image,
            "imageID": "kubeloop://image/" + hashlib.sha256(image.encode()).hexdigest()[:12],
            "containerID": f"kubeloop://{identity}",
        }

    def _pull(self, container: JSONObject, before: JSONObject) -> tuple[str, str] | None:
        """Pull the image of a container if necessary; return reason and message of the waiting state, or None if the image is available."""
        name, image = container["name"], container.get("image") or ""
        if not _IMAGE.fullmatch(image):
            message = f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {_image_fault(image)}'
            if not before:
                self._warn("InspectFailed", message)
            return "InvalidImageName", message
        if before.get("containerID") and container.get("imagePullPolicy") != "Always":
            return None
        begun = (self._pod.get("status") or {}).get("startTime")
        outcomes = self._simulation.pulls(name)
        if outcomes.at(self._seconds - parse_time(begun).timestamp() if begun else 0.0) and name not in self._memory.pulls:
            return None
        reason = ((before.get("state") or {}).get("waiting") or {}).get("reason")
        if container.get("imagePullPolicy") == "Never":
            message = f'Container image "{image}" is not present with pull policy of Never'
            if reason != "ErrImageNeverPull":
                self._warn("ErrImageNeverPull", message)
                self._warn("Failed", "Error: ErrImageNeverPull")
            self._wake_after(10.0)
            return "ErrImageNeverPull", message
        return self._attempt_pull(name, image, outcomes.at(self._seconds - parse_time(begun).timestamp() if begun else 0.0), reason)

    def _attempt_pull(self, name: str, image: str, success: bool, reason: str | None) -> tuple[str, str] | None:
        error, delay = _pull_error(image), self._memory.pulls.get(name)
        left = delay.updated + delay.seconds - self._seconds if delay is not None else 0.0
        if delay is not None and left > 0:
            if self._seconds - delay.updated < _SYNC:
                self._wake_after(delay.updated + _SYNC - self._seconds)
                return "ErrImagePull", error
            self._wake_after(left)
            if reason != "ImagePullBackOff":
                self.events.append(PodEvent("Normal", "BackOff", f'Back-off pulling image "{image}"'))
                self._warn("Failed", "Error: ImagePullBackOff")
            return "ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {error}'
        if success:
            self._memory.pulls.pop(name, None)
            return None
        self._memory.pulls[name] = next_delay(delay, self._seconds, self._seconds)
        self._warn("Failed", f'Failed to pull image "{image}": {error}')
        self._warn("Failed", "Error: ErrImagePull")
        self._wake_after(_SYNC)
        return "ErrImagePull", error

    # ------------------------------------------------------------------------------------------------------------------------- run

    def _run(self, container: JSONObject, status: JSONObject, started: str, *, first: bool = False) -> JSONObject:
        name = container["name"]
        elapsed = self._seconds - parse_time(started).timestamp()
        ready_at, startup_end = 0.0, math.inf
        if probe := container.get("startupProbe"):
            changes = probe_results(probe, self._outcomes(name, "startupProbe", started, elapsed, first=first), None)
            ready_at = changes[0][0] if changes and changes[0][1] else math.inf
            startup_end = changes[0][0] if changes and not changes[0][1] else math.inf
        end = self._end(container, status, started, elapsed, ready_at, startup_end)
        if elapsed >= end.seconds:
            return self._ended(container, status, started, end)
        self._wake_after(end.seconds - elapsed)
        begun = ready_at <= elapsed
        ready = begun
        if begun and (probe := container.get("readinessProbe")):
            changes = probe_results(probe, self._outcomes(name, "readinessProbe", started, elapsed, first=first), False, ready_at)
            result, change = result_at(changes, elapsed, False)
            ready = bool(result)
            self._wake_after(change - elapsed)
            if not ready and status.get("ready"):
                self._warn("Unhealthy", "Readiness probe failed: simulated failure")
        elif not begun:
            self._wake_after(ready_at - elapsed)
        resources = {key: value for key, value in (container.get("resources") or {}).items() if value}
        result_status = status | {"ready": ready and self._role != "init", "started": begun, "resources": resources}
        if resources.get("requests"):
            result_status["allocatedResources"] = resources["requests"]
        return result_status

    def _outcomes(self, name: str, probe: str, started: str, elapsed: float, *, first: bool) -> Timeline:
        """Return the results of a probe since the container's start. A change of the annotation applies only from now on."""
        key, desired = (name, probe, started), self._simulation.outcomes(probe, name)
        known = self._memory.outcomes.get(key)
        if known is None or first:
            known = desired
        elif any(
            known.at(moment) != desired.at(moment) for moment in (elapsed, *(since for since, _ in desired.pieces if since > elapsed))
        ):
            known = known.changed(elapsed, desired)
        self._memory.outcomes[key] = known
        return known

    def _end(self, container: JSONObject, status: JSONObject, started: str, elapsed: float, ready_at: float, startup_end: float) -> _End:
        """Return the first end of the present run.

        Args:
            container: The container in the spec.
            status: The status of the container.
            started: When the run began.
            elapsed: Seconds since the run began.
            ready_at: Seconds after the start at which the startup probe succeeds; infinity if it does not.
            startup_end: Seconds after the start at which the startup probe reaches its failure threshold; infinity if it does not.
        """
        name, run = container["name"], status.get("restartCount") or 0
        code = self._simulation.exit_code(name, run, self._role)
        ends = [_End(self._simulation.run_seconds(name, run, self._role), code, "Error" if code else "Completed")]
        limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        usage = self._simulation.usage("memory", name)
        if limit is not None and usage is not None:
            ends.append(_End(max(usage.reaches(float(Quantity(limit))), _SYNC), 137, "OOMKilled"))
        grace = self._pod["spec"].get("terminationGracePeriodSeconds", _TERMINATION_GRACE)
        stop = min(self._simulation.stop_seconds(name), grace)
        if startup_end < math.inf:
            ends.append(_End(startup_end + stop, 137, "Error", "startup"))
        if (probe := container.get("livenessProbe")) and ready_at < math.inf:
            outcomes = self._outcomes(name, "livenessProbe", started, elapsed, first=elapsed == 0)
            failure = next((moment for moment, passed in probe_results(probe, outcomes, True, ready_at) if not passed), math.inf)
            ends.append(_End(failure + stop, 137, "Error", "liveness"))
        return min(ends, key=lambda end: end.seconds)

    def _ended(self, container: JSONObject, status: JSONObject, started: str, end: _End) -> JSONObject:
        name = container["name"]
        finished = format_time((parse_time(started) + timedelta(seconds=end.seconds)).replace(microsecond=0))
        if end.message:
            self._warn("Unhealthy", f"{end.message.capitalize()} probe failed: simulated failure")
            text = f"Container {name} failed {end.message} probe"
            restarts = should_restart(self._pod["spec"], container, end.code)
            self.events.append(PodEvent("Normal", "Killing", f"{text}, will be restarted" if restarts else text))
        if restart_action(container, end.code) == "RestartAllContainers":
            self.restarts_all = True
        self._wake_after(_SYNC)
        ready = self._role == "init" and end.code == 0
        ended = _termination(status, started, finished, end.code, end.reason)
        return status | {"ready": ready, "started": False, "state": {"terminated": ended}}

    def _warn(self, reason: str, message: str) -> None:
        self.events.append(PodEvent("Warning", reason, message))

    def _wake_after(self, seconds: float) -> None:
        self.wake = min(self.wake, seconds)


def removed(status: JSONObject) -> JSONObject:
    """Return the status of a container after the action RestartAllContainers has removed it."""
    if not status.get("containerID"):
        return status
    ended = {"exitCode": 137, "reason": RESTARTING_ALL, "message": _REMOVED, "startedAt": None, "finishedAt": None}
    return status | {
        "ready": False,
        "started": False,
        "restartCount": (status.get("restartCount") or 0) + 1,
        "state": {"waiting": {"reason": RESTARTING_ALL, "message": _REMOVED}},
        "lastState": {"terminated": ended},
    }


def _image_fault(image: str) -> str:
    name = image.partition("@")[0].rpartition(":")[0] or image
    if _IMAGE.fullmatch(image.lower()) and name != name.lower():
        path = name if "/" in name else f"library/{name}"
        return f"invalid reference format: repository name ({path}) must be lowercase"
    return "invalid reference format"


def _pull_error(image: str) -> str:
    """Return containerd's error for an image that its registry does not have."""
    first, slash, _ = image.partition("/")
    whole = (
        image if slash and ("." in first or ":" in first or first == "localhost") else f"docker.io/{image if slash else f'library/{image}'}"
    )
    tag = "" if "@" in whole or ":" in whole.rpartition("/")[2] else ":latest"
    reference = whole + tag
    return (
        f'rpc error: code = NotFound desc = failed to pull and unpack image "{reference}": '
        f'failed to resolve reference "{reference}": {reference}: not found'
    )
