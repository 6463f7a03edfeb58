"""CPU and memory usage of containers, from /proc, and the documents in which the kubelet serves it.

Source: Kubernetes k8s.io/kubelet pkg/apis/stats/v1alpha1, pkg/kubelet/metrics/collectors/resource_metrics.go; proc(5).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from kubeloop.meta.time import format_time
from kubeloop.types import JSONObject

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessUsage:
    """CPU time in seconds since the start, and memory in use in bytes."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True)
class ContainerUsage:
    """The CPU and memory usage of one container, with the name and uid of its pod."""

    namespace: str
    pod: str
    uid: str
    container: str
    started_at: datetime
    usage: ProcessUsage


class ProcessTable:
    """A snapshot of all processes of this machine: by process id, the parent's id and the CPU and memory usage.

    Example:
        >>> ProcessTable({2: (1, ProcessUsage(1.0, 100)), 3: (2, ProcessUsage(0.5, 50))}).tree(2)
        ProcessUsage(cpu_seconds=1.5, memory_bytes=150)
    """

    def __init__(self, processes: Mapping[int, tuple[int, ProcessUsage]]) -> None:
        self._processes = processes
        self._children: dict[int, list[int]] = {}
        for pid, (parent, _) in processes.items():
            self._children.setdefault(parent, []).append(pid)

    @classmethod
    def read(cls) -> ProcessTable:
        """Return the processes in /proc; memory is the resident set size, CPU time includes ended children."""
        result = {}
        for name in os.listdir("/proc"):  # noqa: PTH208 - thousands of paths would be made for their names
            if not name.isdigit():
                continue
            try:
                text = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            fields = text.rpartition(")")[2].split()
            seconds = (int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])) / _TICKS
            result[int(name)] = (int(fields[1]), ProcessUsage(seconds, int(fields[21]) * _PAGE))
        return cls(result)

    def tree(self, top: int) -> ProcessUsage:
        """Return the total CPU and memory usage of a process and its descendants; zero if the process does not exist."""
        seconds, memory, front = 0.0, 0, [top]
        while front:
            pid = front.pop()
            if pid in self._processes:
                usage = self._processes[pid][1]
                seconds, memory = seconds + usage.cpu_seconds, memory + usage.memory_bytes
                front += self._children.get(pid, ())
        return ProcessUsage(seconds, memory)


def machine_usage() -> ProcessUsage:
    """Return the CPU time since the boot, and the memory in use, of the whole machine."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    busy = sum(map(int, fields[:3])) + sum(map(int, fields[5:8]))
    values = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    used = int(values["MemTotal"].split()[0]) - int(values.get("MemAvailable", values["MemFree"]).split()[0])
    return ProcessUsage(busy / _TICKS, used * 1024)


def stats_summary(
    node: str, machine: ProcessUsage, containers: Iterable[ContainerUsage], rates: Mapping[str, float], now: datetime
) -> JSONObject:
    """Return the document of ``/stats/summary``.

    Args:
        node: The node's name.
        machine: The usage of the whole machine.
        containers: The usage of the containers.
        rates: The number of CPUs in use, by ``UID/CONTAINER``; the empty key is the whole machine.
        now: The time of the measurement.
    """
    pods: dict[str, JSONObject] = {}
    for one in containers:
        pod = pods.setdefault(
            one.uid,
            {
                "podRef": {"name": one.pod, "namespace": one.namespace, "uid": one.uid},
                "startTime": format_time(one.started_at),
                "containers": [],
            },
        )
        pod["containers"].append(
            {
                "name": one.container,
                "startTime": format_time(one.started_at),
                **_stats(one.usage, rates.get(f"{one.uid}/{one.container}", 0.0), now),
            }
        )
    for pod in pods.values():
        parts: list[Any] = pod["containers"]
        total = ProcessUsage(
            sum(part["cpu"]["usageCoreNanoSeconds"] for part in parts) / 1e9, sum(part["memory"]["workingSetBytes"] for part in parts)
        )
        pod |= _stats(total, sum(part["cpu"]["usageNanoCores"] for part in parts) / 1e9, now)
    return {"node": {"nodeName": node, "startTime": format_time(now), **_stats(machine, rates.get("", 0.0), now)}, "pods": [*pods.values()]}


def _stats(usage: ProcessUsage, rate: float, now: datetime) -> JSONObject:
    moment = format_time(now)
    return {
        "cpu": {"time": moment, "usageNanoCores": round(rate * 1e9), "usageCoreNanoSeconds": round(usage.cpu_seconds * 1e9)},
        "memory": {
            "time": moment,
            "usageBytes": usage.memory_bytes,
            "workingSetBytes": usage.memory_bytes,
            "rssBytes": usage.memory_bytes,
        },
    }


def resource_metrics(machine: ProcessUsage, containers: Iterable[ContainerUsage], now: datetime) -> str:
    """Return the text of ``/metrics/resource``, which metrics-server reads.

    Args:
        machine: The usage of the whole machine.
        containers: The usage of the containers.
        now: The time of the measurement.
    """
    millis = int(now.timestamp() * 1000)
    found = list(containers)
    pods: dict[tuple[str, str], ProcessUsage] = {}
    for one in found:
        before = pods.get((one.namespace, one.pod), ProcessUsage())
        total = ProcessUsage(before.cpu_seconds + one.usage.cpu_seconds, before.memory_bytes + one.usage.memory_bytes)
        pods[one.namespace, one.pod] = total
    lines = []

    def family(name: str, kind: str, rows: Iterable[tuple[str, float]]) -> None:
        lines.append(f"# TYPE {name} {kind}")
        lines.extend(
            f"{name}{labels} {value:g} {millis}" if value < 1 else f"{name}{labels} {value:.9g} {millis}" for labels, value in rows
        )

    def labels(measured: ContainerUsage) -> str:
        return f'{{container="{measured.container}",namespace="{measured.namespace}",pod="{measured.pod}"}}'

    family("container_cpu_usage_seconds_total", "counter", ((labels(one), one.usage.cpu_seconds) for one in found))
    family("container_memory_working_set_bytes", "gauge", ((labels(one), one.usage.memory_bytes) for one in found))
    starts = ((labels(one), one.started_at.timestamp()) for one in found)
    lines.append("# TYPE container_start_time_seconds gauge")
    lines.extend(f"container_start_time_seconds{names} {value:.3f} {millis}" for names, value in starts)
    family("node_cpu_usage_seconds_total", "counter", [("", machine.cpu_seconds)])
    family("node_memory_working_set_bytes", "gauge", [("", machine.memory_bytes)])
    names = {key: f'{{namespace="{key[0]}",pod="{key[1]}"}}' for key in pods}
    family("pod_cpu_usage_seconds_total", "counter", ((names[key], one.cpu_seconds) for key, one in pods.items()))
    family("pod_memory_working_set_bytes", "gauge", ((names[key], one.memory_bytes) for key, one in pods.items()))
    return "\n".join([*lines, "# TYPE resource_scrape_error gauge", "resource_scrape_error 0", ""])
