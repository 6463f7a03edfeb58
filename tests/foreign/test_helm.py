"""Helm itself, with a chart that has its own kind and hooks: it prints the same as against a real kube-apiserver.

Upstream's kube-controller-manager works; pods run on our simulated node, which ends pods that are not restarted."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubeloop.api.apps.v1 import Deployment, ReplicaSet
from kubeloop.api.batch.v1 import Job
from kubeloop.api.core.v1 import Namespace, Secret, ServiceAccount
from kubeloop.client import Client
from kubeloop.controller import Manager
from kubeloop.controlplane.scheduling.scheduler import Scheduler
from kubeloop.controlplane.simulation.nodes import SimulatedNodes
from kubeloop.meta import ObjectMeta, Unstructured
from kubeloop.transport import Transport
from tests.foreign.building import program
from tests.realserver.controller_manager import controller_manager
from tests.servers import ServerUnderTest

# The fixtures build Helm and the controllers.
pytestmark = [pytest.mark.server, pytest.mark.upstream, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
Definition = Unstructured.for_kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", plural="customresourcedefinitions", namespaced=False
)
_NAMESPACE = "shop-of-helm"


class Helm:
    """Runs it and notes what it prints; what differs from run to run is named instead."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._environment = {"HOME": str(home), "KUBECONFIG": str(kubeconfig), "PATH": os.environ.get("PATH", "")}
        self.transcript: list[str] = []

    async def __call__(self, *arguments: str) -> None:
        process = await asyncio.create_subprocess_exec(
            str(program("helm")),
            *arguments,
            f"--namespace={_NAMESPACE}",
            env=self._environment,
            cwd=HERE,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        self.transcript.append(f"$ helm {' '.join(arguments)}")
        text = _CANCELLED_READ.sub("", printed.decode())
        self.transcript += [_steady(line) for line in _BLOCKS.sub(_in_order, text).splitlines()]
        self.transcript += [f"(exit status {process.returncode})"] if process.returncode else []
        self.transcript.append("")

    def note(self, text: str) -> None:
        self.transcript += [text, ""]


#: Times, ages, random names and addresses; and the widths of columns, which follow from them.
_UNSTEADY = [
    (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} +\d+ [\d:]{8} \d{4}", "TIME"),
    (r"\d{4}-\d\d-\d\d[T ][\d:.]+( ?[+-]\d{4}| ?[A-Z]{1,4})*", "TIME"),
    (r"modifiedAt=\d+", "modifiedAt=TIME"),
    (r"(?<=\s)(\d+[smh])+$", "AGE"),
    (r"(demo-[0-9a-z]+)-[0-9a-z]{5}\b", r"\1-NAME"),
    (r"\b10\.0\.0\.\d+", "ADDRESS"),
    (r"(?<=\S)[ \t]{2,}|\t", "  "),
    (r"\s+$", ""),
]


#: Helm cancels its own lists and watches when the wait ends. Whether client-go logs the cancelled read is chance: the StreamWatcher either
#: stops or reports an error event, which the reflector logs, as a Go ``select`` with both cases ready decides (k8s.io/apimachinery
#: pkg/watch/streamwatcher.go), and a list logs the read if its body has begun (k8s.io/client-go rest/request.go).
_CANCELLED_READ = re.compile(
    r"(?m)^[IWE]\d{4} \S+ +\d+ (?:reflector\.go:\d+\] \"Warning: watch ended with error\""
    r"|request\.go:\d+\] \"Unexpected error when reading response body\").*context canceled.*\n?"
)

#: Of each kind of a release's objects; Helm prints them in the order of a Go map.
_BLOCKS = re.compile(r"(?:==> .*\n(?:.+\n)*\n)+")


def _in_order(blocks: re.Match[str]) -> str:
    return "".join(sorted(re.split(r"(?m)^(?===> )", blocks[0])))


def _steady(line: str) -> str:
    for pattern, instead in _UNSTEADY:
        line = re.sub(pattern, instead, line)
    return line


@pytest.fixture
async def client(server: ServerUnderTest) -> AsyncIterator[Client]:
    """The controllers and the simulated node work; the namespace is always of the same name, which Helm prints."""
    with controller_manager(server):
        async with (
            Client(Transport(server.config)) as own,
            Manager(own, [Scheduler(), SimulatedNodes()], grace=60),
            Client(Transport(server.config), namespace=_NAMESPACE) as found,
        ):
            await found.create(Namespace(metadata=ObjectMeta(name=_NAMESPACE)))
            await found.wait_for(ServiceAccount, "default", bool, timeout=60)
            yield found
            await found.delete(Namespace, _NAMESPACE)
            await found.delete(Definition, "counters.foreign.example.com")  # Helm leaves it, by its rules


async def test_helm_says_what_it_says_on_a_real_server(server: ServerUnderTest, client: Client, tmp_path: Path) -> None:
    helm = Helm(server.kubeconfig, tmp_path)
    await helm("install", "demo", "chart", "--dry-run=server")
    await helm("install", "demo", "chart", "--wait", "--timeout=5m")
    helm.note(await _state(client))
    await helm("list")
    await helm("status", "demo")
    await helm("get", "manifest", "demo")
    await helm("get", "hooks", "demo")
    await helm("get", "notes", "demo")
    await helm("get", "metadata", "demo")
    await helm("install", "demo", "chart")
    await helm("install", "other", "chart", "--set=replicas=1", "--wait", "--timeout=5m", "--description=a second one")
    await helm("upgrade", "demo", "chart", "--set=replicas=3,colour=green", "--wait", "--timeout=5m")
    helm.note(await _state(client))
    await helm("get", "values", "demo")
    await helm("upgrade", "demo", "chart", "--set=replicas=-1", "--wait", "--timeout=5m")
    await helm("history", "demo")
    await helm("rollback", "demo", "1", "--wait", "--timeout=5m")
    helm.note(await _state(client))
    await helm("history", "demo")
    await helm("test", "demo", "--timeout=5m")
    await helm("uninstall", "other", "--wait", "--timeout=5m")
    await helm("uninstall", "demo", "--wait", "--timeout=5m", "--keep-history")
    helm.note(await _state(client))
    await helm("list", "--uninstalled")
    await helm("status", "other")
    await helm("uninstall", "demo")
    await helm("history", "demo")
    expected = (HERE / "expected" / "helm.txt").read_text().splitlines()
    printed = "\n".join(helm.transcript).splitlines()
    (tmp_path / "helm.txt").write_text("\n".join(printed) + "\n")
    assert list(difflib.unified_diff(expected, printed, "expected", "printed", n=2, lineterm="")) == []


async def _state(client: Client) -> str:
    """What Helm and the controllers left on the server."""
    deployments = [f"{it.metadata.name} {it.status.available_replicas}" for it in await client.list(Deployment, namespace=_NAMESPACE)]
    sets = [it.spec.replicas for it in await client.list(ReplicaSet, namespace=_NAMESPACE)]
    jobs = [f"{it.metadata.name} {it.status.succeeded}" for it in await client.list(Job, namespace=_NAMESPACE)]
    records = [it.metadata.name for it in await client.list(Secret, namespace=_NAMESPACE)]
    return f"(deployments {deployments}, sizes of their sets {sorted(map(str, sets))}, jobs {jobs}, secrets {records})"
