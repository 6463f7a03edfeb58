"""Annotations that say how the containers of a pod behave on a simulated node: when they end, their exit codes, the results of probes.

They are annotations of the pod, so a workload has them in its pod template. Rules of a simulation file add annotations that a pod lacks.
docs/server.md lists the annotations.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from kubeloop.controlplane.simulation.probes import ALWAYS, Timeline
from kubeloop.controlplane.simulation.usage import UsageFunction
from kubeloop.types import JSONObject

T = TypeVar("T")
ContainerRole = Literal["main", "init", "sidecar", "ephemeral"]

PREFIX = "simulated.kubeloop.dev/"
RUN_SECONDS, EXIT_CODE, STOP_SECONDS = f"{PREFIX}run-seconds", f"{PREFIX}exit-code", f"{PREFIX}stop-seconds"
READINESS, STARTUP, LIVENESS = f"{PREFIX}readiness-probe", f"{PREFIX}startup-probe", f"{PREFIX}liveness-probe"
START_SECONDS, PULL, JITTER = f"{PREFIX}start-seconds", f"{PREFIX}image-pull", f"{PREFIX}jitter"
CPU_USAGE, MEMORY_USAGE = f"{PREFIX}cpu-usage", f"{PREFIX}memory-usage"
#: The annotation with the log of containers. The API server also reads it (kubeloop.apiserver.handlers.kubelet).
LOG = f"{PREFIX}log"

#: Seconds after which the containers of a pod end by default, unless its restart policy is Always.
_RUN = 1.0
PROBES = {"readinessProbe": READINESS, "startupProbe": STARTUP, "livenessProbe": LIVENESS}


@dataclass(frozen=True)
class Simulation:
    """The simulated behaviour of a pod's containers.

    ``values`` has the parsed annotations by name, each with values by container; the container "" stands for all. An annotation has one
    value for all containers, or ``NAME=VALUE`` pairs separated by commas. ``faults`` has messages about invalid annotations. ``draws`` is
    the seed of the pod's random numbers.
    """

    restart_policy: str = "Always"
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    draws: str = ""

    @classmethod
    def from_pod(cls, pod: JSONObject, defaults: Mapping[str, str] | None = None, seed: int = 0) -> Simulation:
        """Return the behaviour of a pod from its annotations; an invalid value is ignored and added to ``faults``.

        Args:
            pod: The pod.
            defaults: Annotations that apply if the pod does not have them.
            seed: The seed of random numbers.
        """
        metadata = pod["metadata"]
        annotations = {**(defaults or {}), **(metadata.get("annotations") or {})}
        values: dict[str, Mapping[str, Any]] = {}
        faults = []
        for name, text in annotations.items():
            if not name.startswith(PREFIX) or name == LOG:
                continue
            if name not in _PARSERS:
                faults.append(f"annotation {name} is not known; {', '.join(KNOWN)} are")
                continue
            parse, expected = _PARSERS[name]
            try:
                values[name] = _by_container(text, parse)
            except ValueError:
                faults.append(f'annotation {name}: "{text}" is neither {expected} nor a list such as NAME={expected.split()[-1]}')
        policy = (pod.get("spec") or {}).get("restartPolicy") or "Always"
        return cls(policy, values, tuple(faults), f"{seed}/{metadata.get('namespace')}/{metadata['name']}")

    def start_seconds(self) -> float | None:
        """Return the seconds that the pod takes to start, or None without an annotation."""
        seconds: float | None = self._value(START_SECONDS, "", None)
        return None if seconds is None else self._jittered(seconds, START_SECONDS)

    def run_seconds(self, container: str, run: int = 0, role: ContainerRole = "main") -> float:
        """Return the seconds after which a container's run ends by itself, or infinity if it does not.

        Args:
            container: The container's name.
            run: How often the container was started before.
            role: The role of the container. Values for all containers apply only to main containers.
        """
        values = self._of_role(RUN_SECONDS, container, role)
        if values is None:
            if role == "init":
                return 0.0
            stated = self._of_role(EXIT_CODE, container, role) is not None
            return _RUN if stated or (role == "main" and self.restart_policy != "Always") else math.inf
        return self._jittered(values[min(run, len(values) - 1)], f"{RUN_SECONDS}/{container}/{run}")

    def exit_code(self, container: str, run: int = 0, role: ContainerRole = "main") -> int:
        """Return the exit code of a container's run; the last of several codes repeats. ``run_seconds`` explains the arguments."""
        values = self._of_role(EXIT_CODE, container, role) or (0,)
        return int(values[min(run, len(values) - 1)])

    def _of_role(self, name: str, container: str, role: ContainerRole) -> tuple[Any, ...] | None:
        values = self.values.get(name, {})
        runs: tuple[Any, ...] | None = values.get(container, values.get("") if role == "main" else None)
        return runs

    def stop_seconds(self, container: str) -> float:
        """Return the seconds that a container needs to end after its stop signal."""
        return self._jittered(self._value(STOP_SECONDS, container, 0.0), f"{STOP_SECONDS}/{container}")

    def outcomes(self, probe: str, container: str) -> Timeline:
        """Return the results of a probe of a container (``readinessProbe``, ``startupProbe`` or ``livenessProbe``) during a run."""
        outcomes: Timeline = self._value(PROBES[probe], container, ALWAYS)
        return outcomes

    def pulls(self, container: str) -> Timeline:
        """Return the results of pulling a container's image over time, from the pod's start on."""
        outcomes: Timeline = self._value(PULL, container, ALWAYS)
        return outcomes

    def usage(self, resource: str, container: str) -> UsageFunction | None:
        """Return the usage of ``cpu`` (cores) or ``memory`` (bytes) of a container over time, or None without an annotation."""
        usage: UsageFunction | None = self._value(CPU_USAGE if resource == "cpu" else MEMORY_USAGE, container, None)
        return usage

    def _jittered(self, seconds: float, subject: str) -> float:
        jitter = self._value(JITTER, "", 0.0)
        return seconds * (1 + jitter * random.Random(f"{self.draws}/{subject}").random()) if jitter else seconds  # no secret

    def _value(self, name: str, container: str, default: Any) -> Any:
        values = self.values.get(name, {})
        return values.get(container, values.get("", default))


def unknown_probes(pod: JSONObject, simulation: Simulation) -> list[str]:
    """Return the probes of a pod without an annotation for their results, such as ``CONTAINER readinessProbe``."""
    spec = pod.get("spec") or {}
    result = []
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        for probe, annotation in PROBES.items():
            values = simulation.values.get(annotation, {})
            if container.get(probe) and "" not in values and container["name"] not in values:
                result.append(f"{container['name']} {probe}")
    return result


def _by_container(text: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    if "=" not in text:
        return {"": parse(text.strip())}
    return {name.strip(): parse(value.strip()) for name, _, value in (part.partition("=") for part in text.split(","))}


def _seconds(text: str) -> float:
    if text == "forever":
        return math.inf
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


def _code(text: str) -> int:
    code = int(text)
    if not 0 <= code <= 255:
        raise ValueError(text)
    return code


def _each_run(parse: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    return lambda text: tuple(parse(part.strip()) for part in text.split("/"))


def _timeline(text: str) -> Timeline:
    """Parse ``success``, ``failure``, or results with the seconds between them, such as ``failure 30 success``."""
    words = text.split()
    if len(words) % 2 == 0 or any(word not in ("success", "failure") for word in words[::2]):
        raise ValueError(text)
    pieces, since = [(0.0, words[0] == "success")], 0.0
    for seconds, outcome in zip(words[1::2], words[2::2], strict=True):
        since += _seconds(seconds)
        pieces.append((since, outcome == "success"))
    return Timeline(tuple(piece for number, piece in enumerate(pieces) if not number or pieces[number - 1][1] != piece[1]))


_RUNS = 'seconds, "forever", several runs as 5/5/forever, or 30'
_OUTCOMES = 'success, "failure 30 success" (seconds of each outcome) nor failure'
_USAGE = "an amount, growth such as 64Mi+1Mi/s, or a wave such as 100m..400m/60"
_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    START_SECONDS: (_seconds, 'seconds, "forever" or 30'),
    RUN_SECONDS: (_each_run(_seconds), _RUNS),
    EXIT_CODE: (_each_run(_code), "an exit code from 0 to 255, the codes of several runs as 1/1/0, or 1"),
    STOP_SECONDS: (_seconds, 'seconds, "forever" or 30'),
    READINESS: (_timeline, _OUTCOMES),
    STARTUP: (_timeline, _OUTCOMES),
    LIVENESS: (_timeline, _OUTCOMES),
    PULL: (_timeline, _OUTCOMES),
    CPU_USAGE: (UsageFunction.parse, _USAGE),
    MEMORY_USAGE: (UsageFunction.parse, _USAGE),
    JITTER: (_seconds, "the greatest relative prolongation of all delays, or 0.2"),
}
KNOWN = (*_PARSERS, LOG)
