"""The steps of the demo. Each runs kubectl commands directly and through the proxy, and returns a sentence; a failed step raises."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from examples.bitcoin_operator.demo_programs import Program, kubectl_path, python
from examples.sample_controller.kubectl import Kubectl
from examples.sample_controller.steps import StepFailed

#: Seconds until something that must happen has happened.
PATIENCE = 15.0
ROUTER = "127.0.0.9"
_COLUMNS = ("NAME", "STATUS", "NODE")


@dataclass
class ProxyStage:
    """The cluster and the proxy of the demo, which its steps share.

    Attributes:
        direct: kubectl at the API server, as administrator.
        ann: kubectl at the proxy, as a user of the group devs, for which there are rules.
        bob: kubectl at the proxy, as a user of the group ops, for which there are none.
        proxy: The proxy.
        rules: The file with the rules.
        port: The port of the server to which rules lead the endpoints.
        say: Shows one line of progress.
        stack: Ends the programs that steps start.
    """

    direct: Kubectl
    ann: Kubectl
    bob: Kubectl
    proxy: Program
    rules: Path
    port: int
    say: Callable[[str], None]
    stack: AsyncExitStack
    balancer: Program | None = None

    async def do(self, kubectl: Kubectl, *words: str) -> str:
        """Run a kubectl command, and show it with its output."""
        self.say(f"$ {self._title(kubectl)} {' '.join(words)}")
        output = await kubectl(*words)
        for line in output.strip().splitlines():
            self.say(f"  {line}")
        return output

    async def refused(self, kubectl: Kubectl, *words: str) -> str:
        """Run a kubectl command that must fail, show its error, and return it.

        Raises:
            StepFailed: It succeeded.
        """
        self.say(f"$ {self._title(kubectl)} {' '.join(words)}")
        result = await kubectl.run(*words)
        self.say(f"  {result.err.strip()}")
        if not result.code:
            raise StepFailed(f"kubectl {' '.join(words)} succeeded: {result.out}")
        return result.err.strip()

    async def start(self, title: str, command: list[str], kubectl: Kubectl, ready: str) -> Program:
        """Start a program that uses the kubeconfig of ``kubectl``. It ends with the demo.

        Args:
            title: Its name in the output.
            command: Path of the program, and its arguments.
            kubectl: kubectl with the kubeconfig to use.
            ready: Text of the line that says that it is ready.
        """
        environment = {"KUBECONFIG": str(kubectl.kubeconfig), "HOME": str(kubectl.home)}
        # kubectl watches end with 1, and kubeloop.run with 143.
        program = Program(title, command, ready=ready, show=self.say, shown=("",), environment=environment, statuses=(1, 143))
        self.stack.push_async_callback(program.stop)
        await program.start()
        return program

    def _title(self, kubectl: Kubectl) -> str:
        return "kubectl" if kubectl is self.direct else f"kubectl --kubeconfig {kubectl.kubeconfig.name}"


async def line_of(program: Program, pattern: str, after: int = 0) -> int:
    """Wait until a program has printed a line that matches, and return the number of lines up to it.

    Args:
        program: The program.
        pattern: A regular expression for a part of the line.
        after: The number of lines that do not count.

    Raises:
        StepFailed: It has not, in ``PATIENCE`` seconds.
    """
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                for number, line in enumerate(list(program.lines)[after:], after + 1):
                    if re.search(pattern, line):
                        return number
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise StepFailed(f"the {program.title} printed no line like {pattern!r}, but:\n{program.last_lines()}") from None


async def create(stage: ProxyStage) -> str:
    await stage.do(stage.direct, "create", "namespace", "shop")
    for kubectl in (stage.direct, stage.ann, stage.bob):
        await kubectl("config", "set-context", "--current", "--namespace=shop")
    await stage.do(stage.direct, "create", "deployment", "web", "--image=nginx", "--port=80", "--replicas=2")
    await stage.do(stage.direct, "expose", "deployment", "web")
    await stage.do(stage.direct, "run", "vault", "--image=vault", "--labels=tier=internal")
    for group in ("devs", "ops"):
        await stage.do(stage.direct, "create", "rolebinding", group, "--clusterrole=edit", f"--group={group}")
    await stage.do(stage.direct, "wait", "pods", "--all", "--for=condition=Ready")
    return "a Deployment with 2 pods, a Service, and a pod with the label tier=internal"


async def compare(stage: ProxyStage) -> str:
    words = ("get", "pods", "--output=wide")
    direct, proxied = await stage.direct(*words), await stage.ann(*words)
    _show(stage, f"kubectl {' '.join(words)}", columns_of(direct), columns_of(proxied))
    seen, shown = columns_of(direct), columns_of(proxied)
    if "vault" not in seen or "vault" in shown:
        raise StepFailed("the pod vault must be visible to the administrator, and hidden from ann")
    if [row[2] for row in shown.values()] != ["hidden", "hidden"] or "hidden" in direct:
        raise StepFailed(f"ann must see two pods on the node hidden, not {shown}")
    missing = await stage.refused(stage.ann, "get", "pod", "vault")
    if "NotFound" not in missing:
        raise StepFailed(f"expected NotFound, got {missing}")
    return f"{len(seen)} pods directly, {len(shown)} through the proxy, on a node that is called hidden"


async def users(stage: ProxyStage) -> str:
    words = ("get", "pods", "--output=wide")
    ann, bob = columns_of(await stage.ann(*words)), columns_of(await stage.bob(*words))
    _show(stage, f"kubectl {' '.join(words)}", bob, ann, ("bob of the group ops", "ann of the group devs"))
    if bob != columns_of(await stage.direct(*words)):
        raise StepFailed("bob must see what the administrator sees")
    if "vault" in ann:
        raise StepFailed("ann must not see vault")
    await stage.do(stage.ann, "auth", "whoami")
    return "no rule is for bob: he sees the cluster as it is"


async def watch(stage: ProxyStage) -> str:
    command = [kubectl_path(), "get", "pods", "--watch", "--output-watch-events", "--no-headers"]
    stage.say("$ kubectl --kubeconfig ann get pods --watch --output-watch-events --no-headers &")
    program = await stage.start("watch of ann", command, stage.ann, "ADDED")
    await line_of(program, "ADDED", after=1)
    begun = len(program.lines)
    pod = (await stage.direct("get", "pods", "--selector=app=web", "--output=name")).split()[0]
    name = pod.partition("/")[2]
    await stage.do(stage.direct, "label", pod, "tier=internal")
    hidden = await line_of(program, f"DELETED +{name}", begun)
    await stage.do(stage.direct, "label", pod, "tier-")
    await line_of(program, f"ADDED +{name}", hidden)
    # The client must hear nothing of the pod that it cannot see.
    await stage.do(stage.direct, "label", "pod/vault", "seen=yes")
    await stage.do(stage.direct, "annotate", pod, "last=yes")
    await line_of(program, f"MODIFIED +{name}", hidden)
    if any("vault" in line for line in program.lines):
        raise StepFailed("the watch shows vault")
    await program.stop()
    return "a pod that becomes internal is DELETED for ann, and ADDED when it is not any more"


async def deny(stage: ProxyStage) -> str:
    pod = (await stage.direct("get", "pods", "--selector=app=web", "--output=name")).split()[0]
    error = await stage.refused(stage.ann, "label", pod, "mine=yes")
    if "Forbidden" not in error or "hide-nodes" not in error:
        raise StepFailed(f"expected Forbidden with the name of the rule, got {error}")
    error = await stage.refused(stage.ann, "delete", "pod", "vault")
    if "NotFound" not in error:
        raise StepFailed(f"expected NotFound, got {error}")
    await stage.do(stage.ann, "scale", "deployment", "web", "--replicas=3")
    await stage.do(stage.direct, "wait", "deployment/web", "--for=jsonpath={.status.readyReplicas}=3")
    await stage.do(stage.bob, "label", pod, "mine=yes")
    return "ann cannot write a pod that she sees changed; Deployments, for which there is no rule, she can"


async def balance(stage: ProxyStage) -> str:
    command = python("examples.api_proxy.balancer", "web")
    direct = await stage.start("balancer at the API server", command, stage.direct, "listening")
    await line_of(direct, r"backends of web: 10\.")
    await direct.stop()
    stage.balancer = program = await stage.start("balancer at the proxy", command, stage.ann, "listening")
    await line_of(program, f"backends of web: {ROUTER}:{stage.port}$")
    url = next(line for line in program.lines if "listening" in line).partition("http://")[2]
    answer = await _get(url)
    stage.say(f"$ curl http://{url}/")
    stage.say(f"  {answer}")
    if "router" not in answer:
        raise StepFailed(f"expected an answer of the router, got {answer!r}")
    return f"the same program, unchanged, sends its connections to {ROUTER} instead of the pods"


async def reload(stage: ProxyStage) -> str:
    assert stage.balancer is not None
    begun = len(stage.balancer.lines)
    text = stage.rules.read_text()
    stage.rules.write_text(re.sub("- mapAddresses: .*", "- drop: true", text).replace("spec.nodeName: hidden", "spec.nodeName: moved"))
    stage.say(f"$ sed -i 's/mapAddresses: .*/drop: true/; s/nodeName: hidden/nodeName: moved/' {stage.rules.name}")
    await line_of(stage.balancer, "backends of web: none", begun)
    nodes = {row[2] for row in columns_of(await stage.do(stage.ann, "get", "pods", "--output=wide")).values()}
    if nodes != {"moved"}:
        raise StepFailed(f"expected the node moved, got {nodes}")
    stage.rules.write_text(text)
    stage.say(f"$ cp {stage.rules.name}.orig {stage.rules.name}")
    await line_of(stage.balancer, f"backends of web: {ROUTER}:{stage.port}$", begun + 1)
    return "open watches end, clients list again and see the new view; no program was restarted"


async def mistake(stage: ProxyStage) -> str:
    text = stage.rules.read_text()
    stage.rules.write_text(text.replace("drop: true", "dorp: true"))
    stage.say(f"$ sed -i 's/drop: true/dorp: true/' {stage.rules.name}")
    await line_of(stage.proxy, "the rules in force stay")
    if "vault" in await stage.do(stage.ann, "get", "pods"):
        raise StepFailed("ann sees vault although the rules in force must stay")
    stage.rules.write_text(text)
    return "the proxy names file, line and field, and goes on with the rules that it has"


def columns_of(output: str, names: tuple[str, ...] = _COLUMNS) -> dict[str, list[str]]:
    """Return columns of a table of kubectl, by the first of them."""
    header, *lines = output.splitlines()
    starts = {match[0]: match.start() for match in re.finditer(r"\S+(?: \S+)*", header)}
    rows = [[line[starts[name] :].split()[0] for name in names] for line in lines]
    return {row[0]: row for row in rows}


def _show(
    stage: ProxyStage,
    command: str,
    left: dict[str, list[str]],
    right: dict[str, list[str]],
    titles: tuple[str, str] = ("at the API server", "through the proxy"),
) -> None:
    """Show two tables side by side, with the rows of one object in one line."""
    stage.say(f"$ {command}")
    widths = [max(len(row[at]) for row in [list(_COLUMNS), *left.values(), *right.values()]) for at in range(len(_COLUMNS))]

    def text(row: list[str] | None) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(row or [""] * len(widths), widths, strict=True))

    whole = sum(widths) + 2 * len(widths)
    stage.say(f"  {titles[0].ljust(whole)} | {titles[1]}")
    stage.say(f"  {text(list(_COLUMNS)).ljust(whole)} | {text(list(_COLUMNS)).rstrip()}")
    for name in sorted(left.keys() | right.keys()):
        stage.say(f"  {text(left.get(name)).ljust(whole)} | {text(right.get(name)).rstrip()}".rstrip())


async def _get(address: str) -> str:
    """Return the body of an HTTP response."""
    host, _, port = address.partition(":")
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        response = await reader.read()
        writer.close()
    return response.decode().partition("\r\n\r\n")[2].strip()


STEPS: tuple[tuple[str, Callable[[ProxyStage], Awaitable[str]]], ...] = (
    ("get pods, directly and through the proxy", compare),
    ("two users, two worlds", users),
    ("a watch while labels change", watch),
    ("writes", deny),
    ("a load balancer with other data", balance),
    ("change the rules", reload),
    ("a mistake in the rules", mistake),
)
