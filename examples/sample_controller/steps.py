"""What the demo does, step by step: each types kubectl commands and reaches a goal, or raises."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from examples.sample_controller.kubectl import Kubectl, KubectlFailed

MANIFESTS = Path(__file__).parent / "manifests"
NAME = "example-foo"
PODS = f"controller={NAME}"
WAIT = "--timeout=20s"


class StepFailed(Exception):
    """A step did not reach its goal; the text says what was there instead."""


@dataclass
class Stage:
    """What steps share. ``say`` shows one line of progress."""

    kubectl: Kubectl
    say: Callable[[str], None]
    facts: dict[str, str] = field(default_factory=dict)

    async def do(self, *args: str, stdin: str | None = None) -> str:
        """Type a command and show it with what it printed."""
        self.say(f"$ kubectl {' '.join(args)}")
        out = await self.kubectl(*args, stdin=stdin)
        for line in out.strip().splitlines():
            self.say(f"  {line}")
        return out

    async def read(self, *args: str) -> str:
        """As ``do``, unseen."""
        return (await self.kubectl(*args)).strip()

    async def available(self, count: int) -> None:
        """Wait until the Deployment is there, and it and the Foo both report so many available replicas."""
        await self.kubectl("wait", f"deployment/{NAME}", "--for=create", WAIT)
        await self.kubectl("wait", f"deployment/{NAME}", f"--for=jsonpath={{.status.availableReplicas}}={count}", WAIT)
        await self.kubectl("wait", f"foo/{NAME}", f"--for=jsonpath={{.status.availableReplicas}}={count}", WAIT)


async def install(stage: Stage) -> str:
    await stage.do("apply", "-f", str(MANIFESTS / "crd-status-subresource.yaml"))
    await stage.do("wait", "--for=condition=Established", "crd/foos.samplecontroller.k8s.io", WAIT)
    return "kind Foo is served"


async def apply(stage: Stage) -> str:
    await stage.do("apply", "-f", str(MANIFESTS / "example-foo.yaml"))
    await stage.available(1)
    await stage.do("get", "foo,deployment,replicaset,pod")
    return "Deployment, ReplicaSet and one Ready pod"


async def scale(stage: Stage) -> str:
    await stage.do("patch", "foo", NAME, "--type=merge", "-p", '{"spec":{"replicas":3}}')
    await stage.available(3)
    await stage.do("get", "pods", "-l", PODS)
    return "3 Ready pods"


async def recreate(stage: Stage) -> str:
    before = await stage.read("get", "deployment", NAME, "-o", "jsonpath={.metadata.uid}")
    await stage.do("delete", "deployment", NAME, "--wait=false")
    after = await _until(
        stage, lambda uid: uid not in ("", before), "deployment", NAME, "{.metadata.uid}", "the Deployment did not come back"
    )
    await stage.available(3)
    return f"came back with another uid ({after[:8]}, was {before[:8]})"


async def refuse(stage: Stage) -> str:
    manifest = (
        (MANIFESTS / "example-foo.yaml").read_text().replace(f"name: {NAME}", "name: too-many", 1).replace("replicas: 1", "replicas: 11")
    )
    stage.say("$ kubectl apply -f - (replicas: 11)")
    said = await stage.kubectl.run("apply", "-f", "-", stdin=manifest)
    expected = "spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10"
    if said.code == 0 or expected not in said.err:
        raise StepFailed(f"expected a refusal with {expected!r}, kubectl said: {(said.err or said.out).strip()}")
    stage.say(f"  {said.err.strip()}")
    return "refused with Kubernetes' message"


async def not_ours(stage: Stage) -> str:
    await stage.do("create", "deployment", "taken", "--image=nginx")
    manifest = (MANIFESTS / "example-foo.yaml").read_text().replace(f"name: {NAME}", "name: late-foo", 1)
    await stage.do("apply", "-f", "-", stdin=manifest.replace(f"deploymentName: {NAME}", "deploymentName: taken"))
    message = 'Resource "taken" already exists and is not managed by Foo'
    path = '{.items[?(@.reason=="ErrResourceExists")].message}'
    await _until(stage, lambda text: message in text, "events", "", path, "no ErrResourceExists event was recorded")
    stage.say(f"  Warning ErrResourceExists: {message}")
    await stage.do("delete", "foo/late-foo", "deployment/taken")
    return "Warning event ErrResourceExists"


async def describe(stage: Stage) -> str:
    text = await stage.read("describe", "foo", NAME)
    lines = [line for line in text.splitlines() if "Synced" in line and "Foo synced successfully" in line]
    if not lines:
        raise StepFailed(f"kubectl describe shows no Synced event:\n{text}")
    stage.say(f"$ kubectl describe foo {NAME}")
    stage.say(f"  {' '.join(lines[-1].split())}")
    return "Synced event shown"


async def remove(stage: Stage) -> str:
    pods = (await stage.read("get", "pods", "-l", PODS, "-o", "name")).split()
    await stage.do("delete", "foo", NAME)
    await stage.kubectl("wait", f"deployment/{NAME}", *pods, "--for=delete", WAIT)
    left = await stage.read("get", "deployments,replicasets,pods", "-o", "name")
    if left:
        raise StepFailed(f"still there: {left}")
    return "Deployment, ReplicaSet and pods are gone"


async def _until(stage: Stage, good: Callable[[str], bool], kind: str, name: str, path: str, missing: str) -> str:
    """Follow an object with ``kubectl get --watch`` until its field is good."""
    # kubectl wait cannot say "changed", so the field is read again until it did; every read is a real kubectl.
    value = ""
    for _ in range(80):
        said = await stage.kubectl.run("get", kind, *([name] if name else []), "-o", f"jsonpath={path}")
        value = said.out.strip()
        if good(value):
            return value
    raise StepFailed(f"{missing}; last seen: {json.dumps(value)}")


STEPS: tuple[tuple[str, Callable[[Stage], Awaitable[str]]], ...] = (
    ("apply a Foo", apply),
    ("scale it to 3", scale),
    ("delete its Deployment", recreate),
    ("a Foo with 11 replicas", refuse),
    ("a Deployment that is not ours", not_ours),
    ("describe the Foo", describe),
    ("delete the Foo", remove),
)

__all__ = ["STEPS", "KubectlFailed", "Stage", "StepFailed", "install"]
