"""The steps of the demo. Each runs kubectl commands, asks daemons, and returns a sentence with the result; a failed step raises."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.bitcoin_operator.demo_programs import Program, daemons_of, kubectl_path
from examples.bitcoin_operator.resources import SECRET_VERSION
from examples.bitcoin_operator.rpc import Credentials, CredentialsRejected, RpcCall, RpcClient, daemon_url
from examples.sample_controller.kubectl import Kubectl, KubectlFailed
from examples.sample_controller.steps import StepFailed

CONFIG = Path(__file__).parent / "config" / "default"
OPERATOR = "bitcoin-controller"
DEFINITION = "crd/bitcoinnetworks.bitcoincontroller.christianb93.github.com"
NAME = "my-network"
NETWORK, STATEFUL_SET, SERVICE = f"bitcoinnetwork/{NAME}", f"statefulset/{NAME}-sts", f"service/{NAME}-svc"
SECRET = "bitcoin-rpc"
OLD, NEW = Credentials("john", "first-password"), Credentials("john", "second-password")
WAIT = "--timeout=60s"
#: The commands of the image, with its configuration.
CLI = ("bitcoin-cli", "-regtest", "-conf=/bitcoin.conf")
MANIFEST = f"""\
apiVersion: bitcoincontroller.christianb93.github.com/v1
kind: BitcoinNetwork
metadata: {{name: {NAME}}}
spec: {{nodes: 3, secret: {SECRET}}}
"""


@dataclass
class NetworkStage:
    """The cluster of the demo, which its steps share.

    Attributes:
        kubectl: kubectl with the rights of an administrator.
        say: Shows one line of progress.
        server: The server; the daemons are processes below it.
        rpc: Client for the daemons.
    """

    kubectl: Kubectl
    say: Callable[[str], None]
    server: Program
    rpc: RpcClient

    async def do(self, *words: str, stdin: str | None = None) -> str:
        """Run a kubectl command, and show it with its output."""
        self.say(f"$ kubectl {' '.join(words)}")
        output = await self.kubectl(*words, stdin=stdin, timeout=90)
        for line in output.strip().splitlines():
            self.say(f"  {line}")
        return output

    async def read(self, *words: str) -> str:
        """Run a kubectl command without showing it, and return its output."""
        return (await self.kubectl(*words, timeout=90)).strip()

    async def cli(self, pod: str, *words: str) -> str:
        """Run a command of bitcoin-cli in a pod."""
        return await self.read("exec", pod, "--", *CLI, *words)

    async def addresses(self) -> dict[str, str]:
        """Return the address of each pod of the network that is not being deleted, by its name."""
        pods = json.loads(await self.read("get", "pods", "-l", f"app={NAME}", "-o", "json"))["items"]
        return {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}

    async def uids(self) -> set[str]:
        return set((await self.read("get", "pods", "-l", f"app={NAME}", "-o", "jsonpath={.items[*].metadata.uid}")).split())

    async def meshed(self, count: int) -> dict[str, str]:
        """Wait until a network of ``count`` nodes is meshed, compare the daemons' lists with that, and return the pods' addresses.

        Raises:
            StepFailed: The status says so, but pods or lists differ.
        """
        await self.do("wait", NETWORK, "--for=condition=Meshed", WAIT)
        await self.read("wait", NETWORK, f"--for=jsonpath={{.status.readyNodes}}={count}", WAIT)
        pods = await self.addresses()
        if len(pods) != count:
            raise StepFailed(f"expected {count} pods, there are {sorted(pods)}")
        self.say(f"$ kubectl exec POD -- {' '.join(CLI)} getaddednodeinfo")
        outputs = await asyncio.gather(*(self.cli(pod, "getaddednodeinfo") for pod in pods))
        for (pod, ip), output in zip(pods.items(), outputs, strict=True):
            listed = sorted(entry["addednode"] for entry in json.loads(output))
            self.say(f"  {pod} ({ip}): {' '.join(listed)}")
            others = sorted(set(pods.values()) - {ip})
            if listed != others:
                raise StepFailed(f"{pod} lists {listed}, expected are {others}")
        return pods

    async def chain(self, pods: Iterable[str], height: int) -> str:
        """Wait until each daemon has ``height`` blocks, and return the hash of the last one.

        Raises:
            StepFailed: The last blocks differ.
        """
        heights = await asyncio.gather(*(self.cli(pod, "waitforblockheight", str(height), "30000") for pod in pods))
        for pod, output in zip(pods, heights, strict=True):
            self.say(f"  {pod}: {' '.join(output.split())}")
        blocks: dict[str, int] = {json.loads(output)["hash"]: json.loads(output)["height"] for output in heights}
        if list(blocks.values()) != [height]:
            raise StepFailed(f"expected one last block at height {height}, the daemons have {blocks}")
        return next(iter(blocks))

    async def diagnose(self) -> None:
        """Show the state of networks and pods, after a step has failed."""
        columns = "custom-columns=NAME:.metadata.name,TYPE:.status.conditions[*].type,STATUS:.status.conditions[*].status"
        conditions = f"{columns},MESSAGE:.status.conditions[*].message"
        for words in (("get", "bitcoinnetworks", "-o", conditions), ("get", "statefulsets,pods", "-o", "wide")):
            with contextlib.suppress(KubectlFailed):
                await self.do(*words)


async def install(stage: NetworkStage) -> str:
    for name in ("namespace.yaml", "crd.yaml", "rbac.yaml"):
        await stage.do("apply", "-f", str(CONFIG / name))
    await stage.do("wait", "--for=condition=Established", DEFINITION, WAIT)
    return "kind BitcoinNetwork is served"


async def write_operator_kubeconfig(stage: NetworkStage, file: Path) -> None:
    """Write a kubeconfig with a token of the operator's service account: the operator has the rights of its role, and no others."""
    token = await stage.read("create", "token", OPERATOR, "--namespace", OPERATOR)
    config = json.loads(await stage.read("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    config["users"] = [{"name": config["contexts"][0]["context"]["user"], "user": {"token": token}}]
    _write_private(file, json.dumps(config))


async def form(stage: NetworkStage) -> str:
    await stage.do("create", "secret", "generic", SECRET, *_literals(OLD))
    stage.say(f"$ kubectl apply -f - ({NETWORK} with 3 nodes and Secret {SECRET})")
    await stage.kubectl("apply", "-f", "-", stdin=MANIFEST)
    pods = await stage.meshed(3)
    await stage.do("get", "bitcoinnetwork,statefulset,service,pods", "-o", "wide")
    running = daemons_of(stage.server.pid)
    if len(running) != len(pods):
        raise StepFailed(f"expected 3 processes of bitcoind below the server, there are {len(running)}")
    return "3 daemons are Ready, each lists the 2 others"


async def generate(stage: NetworkStage) -> str:
    pods = await stage.addresses()
    miner = f"{NAME}-sts-0"
    await stage.do("exec", miner, "--", *CLI, "generate", "1")
    last = await stage.chain(pods, 1)
    return f"block {last[:12]} of {miner} reached the others"


async def grow(stage: NetworkStage) -> str:
    await stage.do("scale", NETWORK, "--replicas=4")
    await stage.chain(await stage.meshed(4), 1)
    return "4 daemons, each lists the 3 others"


async def shrink(stage: NetworkStage) -> str:
    await stage.do("scale", NETWORK, "--replicas=2")
    pods = await stage.meshed(2)
    await stage.read("wait", f"pod/{NAME}-sts-2", f"pod/{NAME}-sts-3", "--for=delete", WAIT)
    return f"{len(pods)} daemons, each lists the other one"


async def kill(stage: NetworkStage) -> str:
    pod = f"{NAME}-sts-1"
    before = await stage.addresses()
    command = ("exec", pod, "--", "sh", "-c", "kill -9 $(cat /bitcoin-data/regtest/bitcoind.pid)")
    stage.say(f"$ kubectl {' '.join(command)}")
    # Its exit status does not count: the end of the daemon ends all processes of the container, also this shell.
    await stage.kubectl.run(*command)
    # The daemon is Ready again after 5 s at the earliest (its readiness probe), so this state cannot be missed.
    await stage.do("wait", NETWORK, "--for=condition=Meshed=false", WAIT)
    await stage.do("wait", f"pod/{pod}", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", WAIT)
    pods = await stage.meshed(2)
    if pods != before:
        raise StepFailed(f"the pods changed from {before} to {pods}; expected is a restart of the container")
    await stage.chain(pods, 1)
    return f"{pod} restarted at the same address, has its list again, and the block"


async def rotate(stage: NetworkStage) -> str:
    former = await stage.uids()
    data = {"BC_RPC_PASSWORD": base64.b64encode(NEW.password.encode()).decode()}
    await stage.do("patch", "secret", SECRET, "--type=merge", "-p", json.dumps({"data": data}))
    version = await stage.read("get", "secret", SECRET, "-o", "jsonpath={.metadata.resourceVersion}")
    annotation = SECRET_VERSION.replace(".", "\\.")
    stage.say("  the operator reads the Secret once in 30 s")
    await stage.read("wait", STATEFUL_SET, f"--for=jsonpath={{.spec.template.metadata.annotations.{annotation}}}={version}", WAIT)
    await stage.do("rollout", "status", STATEFUL_SET, WAIT)
    pods = await stage.meshed(2)
    if former & await stage.uids():
        raise StepFailed("a pod was not replaced")
    for pod, ip in pods.items():
        await stage.rpc.call(ip, NEW, RpcCall("getnetworkinfo"))
        try:
            await stage.rpc.call(ip, OLD, RpcCall("getnetworkinfo"))
        except CredentialsRejected as error:
            stage.say(f"  {pod}, old password: {error}")
        else:
            raise StepFailed(f"{pod} accepts the old password still")
    return "the pods were replaced, and the mesh has the new password; the old one gets 401"


async def forward(stage: NetworkStage) -> str:
    pod = f"pod/{NAME}-sts-0"
    environment = {"KUBECONFIG": str(stage.kubectl.kubeconfig), "HOME": str(stage.kubectl.home)}
    command = [kubectl_path(), "port-forward", pod, ":18332"]
    program = Program("port-forward", command, ready="Forwarding from 127.0.0.1:", show=stage.say, environment=environment)
    stage.say(f"$ kubectl port-forward {pod} :18332")
    try:
        line = await program.start()
        stage.say(f"  {line}")
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found is not None
        async with RpcClient(url_of=lambda ip: daemon_url(ip, f"http://{{ip}}:{found[1]}/")) as rpc:
            information = await rpc.call("127.0.0.1", NEW, RpcCall("getnetworkinfo"))
    finally:
        await program.stop()
    stage.say(f"  getnetworkinfo: {_shown(information)}")
    return f"an RPC through port {found[1]} of this machine reached {pod}"


async def execute(stage: NetworkStage) -> str:
    pod = f"{NAME}-sts-1"
    await stage.do("exec", pod, "--", *CLI, "getblockcount")
    stage.say(f"$ kubectl exec {pod} -- {' '.join(CLI)} nosuchmethod")
    result = await stage.kubectl.run("exec", pod, "--", *CLI, "nosuchmethod")
    stage.say(f"  exit status {result.code}: {' '.join(result.err.split())}")
    if result.code == 0 or "Method not found" not in result.err:
        raise StepFailed(f"expected the daemon's error 'Method not found', bitcoin-cli printed: {result.out or result.err}")
    return f"bitcoin-cli runs in {pod}; its exit status and its error arrive"


async def describe(stage: NetworkStage) -> str:
    text = await stage.read("describe", NETWORK)
    stage.say(f"$ kubectl describe {NETWORK}")
    events = text.partition("Events:")[2].strip().splitlines()
    for line in events:
        stage.say(f"  {line}")
    expected = [
        f"Created headless service for bitcoin network {NAME}",
        f"Created stateful set for bitcoin network {NAME}",
        "Adjusting number of replicas to 4",
        "Adjusting number of replicas to 2",
    ]
    missing = [message for message in expected if not any(message in line for line in events)]
    if missing:
        raise StepFailed(f"kubectl describe lacks the events {missing}:\n{text}")
    return f"events: {', '.join(expected[:2])} ..."


async def remove(stage: NetworkStage) -> str:
    running = daemons_of(stage.server.pid)
    pods = [f"pod/{pod}" for pod in await stage.addresses()]
    if len(running) != len(pods):
        raise StepFailed(f"expected {len(pods)} processes of bitcoind, there are {len(running)}")
    await stage.do("delete", NETWORK)
    await stage.do("wait", STATEFUL_SET, SERVICE, *pods, "--for=delete", WAIT)
    left = (await stage.read("get", "bitcoinnetworks,statefulsets,services,pods", "-o", "name")).split()
    if left != ["service/kubernetes"]:
        raise StepFailed(f"still there: {left}")
    alive = daemons_of(stage.server.pid)
    if alive:
        raise StepFailed(f"processes of bitcoind still run: {alive}")
    return "StatefulSet, Service, pods and processes are gone"


def _write_private(file: Path, text: str) -> None:
    """Write a file that its owner alone can read."""
    file.touch(mode=0o600)
    file.write_text(text)


def _literals(credentials: Credentials) -> list[str]:
    return [f"--from-literal=BC_RPC_USER={credentials.user}", f"--from-literal=BC_RPC_PASSWORD={credentials.password}"]


def _shown(information: Mapping[str, Any]) -> str:
    return f"version {information['version']}, {information['subversion']}, {information['connections']} connections"


STEPS: tuple[tuple[str, Callable[[NetworkStage], Awaitable[str]]], ...] = (
    ("apply a Secret and a network of three", form),
    ("generate a block", generate),
    ("scale it to 4", grow),
    ("scale it to 2", shrink),
    ("kill -9 a daemon", kill),
    ("rotate the Secret", rotate),
    ("kubectl port-forward", forward),
    ("kubectl exec", execute),
    ("kubectl describe", describe),
    ("delete the network", remove),
)

__all__ = ["STEPS", "KubectlFailed", "NetworkStage", "StepFailed", "install", "write_operator_kubeconfig"]
