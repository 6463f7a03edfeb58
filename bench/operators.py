"""One operator written twice, with kopf and with kubeloop: its CPU, its requests, and what a crash leaves undone.

The driver plays user and Deployment controller; the embedded server runs in its process, and counts what the operator asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.peers.operators.kubeloop_operator import Foo, FooSpec
from bench.prepare import HERE, KOPF
from bench.targets import Target
from kubeloop import Client, InformerFactory, ObjectMeta, Unstructured
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.apps.v1 import Deployment
from kubeloop.apiserver.server import ApiServer, ServerOptions
from kubeloop.client import ALL_NAMESPACES
from kubeloop.codec.yaml import read_yaml
from kubeloop.config import load_config
from kubeloop.config.kubeconfig.generated import kubeconfig_text
from kubeloop.meta import Conflict, NotFound
from kubeloop.pki import CertificateAuthority
from kubeloop.serving.answer import Reply
from kubeloop.serving.connection import Handler
from kubeloop.serving.request import Request
from kubeloop.transport import Transport

OPERATORS = HERE / "peers" / "operators"
CRD = HERE.parent / "examples" / "sample_controller" / "manifests" / "crd-status-subresource.yaml"
DRIVER = "bench-driver"
NAMESPACE = "default"
KUBELOOP, KOPF_NAME = "kubeloop", "kopf"
_SOURCES = {KUBELOOP: OPERATORS / "kubeloop_operator.py", KOPF_NAME: OPERATORS / "kopf_operator.py"}
_COMMANDS = {
    KUBELOOP: [sys.executable, str(_SOURCES[KUBELOOP])],
    KOPF_NAME: [str(KOPF.with_name("kopf")), "run", "--quiet", "--standalone", "--all-namespaces", str(_SOURCES[KOPF_NAME])],
}
#: Seconds after which what an operator has not done counts as undone, and in which nothing must happen for it to be at rest.
_PATIENCE, _REST = 60.0, 2.0


@dataclass(frozen=True)
class OperatorFigures:
    """``cpu_ms``, ``requests``: the operator's, for one Foo over all phases. ``undone``: Foos that a crash left wrong, by misfortune."""

    lines: int
    start_cpu_s: float
    cpu_ms: float
    requests: float
    mib: float
    by_verb: Mapping[str, int]
    undone: Mapping[str, int]


class _Counted:
    """Wraps the server's handler; what the driver asks does not count."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.watched = asyncio.Event()
        self._watches: set[str] = set()

    def wrap(self, handler: Handler) -> Handler:
        async def handle(request: Request) -> Reply:
            if request.header("User-Agent") != DRIVER:
                watch = request.parameter("watch") in ("1", "true", "True")
                plural = next((each for each in ("foos", "deployments") if f"/{each}" in request.path), "other")
                self.requests[f"{'WATCH' if watch else request.method} {plural}"] += 1
                if watch:
                    self._watches.add(plural)
                    if self._watches >= {"foos", "deployments"}:
                        self.watched.set()
            return await handler(request)

        return handle

    def begin(self) -> None:
        """Forget what was asked by an operator that is gone."""
        self.requests.clear()
        self._watches.clear()
        self.watched.clear()


class Operator:
    """The program, as a separate process."""

    def __init__(self, name: str, kubeconfig: Path, counted: _Counted) -> None:
        self._name = name
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        self._counted = counted
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Return when it watches both kinds."""
        self._counted.begin()
        log = asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(*_COMMANDS[self._name], env=self._environment, stdout=log, stderr=log)
        async with asyncio.timeout(_PATIENCE):
            await self._counted.watched.wait()
        await asyncio.sleep(_REST)

    async def end(self, signal_number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal_number)
            await self._process.wait()

    @property
    def cpu(self) -> float:
        """Seconds, user and system (Linux)."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def mib(self) -> float:
        return int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    @property
    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid


class World:
    """What the driver wants and sees. ``wanted``: replicas of each Foo."""

    def __init__(self, client: Client, informers: InformerFactory) -> None:
        self.client = client
        self.wanted: dict[str, int] = {}
        self._foos = informers.for_kind(Foo, namespace=ALL_NAMESPACES)
        self._deployments = informers.for_kind(Deployment, namespace=ALL_NAMESPACES)
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        self._deployments.on_event(
            added=lambda event: self._changed.put_nowait(event.head.name), updated=lambda event: self._changed.put_nowait(event.head.name)
        )

    async def deploy(self) -> None:
        """Set availableReplicas to spec.replicas: the Deployment controller of this little world."""
        while True:
            found = self._deployments.lister.get(await self._changed.get(), NAMESPACE)
            if found is not None and found.status.available_replicas != found.spec.replicas:
                status = found.status
                status.replicas = status.ready_replicas = status.available_replicas = found.spec.replicas
                with contextlib.suppress(Conflict, NotFound):
                    await self.client.update_status(found)

    async def create(self, name: str) -> None:
        self.wanted[name] = 1
        await self.client.create(Foo(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=FooSpec(deployment_name=name, replicas=1)))

    async def resize(self, name: str, replicas: int) -> None:
        self.wanted[name] = replicas
        await self.client.patch(Foo, name, {"spec": {"replicas": replicas}}, type="merge", namespace=NAMESPACE)

    async def lose_child(self, name: str) -> None:
        await self.client.delete(Deployment, name, namespace=NAMESPACE)

    def undone(self) -> list[str]:
        return [name for name, replicas in self.wanted.items() if not self._is_done(name, replicas)]

    def _is_done(self, name: str, replicas: int) -> bool:
        foo, deployment = self._foos.lister.get(name, NAMESPACE), self._deployments.lister.get(name, NAMESPACE)
        return (
            foo is not None
            and deployment is not None
            and deployment.spec.replicas == replicas
            and foo.status.available_replicas == replicas
        )

    async def settle(self, timeout: float = _PATIENCE) -> list[str]:
        """Foos that are still undone when everything is done, or after ``patience`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.undone():
                    await asyncio.sleep(0.1)
        return self.undone()


async def measure(name: str, foos: int) -> OperatorFigures:
    """One operator's whole life.

    Raises:
        TimeoutError: it never watched. RuntimeError: it left something undone without any misfortune.
    """
    counted = _Counted()
    with tempfile.TemporaryDirectory() as folder:
        async with _server(counted, Path(folder)) as (kubeconfig, world):
            operator = Operator(name, kubeconfig, counted)
            try:
                return await _life(name, operator, world, counted, foos)
            finally:
                await operator.end(signal.SIGKILL)


async def _life(name: str, operator: Operator, world: World, counted: _Counted, foos: int) -> OperatorFigures:
    await operator.start()
    start_cpu = operator.cpu
    counted.requests.clear()
    names = [f"foo-{number}" for number in range(foos)]
    for phase, names_of_phase, act in (
        ("create", names, world.create),
        ("resize", names, lambda each: world.resize(each, 3)),
        ("lose a child", names[: foos // 5], world.lose_child),
    ):
        for each in names_of_phase:
            await act(each)
        await asyncio.sleep(_REST)
        if left := await world.settle():
            raise RuntimeError(f"{name}: {phase}: {len(left)} of {len(names_of_phase)} Foos were not done after {_PATIENCE:g} s")
    await asyncio.sleep(_REST)
    cpu, by_verb, mib = operator.cpu - start_cpu, dict(counted.requests), operator.mib

    await operator.end(signal.SIGKILL)
    share = foos // 5
    misfortunes = {"resized": names[:share], "child lost": names[share : 2 * share], "both": names[2 * share : 3 * share]}
    misfortunes["created"] = [f"late-{number}" for number in range(share)]
    for each in misfortunes["created"]:
        await world.create(each)
    for each in (*misfortunes["resized"], *misfortunes["both"]):
        await world.resize(each, 5)
    for each in (*misfortunes["child lost"], *misfortunes["both"]):
        await world.lose_child(each)
    await operator.start()
    undone_now = set(await world.settle(_PATIENCE / 2))
    undone = {what: len(undone_now.intersection(names)) for what, names in misfortunes.items()}
    await operator.end(signal.SIGTERM)
    return OperatorFigures(
        len(list(_code(_SOURCES[name]))), start_cpu, cpu / foos * 1e3, sum(by_verb.values()) / foos, mib, by_verb, undone
    )


def _code(source: Path) -> Iterator[str]:
    """Lines that are neither empty nor the module's docstring."""
    return (line for line in source.read_text().splitlines() if line.strip() and not line.startswith('"""'))


@contextlib.asynccontextmanager
async def _server(counted: _Counted, folder: Path) -> AsyncIterator[tuple[Path, World]]:
    api = ApiServer(ServerOptions(wrap=counted.wrap, authority=CertificateAuthority.create("bench")))
    await api.start()
    try:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.touch(0o600)
        kubeconfig.write_bytes(kubeconfig_text(api.url, api.authority, api.administrator()))
        async with Client(Transport(load_config(kubeconfig), user_agent=DRIVER), namespace=NAMESPACE) as client:
            (definition,) = read_yaml(CRD.read_text())
            await client.create(Unstructured.from_dict(definition))
            await client.wait_ready(CustomResourceDefinition, definition["metadata"]["name"], timeout=_PATIENCE)
            async with InformerFactory(client) as informers:
                world = World(client, informers)
                await informers.wait_synced()
                async with asyncio.TaskGroup() as group:
                    deploying = group.create_task(world.deploy())
                    yield kubeconfig, world
                    deploying.cancel()
    finally:
        await api.stop()


def judge(results: Mapping[str, OperatorFigures]) -> Iterator[Target]:
    """A fifth of kopf's CPU, and no more requests."""
    ours, kopf = results.get(KUBELOOP), results.get(KOPF_NAME)
    if ours is None:
        return
    for what, unit, share, field in (
        ("operator: CPU of a Foo's life", "ms", 0.2, "cpu_ms"),
        ("operator: requests of a Foo's life", "", 1.0, "requests"),
    ):
        theirs = None if kopf is None else share * getattr(kopf, field)
        yield Target(what, unit, getattr(ours, field), theirs, f"{share:g} of kopf's")
    yield Target("operator: Foos that a crash leaves undone", "", sum(ours.undone.values()), 0, "")


def show(console: Console, title: str, results: Mapping[str, OperatorFigures], failed: Mapping[str, str]) -> None:
    table = Table(title=title)
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    rows = {"lines of code": "lines", "start, CPU s": "start_cpu_s", "CPU of a Foo's life, ms": "cpu_ms", "requests of it": "requests"}
    for what, field in (rows | {"resident, MiB": "mib"}).items():
        table.add_row(what, *(f"{getattr(each, field):.3g}" for each in results.values()))
    for what in sorted({verb for each in results.values() for verb in each.by_verb}):
        table.add_row(f"  {what}", *(str(each.by_verb.get(what, 0)) for each in results.values()))
    for what in next(iter(results.values())).undone if results else ():
        table.add_row(f"undone after a crash: {what}", *(str(each.undone[what]) for each in results.values()))
    console.print(table)
    for name, why in failed.items():
        console.print(f"[yellow]without {name}: {why.strip().splitlines()[-1]}")


def run(
    foos: int, rounds: int, only: Sequence[str], missing: Mapping[str, str], say: Callable[[str], None]
) -> tuple[dict[str, OperatorFigures], dict[str, str]]:
    """Of each operator the run with the median CPU, and why others have none."""
    failed = dict(missing)
    samples: dict[str, list[OperatorFigures]] = {}
    for number in range(rounds):
        for name in _SOURCES:
            if name in failed or (only and name not in only):
                continue
            say(f"operators, round {number + 1} of {rounds}: {name}")
            try:
                samples.setdefault(name, []).append(asyncio.run(measure(name, foos)))
            except (RuntimeError, TimeoutError) as error:
                failed[name] = str(error) or f"it did not start to watch within {_PATIENCE:g} s"
    return {name: sorted(each, key=lambda sample: sample.cpu_ms)[len(each) // 2] for name, each in samples.items() if each}, failed
