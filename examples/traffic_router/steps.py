"""The steps of the demo. Each sends requests through NGINX, compares which pods answered, and returns a sentence; a failed step raises."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aiohttp import ClientError, ClientSession

from examples.bitcoin_operator.demo_programs import Program, python
from examples.sample_controller.kubectl import Kubectl
from examples.sample_controller.steps import StepFailed
from examples.traffic_router.picture import picture

T = TypeVar("T")
HERE = Path(__file__).parent
ROUTER, ROUTER_PORT = "127.0.0.9", 8080
HOST, BETA = "web.example", "beta.example"
#: Seconds until something that must happen has happened.
_PATIENCE = 20.0
_INTERVAL = 0.1
_WAIT = "--timeout=60s"
_LOGGED = ("WARNING", "ERROR", " E ")


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """The answer of a pod. ``source``: the address from which its request came."""

    pod: str
    version: str
    source: str


@dataclass
class RouterStage:
    """The programs of the demo, which its steps share.

    Attributes:
        kubectl: kubectl at the API server, as administrator.
        home: Folder of the demo's files.
        say: Shows one line of progress.
        session: Client for NGINX.
        port: Port of NGINX for HTTP.
        https_port: Its port for HTTPS.
        stack: Ends the programs that steps start.
    """

    kubectl: Kubectl
    home: Path
    say: Callable[[str], None]
    session: ClientSession
    port: int
    https_port: int
    stack: AsyncExitStack
    router: Program | None = None
    proxy: Program | None = None
    controller: Program | None = None
    #: The port of the proxy, which is the same after a restart.
    proxy_port: int = 0

    @property
    def routes(self) -> Path:
        return self.home / "routes.yaml"

    @property
    def rules(self) -> Path:
        return self.home / "rules.yaml"

    async def do(self, *words: str, kubectl: Kubectl | None = None) -> str:
        """Run a kubectl command, and show it with its output. ``kubectl``: None: the administrator's."""
        found = kubectl or self.kubectl
        self.say(f"$ kubectl {'' if found is self.kubectl else f'--kubeconfig {found.kubeconfig.name} '}{' '.join(words)}")
        output = await found(*words, timeout=90)
        for line in output.strip().splitlines():
            self.say(f"  {line}")
        return output

    async def start(self, program: Program) -> Program:
        """Start a program, which ends with the demo."""
        self.stack.push_async_callback(program.stop)
        await program.start()
        return program

    async def start_controller(self, kubeconfig: Path) -> None:
        """Start the ingress controller, and wait until its NGINX has an answer of a pod."""
        flags = [
            "--kubeconfig",
            str(kubeconfig),
            "--http-port",
            str(self.port),
            "--https-port",
            str(self.https_port),
            "--bind-address",
            "127.0.0.1",
        ]
        self.say(f"$ python -m examples.ingress_nginx --kubeconfig {kubeconfig.name}")
        command = python("examples.ingress_nginx", *flags)
        self.controller = await self.start(Program("controller", command, ready="caches are synced", show=self.say, shown=_LOGGED))
        await self.eventually("an answer of a pod through NGINX", self.status, 200)

    async def start_proxy(self) -> None:
        """Start the proxy. Its port and its authority are those of an earlier start, so that its clients find it again."""
        out = self.home / "proxied"
        flags = ["--rules", str(self.rules), "--kubeconfig", str(self.kubectl.kubeconfig), "--kubeconfig-out", str(out)]
        flags += ["--data-dir", str(self.home / "proxy"), "--port", str(self.proxy_port)]
        command = python("kubeloop", "proxy", *flags)
        self.say("$ kubeloop proxy --rules rules.yaml --kubeconfig cluster --kubeconfig-out proxied")
        # The step that kills it ends it by SIGKILL.
        program = Program("proxy", command, ready="ready https", show=self.say, shown=("loaded",), statuses=(0, -signal.SIGKILL))
        self.stack.push_async_callback(program.stop)
        line = await program.start()
        found = re.search(r":(\d+) ", line)
        assert found is not None
        self.proxy, self.proxy_port = program, int(found[1])

    async def get(self, host: str = HOST, path: str = "/", headers: Mapping[str, str] | None = None) -> PodAnswer:
        """Return the answer of a pod to a request through NGINX.

        Raises:
            StepFailed: There is no answer of a pod.
        """
        try:
            async with self.session.get(f"http://127.0.0.1:{self.port}{path}", headers={"Host": host, **(headers or {})}) as response:
                if response.status != 200:
                    raise StepFailed(f"NGINX answers {response.status} for {host}: {(await response.text())[:200]}")
                answer = await response.json()
                return PodAnswer(answer["pod"], answer["version"], answer["from"])
        except (ClientError, TimeoutError) as error:
            raise StepFailed(f"NGINX does not answer: {error!r}") from error

    async def status(self, host: str = HOST) -> int:
        """Return the status of NGINX's response; 0: there is none."""
        try:
            async with self.session.get(f"http://127.0.0.1:{self.port}/", headers={"Host": host}) as response:
                return response.status
        except (ClientError, TimeoutError):
            return 0

    async def spread(self, count: int, source: str, path: str = "/") -> Counter[str]:
        """Send requests one after the other, show which pods answered, and return how often each of them did.

        Args:
            count: Number of requests.
            source: Address from which the pods must get them.
            path: Path of the requests, which finds them in the log of the Router.

        Raises:
            StepFailed: A request failed, or came from another address.
        """
        answers = [await self.get(path=path) for _ in range(count)]
        pods = Counter(answer.pod for answer in answers)
        self.say(f"$ for i in $(seq {count}); do curl -s -H 'Host: {HOST}' http://127.0.0.1:{self.port}{path}; done")
        for pod, number in sorted(pods.items()):
            self.say(f"  {pod}: {number}")
        if (sources := {answer.source for answer in answers}) != {source}:
            raise StepFailed(f"the pods must get requests from {source} only, not from {sorted(sources)}")
        return pods

    async def pods(self, version: str) -> dict[str, str]:
        """Return the addresses of the running pods of a version, by name; an empty version: of all."""
        selector = f"app=web,version={version}" if version else "app=web"
        columns = "custom-columns=NAME:.metadata.name,IP:.status.podIP,END:.metadata.deletionTimestamp"
        output = await self.kubectl("get", "pods", "--selector", selector, "--no-headers", "--output", columns)
        rows = [line.split() for line in output.splitlines()]
        return {name: ip for name, ip, end in rows if end == "<none>"}

    async def scale(self, replicas: int) -> None:
        """Scale version 1, and wait until as many pods are ready."""
        await self.do("scale", "deployment", "web-v1", f"--replicas={replicas}")
        await self.kubectl("rollout", "status", "deployment/web-v1", _WAIT, timeout=90)

    async def eventually(self, goal: str, read: Callable[[], Awaitable[T]], expected: T) -> None:
        """Read a value until it is as expected.

        Args:
            goal: The goal, for the message.
            read: Reads the value.
            expected: The value.

        Raises:
            StepFailed: It is another one after ``_PATIENCE`` seconds.
        """
        value = await read()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while value != expected:
                    await asyncio.sleep(_INTERVAL)
                    value = await read()
        if value != expected:
            raise StepFailed(f"{goal}: expected {expected!r}, got {value!r} after {_PATIENCE:g} s")

    async def sources(self) -> set[str]:
        """Return the addresses from which pods get a few requests."""
        return {(await self.get()).source for _ in range(3)}

    def logged(self, path: str) -> list[str]:
        """Return the lines that the Router has printed for requests with a path."""
        assert self.router is not None
        return [line for line in self.router.lines if f" {path} -> " in line]


async def create(stage: RouterStage) -> str:
    await stage.do("apply", "--filename", str(HERE / "manifests.yaml"))
    await stage.kubectl("config", "set-context", "--current", "--namespace=shop")
    for version in ("v1", "v2"):
        await stage.kubectl("rollout", "status", f"deployment/web-{version}", _WAIT, timeout=90)
    await stage.do("get", "pods", "--output=wide")
    return "3 pods behind the Service web: 2 of version 1, 1 of version 2"


async def direct(stage: RouterStage) -> str:
    await stage.start_controller(stage.kubectl.kubeconfig)
    names = await stage.pods("")
    pods = await stage.spread(30, "127.0.0.1")
    if pods.keys() != names.keys():
        raise StepFailed(f"requests must reach {sorted(names)}, they reached {sorted(pods)}")
    for line in picture(stage.port, names, None):
        stage.say(line)
    return f"NGINX spreads requests over {len(pods)} pods"


async def insert(stage: RouterStage) -> str:
    for file in (stage.rules, stage.routes):
        file.write_text((HERE / file.name).read_text())
    stage.say(f"$ cat {stage.rules.name}")
    for line in stage.rules.read_text().splitlines():
        stage.say(f"  {line}")
    flags = ["--routes", str(stage.routes), "--kubeconfig", str(stage.kubectl.kubeconfig), "--listen", f"{ROUTER}:{ROUTER_PORT}"]
    # kubeloop.run ends with 143 after SIGTERM.
    router = Program("router", python("examples.traffic_router.router", *flags), ready="listening", show=stage.say, statuses=(143,))
    stage.router = await stage.start(router)
    await stage.start_proxy()
    proxied = Kubectl(stage.home / "proxied", stage.home)
    for kubectl in (stage.kubectl, proxied):
        output = await stage.do("get", "endpointslices,endpoints", "--namespace=shop", kubectl=kubectl)
        found = set(re.findall(r"\b127\.\d+\.\d+\.\d+", output))
        expected = {ROUTER} if kubectl is proxied else set((await stage.pods("")).values())
        if found != expected:
            raise StepFailed(f"expected the addresses {sorted(expected)}, got {sorted(found)}")
    return f"all endpoints of the namespace lead to {ROUTER}:{ROUTER_PORT} for clients of the proxy"


async def move(stage: RouterStage) -> str:
    assert stage.controller is not None
    await stage.controller.stop()
    await stage.start_controller(stage.home / "proxied")
    names = await stage.pods("v1")
    pods = await stage.spread(12, ROUTER, "/routed")
    if pods.keys() != names.keys():
        raise StepFailed(f"version 1 must get all requests, they reached {sorted(pods)}")

    async def lines() -> int:
        return len(stage.logged("/routed"))

    await stage.eventually("line of the Router for each request", lines, 12)
    stage.say("the last lines of the Router:")
    for line in stage.logged("/routed")[-3:]:
        stage.say(f"  {line}")
    for line in picture(stage.port, await stage.pods(""), f"{ROUTER}:{ROUTER_PORT}"):
        stage.say(line)
    answer = await stage.get(headers={"X-Version": "v2"})
    if answer.version != "v2":
        raise StepFailed(f"a request with X-Version: v2 must reach version 2, it reached {answer.pod}")
    return "the same controller, unchanged: NGINX knows the Router only, which forwards to version 1, and by a header to version 2"


async def reweight(stage: RouterStage) -> str:
    text = stage.routes.read_text()
    stage.routes.write_text(text.replace("{web-v1: 1, web-v2: 0}", "{web-v1: 3, web-v2: 1}"))
    stage.say(f"$ sed -i 's/web-v1: 1, web-v2: 0/web-v1: 3, web-v2: 1/' {stage.routes.name}")
    assert stage.router is not None
    router = stage.router

    async def is_read() -> bool:
        return any("read again" in line for line in router.lines)

    await stage.eventually("new routes", is_read, True)
    versions = Counter(pod.split("-")[1] for pod in (await stage.spread(40, ROUTER)).elements())
    if versions != {"v1": 30, "v2": 10}:
        raise StepFailed(f"of 40 requests 30 must reach version 1 and 10 version 2, not {dict(versions)}")
    return "of 40 requests 30 reached version 1, and 10 version 2"


async def scale(stage: RouterStage) -> str:
    async with _constant_requests(stage) as answers:
        await stage.scale(4)
        grown = len(await stage.pods("v1"))
        await _reach(stage, 4)
        await stage.scale(1)
        await _reach(stage, 1)
    return f"{len(answers)} requests during it, no failure; version 1 had 2, {grown}, 1 pods"


async def kill(stage: RouterStage) -> str:
    assert stage.proxy is not None
    os.kill(stage.proxy.pid, signal.SIGKILL)
    stage.say(f"$ kill -9 {stage.proxy.pid} # the proxy")
    await stage.proxy.stop()
    async with _constant_requests(stage) as answers:
        await stage.scale(2)
        await _reach(stage, 2)
    backend = f"--rule={BETA}/*=web:http"
    await stage.do("create", "ingress", "beta", "--class=kubeloop", backend)
    if (status := await stage.status(BETA)) != 404:
        raise StepFailed(f"NGINX must not know {BETA} yet, it answers {status}")
    return f"{len(answers)} requests, no failure: NGINX keeps its last state, and the Router learns of pods without the proxy"


async def recover(stage: RouterStage) -> str:
    await stage.start_proxy()

    async def beta() -> int:
        return await stage.status(BETA)

    await stage.eventually(f"answer for {BETA}", beta, 200)
    answer = await stage.get(BETA)
    if (answer.version, answer.source) != ("v2", ROUTER):
        raise StepFailed(f"{BETA} must reach version 2 by the Router, not {answer}")
    return f"the controller follows the API server again: {BETA} reaches version 2 by the Router"


async def remove(stage: RouterStage) -> str:
    # The proxy refuses an empty file, because it could be half written.
    stage.rules.write_text("{apiVersion: v1, kind: List, items: []}\n")
    stage.say(f"$ echo '{{apiVersion: v1, kind: List, items: []}}' > {stage.rules.name}")
    await stage.eventually("requests past the Router", stage.sources, {"127.0.0.1"})
    names = await stage.pods("")
    pods = await stage.spread(30, "127.0.0.1", "/direct")
    if pods.keys() != names.keys() or stage.logged("/direct"):
        raise StepFailed(f"requests must reach {sorted(names)} without the Router, they reached {sorted(pods)}")
    return f"no program was restarted: NGINX spreads requests over {len(pods)} pods again"


async def stop(stage: RouterStage) -> str:
    assert stage.controller is not None
    await stage.controller.stop()
    return "exit status 0"


async def _reach(stage: RouterStage, count: int) -> None:
    """Wait until requests reach all pods of version 1, and no others of it."""
    names = set(await stage.pods("v1"))
    if len(names) != count:
        raise StepFailed(f"expected {count} pods of version 1, there are {sorted(names)}")

    async def reached() -> set[str]:
        return {answer.pod for answer in [await stage.get() for _ in range(4 * count)] if answer.version == "v1"}

    await stage.eventually("requests to all pods", reached, names)


@contextlib.asynccontextmanager
async def _constant_requests(stage: RouterStage) -> AsyncIterator[list[PodAnswer]]:
    """Send requests during the context. A request that fails raises StepFailed at its end."""
    answers: list[PodAnswer] = []

    async def send() -> None:
        while True:
            answers.append(await stage.get())
            await asyncio.sleep(_INTERVAL / 5)

    task = asyncio.create_task(send(), name="constant requests")
    try:
        yield answers
    finally:
        task.cancel()
        # The failure of a request, unless the context ended first.
        with contextlib.suppress(asyncio.CancelledError):
            await task


STEPS: tuple[tuple[str, Callable[[RouterStage], Awaitable[str]]], ...] = (
    ("start the controller at the API server", direct),
    ("start the Router, and a proxy with the rule", insert),
    ("start the controller at the proxy instead", move),
    ("change the weights", reweight),
    ("scale the pods", scale),
    ("kill -9 the proxy", kill),
    ("start the proxy again", recover),
    ("remove the rule", remove),
    ("stop the controller", stop),
)
