"""Compares the scheduler's decisions with those of the real kube-scheduler, for random pods on the embedded server.

    python -m tests.realserver.scheduler_comparison --seed 1 --pods 100

The real kube-scheduler schedules one pod after the other. Ours explains each decision from the same state: its node must be among our best
ones, and the message of a pod that fits nowhere must be the same. Every difference is printed; the exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubeloop.api.core.v1 import Namespace, Node, Pod, Service, ServiceAccount
from kubeloop.api.scheduling.v1 import PriorityClass
from kubeloop.client import Client
from kubeloop.config import load_config
from kubeloop.controlplane.scheduling.configuration import default_profile
from kubeloop.controlplane.scheduling.explanation import PodExplanation, explain_pod, read_cluster
from kubeloop.meta import ObjectMeta
from kubeloop.transport import Transport
from tests.controlplane.workloads import read
from tests.realserver.building import binaries

_PROGRAM, _NAMESPACE = "kube-scheduler", "shop"
_HOSTNAME, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_GPU = "example.com/gpu"
#: Seconds for one decision.
_PATIENCE = 60.0


class RandomPods:
    """Makes pods that use every plugin now and then."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # it must be repeatable
        self._count = 0

    def _sometimes(self, chance: float) -> bool:
        return self._random.random() < chance

    def _selector(self) -> dict[str, Any]:
        return {"matchLabels": {"app": self._random.choice("abc")}}

    def next(self) -> Pod:
        choice = self._random.choice
        requests: dict[str, str] = {}
        if self._sometimes(0.8):
            requests["cpu"] = choice(["100m", "250m", "500m", "1", "2", "6"])
        if self._sometimes(0.6):
            requests["memory"] = choice(["64Mi", "512Mi", "1Gi", "3Gi"])
        limits = {_GPU: "1"} if self._sometimes(0.1) else {}
        image = choice(["example.com/big:1", "other"])
        container: dict[str, Any] = {"name": "c", "image": image, "resources": {"requests": requests | limits, "limits": limits}}
        if self._sometimes(0.1):
            container["ports"] = [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]
        spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0, "affinity": self._affinity()}
        if self._sometimes(0.15):
            sidecar = {"restartPolicy": "Always"} if self._sometimes(0.5) else {}
            spec["initContainers"] = [{"name": "i", "image": "x", "resources": {"requests": {"cpu": choice(["1", "3"])}}} | sidecar]
        if self._sometimes(0.25):
            taints = {"nodeTaintsPolicy": "Honor"} if self._sometimes(0.5) else {}
            how = {"maxSkew": choice([1, 2]), "whenUnsatisfiable": choice(["DoNotSchedule", "ScheduleAnyway"])}
            spec["topologySpreadConstraints"] = [
                how | {"topologyKey": choice([_HOSTNAME, _ZONE]), "labelSelector": self._selector()} | taints
            ]
        if self._sometimes(0.2):
            spec["tolerations"] = [{"key": choice(["team", "soft"]), "operator": "Exists"}]
        if self._sometimes(0.1):
            spec["nodeSelector"] = {"disk": choice(["ssd", "hdd", "none"])}
        if self._sometimes(0.16):
            spec["priorityClassName"] = choice(["high", "never"])
        metadata = {"name": f"p{self._count:03}", "labels": {"app": choice("abc")}}
        self._count += 1
        return read(Pod, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def _affinity(self) -> dict[str, Any]:
        choice, result = self._random.choice, dict[str, Any]()
        if self._sometimes(0.2):
            ssd = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
            late = {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["3"]}]}
            preferred = [{"weight": choice(range(1, 50)), "preference": one} for one in (ssd, late)]
            result["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
        if self._sometimes(0.1):
            early = {"matchExpressions": [{"key": "rank", "operator": "Lt", "values": ["4"]}]}
            named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n6"]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [early, named]}}
            result["nodeAffinity"] = result.get("nodeAffinity", {}) | required
        for kind in ("podAffinity", "podAntiAffinity"):
            if self._sometimes(0.15):
                term = {"labelSelector": self._selector(), "topologyKey": choice([_HOSTNAME, _ZONE])}
                weighted = [{"weight": choice(range(1, 100)), "podAffinityTerm": term}]
                result[kind] = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
            if self._sometimes(0.08):
                term = {"labelSelector": self._selector(), "topologyKey": choice([_HOSTNAME, _ZONE])}
                result[kind] = result.get(kind, {}) | {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        return result


async def _furnish(client: Client) -> None:
    await client.create(ServiceAccount(metadata=ObjectMeta(name="default", namespace=_NAMESPACE)))
    for name, value, policy in (("high", 100, "PreemptLowerPriority"), ("never", 200, "Never")):
        document = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        await client.create(read(PriorityClass, {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **document}))
    service = {"metadata": {"name": "a"}, "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}}
    await client.create(read(Service, {"apiVersion": "v1", "kind": "Service", **service}))
    for number in range(8):
        name = f"n{number}"
        labels = {_HOSTNAME: name, "disk": "ssd" if number % 2 else "hdd", "rank": str(number)}
        labels |= {_ZONE: f"z{number % 3}"} if number != 7 else {}
        await client.create(Node(metadata=ObjectMeta(name=name, labels=labels)))
        taints = {5: [{"key": "team", "value": "a", "effect": "NoSchedule"}], 6: [{"key": "soft", "effect": "PreferNoSchedule"}]}
        await client.patch(Node, name, {"spec": {"taints": taints.get(number)}})
        room = {"cpu": f"{4 + number}", "memory": f"{8 + 2 * number}Gi", "pods": "20", "ephemeral-storage": "10Gi", _GPU: f"{number % 3}"}
        images = [{"names": ["example.com/big:1"], "sizeBytes": 800 << 20}] if number in (2, 3, 4) else []
        status = {"allocatable": room, "images": images, "conditions": [{"type": "Ready", "status": "True"}]}
        await client.patch(Node, name, {"status": status}, subresource="status")


def _is_decided(pod: Pod) -> bool:
    """Return whether the pod has a node, or fits nowhere and makes no room."""
    refused = next((one.message or "" for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False"), "")
    return bool(pod.spec.node_name) or "preemption: " in refused or refused.endswith("not found")


async def _compare(kubeconfig: Path, seed: int, count: int) -> int:
    """Return the number of differences."""
    pods, profile, differences = RandomPods(seed), default_profile(), 0
    async with Client(Transport(load_config(kubeconfig)), namespace=_NAMESPACE) as client:
        for _ in range(count):
            name = (await client.create(pods.next())).metadata.name
            decided = await client.wait_for(Pod, name, _is_decided, timeout=_PATIENCE)
            cluster, known = await read_cluster(client)
            explanation = explain_pod(profile, known[_NAMESPACE, name], cluster)
            if difference := _difference(decided, explanation):
                differences += 1
                print(f"{name}: {difference}\n{explanation.text(120)}\n", flush=True)
            if not decided.spec.node_name:
                await client.delete(Pod, name, grace_period_seconds=0)
    print(f"seed {seed}: {count - differences} of {count} decisions are equal", flush=True)
    return differences


def _difference(pod: Pod, explanation: PodExplanation) -> str:
    """Return how the decision differs from ours; "" if it does not."""
    if not pod.spec.node_name:
        message = next(one.message for one in pod.status.conditions if one.type == "PodScheduled")
        return "" if message == explanation.message else f"kube-scheduler says {message}"
    chosen = next(one for one in explanation.nodes if one.name == pod.spec.node_name)
    if chosen.refusals:
        return f"kube-scheduler chose {chosen.name}, which we refuse"
    # A pod that other pods made room for had no choice.
    best = max(one.total for one in explanation.nodes if not one.refusals)
    free = not pod.status.nominated_node_name and chosen.total != best
    return f"kube-scheduler chose {chosen.name} with {chosen.total} of {best}" if free else ""


@contextlib.contextmanager
def _running(command: list[str], log: Path, ready: str = "") -> Iterator[None]:
    with log.open("w") as file, subprocess.Popen(command, stdout=subprocess.PIPE if ready else file, stderr=file, text=True) as process:
        try:
            if process.stdout is not None and not process.stdout.readline().startswith(ready):
                raise RuntimeError(f"{command[0]} did not start: {log.read_text()[-800:]}")
            yield
        finally:
            process.send_signal(signal.SIGTERM)


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(prog="python -m tests.realserver.scheduler_comparison", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pods", type=int, default=100)
    args = parser.parse_args()
    program = binaries([_PROGRAM]) / _PROGRAM
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig, configuration = Path(folder) / "kubeconfig", Path(folder) / "scheduler.json"
        document: dict[str, Any] = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        document |= {"clientConnection": {"kubeconfig": str(kubeconfig)}, "leaderElection": {"leaderElect": False}}
        configuration.write_text(json.dumps(document))
        server = [sys.executable, "-m", "kubeloop", "server", "--no-controllers", "--kubeconfig", str(kubeconfig)]
        with _running(server, Path(folder) / "server.log", ready="ready"):
            asyncio.run(_prepare(kubeconfig))
            with _running([str(program), f"--config={configuration}", "--secure-port=0"], Path(folder) / "scheduler.log"):
                return 1 if asyncio.run(_compare(kubeconfig, args.seed, args.pods)) else 0


async def _prepare(kubeconfig: Path) -> None:
    async with Client(Transport(load_config(kubeconfig))) as client:
        await client.create(Namespace(metadata=ObjectMeta(name=_NAMESPACE)))
        await _furnish(client)


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(main())
