"""The operator as a pod of a cluster, with its manifests and its service account; and outside, with a kubeconfig of that account."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.bitcoin_operator.__main__ import NAME
from kubeloop.codec.yaml import read_yaml
from kubeloop.config import Kubeconfig
from tests.kubectl.runner import Kubectl
from tests.kubelet.conftest import Program

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[1]
REPOSITORY = ROOT.parents[1]
CONFIG = ROOT / "config"
#: Seconds; a busy machine takes its time.
LONG = 60.0
FORBIDDEN = (
    f'User "system:serviceaccount:{NAME}:{NAME}" cannot list resource "bitcoinnetworks" '
    'in API group "bitcoincontroller.christianb93.github.com" at the cluster scope'
)


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl on a cluster whose pods are processes: the operator of this tree, and daemons that only sleep."""
    folder = tmp_path_factory.mktemp("in-cluster")
    operator = {
        "command": [sys.executable, "-m", "examples.bitcoin_operator"],
        "workingDirectory": str(REPOSITORY),
        # Containers see this machine's files: the operator must not find its user's kubeconfig.
        "environment": {"HOME": "/nonexistent", "KUBECONFIG": "", "PYTHONDONTWRITEBYTECODE": "1"},
    }
    images = {NAME: operator, "christianb93/bitcoind": {"command": ["sleep", "1000"]}}
    (folder / "images.yaml").write_text(yaml.safe_dump({"images": images}))
    kubeconfig = folder / "kubeconfig"
    server = Program("server", "--pods", "process", "--image-map", "images.yaml", "--kubeconfig", str(kubeconfig), folder=folder)
    try:
        yield Kubectl(kubeconfig, folder)
    finally:
        server.stop()


def manifests(kubectl: Kubectl, folder: str) -> list[dict[str, Any]]:
    """Return the objects of a folder below ``config``, changed as process pods need it.

    All pods share one network, so that the operator listens on the address of its pod only. They have the user of the test: another one
    may not read the files of Python. The readiness probe does not wait ten seconds.
    """
    found = list(read_yaml(kubectl("kustomize", str(CONFIG / folder))))
    (deployment,) = (one for one in found if one["kind"] == "Deployment")
    deployment["spec"]["replicas"] = 1
    pod = deployment["spec"]["template"]["spec"]
    pod["securityContext"]["runAsNonRoot"] = False
    (container,) = pod["containers"]
    container["readinessProbe"]["periodSeconds"] = 1
    container["env"] = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    port = str(free_port())
    container["args"] = [word.replace("=:", "=$(POD_IP):").replace("9443", port) for word in container["args"]]
    for one in container["ports"]:
        if one["name"] == "webhooks":
            one["containerPort"] = int(port)
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def inside(kubectl: Kubectl) -> Kubectl:
    """Return kubectl in the operator's namespace."""
    return replace(kubectl, namespace=NAME)


def apply(kubectl: Kubectl, objects: list[dict[str, Any]]) -> None:
    inside(kubectl)("apply", "--server-side", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def wait_for_children(kubectl: Kubectl) -> None:
    for child in ("service/my-network-svc", "statefulset/my-network-sts"):
        kubectl("wait", "--for=create", child, "--timeout=60s", timeout=LONG)


def wait_for_log(read: Callable[[], str], text: str) -> str:
    """Return a log as soon as it contains a text."""
    deadline = time.monotonic() + LONG
    while text not in (log := read()):
        assert time.monotonic() < deadline, f"{text!r} is not in:\n{log}"
        time.sleep(0.1)
    return log


def test_the_operator_in_a_pod_fails_without_its_role_and_works_with_it(kubectl: Kubectl) -> None:
    def log() -> str:
        return inside(kubectl).run("logs", f"deployment/{NAME}").out

    objects = manifests(kubectl, "default")
    apply(kubectl, [one for one in objects if one["kind"] not in ("ClusterRole", "ClusterRoleBinding")])
    wait_for_log(log, FORBIDDEN)

    inside(kubectl)("apply", "--server-side", "-f", str(CONFIG / "default" / "rbac.yaml"))
    kubectl("apply", "-f", str(ROOT / "samples"))
    wait_for_children(kubectl)
    fields = "jsonpath={.spec.replicas} {.spec.serviceName} {.metadata.ownerReferences[0].kind}"
    assert kubectl("get", "statefulset", "my-network-sts", "-o", fields) == "3 my-network-svc BitcoinNetwork"
    said = log()
    assert ("caches are synced" in said, "orbidden" in said) == (True, False), said


def test_the_operator_in_a_pod_serves_its_webhooks(kubectl: Kubectl) -> None:
    apply(kubectl, manifests(kubectl, "webhooks"))
    inside(kubectl)("rollout", "status", f"deployment/{NAME}", "--timeout=60s", timeout=LONG)
    kubectl("apply", "-f", str(ROOT / "samples"))
    refused = kubectl.refused("scale", "bitcoinnetwork", "my-network", "--replicas=0")
    assert "a network cannot shrink below one node; to remove the network, delete it" in refused
    kubectl("scale", "bitcoinnetwork", "my-network", "--replicas=2")
    kubectl("wait", "--for=jsonpath={.spec.replicas}=2", "statefulset/my-network-sts", "--timeout=60s", timeout=LONG)


def test_the_operator_outside_works_with_a_kubeconfig(kubectl: Kubectl, tmp_path: Path) -> None:
    """The kubeconfig has a token of the service account, so that the role is tested here, too."""
    apply(kubectl, [one for one in manifests(kubectl, "default") if one["kind"] != "Deployment"])
    inside(kubectl)("delete", "deployment", NAME, "--ignore-not-found")
    config = Kubeconfig.read(kubectl.kubeconfig).view(flatten=True, raw=True)
    token = inside(kubectl)("create", "token", NAME).strip()
    config["users"] = [{"name": one["name"], "user": {"token": token}} for one in config["users"]]
    file = tmp_path / "operator.kubeconfig"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(config))

    kubectl("create", "namespace", "outside")
    outside = replace(kubectl, namespace="outside")
    manifest = (ROOT / "samples" / "network.yaml").read_text()
    command = [sys.executable, "-m", "examples.bitcoin_operator", "--kubeconfig", str(file), "--namespace", "outside"]
    environment = {**os.environ, "KUBECONFIG": "", "HOME": str(tmp_path)}
    program = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        outside("apply", "-f", "-", stdin=manifest)
        wait_for_children(outside)
    finally:
        program.terminate()
        _, log = program.communicate(timeout=20)
    assert (program.returncode, "orbidden" in log) == (0, False), log
