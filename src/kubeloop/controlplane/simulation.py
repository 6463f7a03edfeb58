"""Annotations that say how the containers of a pod behave on a simulated node: when they end, with which exit code, what probes find.

They are read from the pod, so a workload carries them in its pod template. docs/server.md lists them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kubeloop.types import JSONObject

T = TypeVar("T")

PREFIX = "simulated.kubeloop.dev/"
RUN_SECONDS, EXIT_CODE, STOP_SECONDS = f"{PREFIX}run-seconds", f"{PREFIX}exit-code", f"{PREFIX}stop-seconds"
READINESS, STARTUP, LIVENESS = f"{PREFIX}readiness-probe", f"{PREFIX}startup-probe", f"{PREFIX}liveness-probe"
#: The API server reads this annotation, too: kubeloop.apiserver.handlers.kubelet.
LOG = f"{PREFIX}log"
KNOWN = (RUN_SECONDS, EXIT_CODE, STOP_SECONDS, READINESS, STARTUP, LIVENESS, LOG)

#: Seconds after which the containers of a pod end that is not to be restarted for ever.
_RUN = 1.0
PROBES = {"readinessProbe": READINESS, "startupProbe": STARTUP, "livenessProbe": LIVENESS}


@dataclass(frozen=True)
class Simulation:
    """The behaviour of a pod's containers.

    Each annotation has one value for all containers, or ``NAME=VALUE`` pairs with commas between them. ``faults`` says which
    annotations make no sense, and what would.
    """

    restart_policy: str = "Always"
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @classmethod
    def of(cls, pod: JSONObject) -> Simulation:
        """Read the annotations of a pod; a value that makes no sense counts as absent."""
        annotations = pod["metadata"].get("annotations") or {}
        values: dict[str, Mapping[str, Any]] = {}
        faults = []
        for name, (parse, expected) in _PARSERS.items():
            if name in annotations:
                try:
                    values[name] = _by_container(annotations[name], parse)
                except ValueError:
                    faults.append(
                        f'annotation {name}: "{annotations[name]}" is neither {expected} nor a list such as NAME={expected.split()[-1]}'
                    )
        faults += [
            f"annotation {name} is not known; {', '.join(KNOWN)} are"
            for name in annotations
            if name.startswith(PREFIX) and name not in KNOWN
        ]
        return cls((pod.get("spec") or {}).get("restartPolicy") or "Always", values, tuple(faults))

    def run_seconds(self, container: str) -> float:
        """Return the seconds after which a container ends by itself, or infinity if it does not."""
        default = _RUN if self.restart_policy != "Always" or self._value(EXIT_CODE, container, None) is not None else math.inf
        return self._value(RUN_SECONDS, container, default)

    def exit_code(self, container: str) -> int:
        return self._value(EXIT_CODE, container, 0)

    def stop_seconds(self, container: str) -> float:
        """Return the seconds that a container needs to end after it was told to stop."""
        return self._value(STOP_SECONDS, container, 0.0)

    def passes(self, probe: str, container: str) -> bool:
        """Return whether a probe (``readinessProbe``...) of a container succeeds."""
        return self._value(PROBES[probe], container, True)

    def _value(self, name: str, container: str, default: T) -> T:
        values = self.values.get(name, {})
        result: T = values.get(container, values.get("", default))
        return result


def unknown_probes(pod: JSONObject) -> list[str]:
    """Return the probes of a pod, as ``CONTAINER readinessProbe``, whose outcome no annotation states."""
    simulation = Simulation.of(pod)
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


def _outcome(text: str) -> bool:
    if text not in ("success", "failure"):
        raise ValueError(text)
    return text == "success"


_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    RUN_SECONDS: (_seconds, 'seconds, "forever" or 30'),
    EXIT_CODE: (_code, "an exit code from 0 to 255, such as 1"),
    STOP_SECONDS: (_seconds, 'seconds, "forever" or 30'),
    READINESS: (_outcome, "success nor failure"),
    STARTUP: (_outcome, "success nor failure"),
    LIVENESS: (_outcome, "success nor failure"),
}
