"""What a real node does for users of the server; ``cluster.py`` runs this program inside the node's namespaces."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.batch.v1 import Job
from kubeloop.api.core.v1 import Node, Pod, Service
from kubeloop.client import Client
from kubeloop.codec import read_yaml
from kubeloop.meta import Unstructured
from tests.upstream.nodes.images import AGNHOST, BUSYBOX

#: Seconds for each state; the machine may be slow.
_PATIENCE = 300.0


async def _shows_logs_and_runs_commands(client: Client) -> str:
    spec = {"containers": [{"name": "main", "image": BUSYBOX, "command": ["sh", "-c", "echo hello; sleep 1000"]}]}
    await client.create(Pod.from_dict(_object("v1", "Pod", "shell", spec)))
    await client.wait_ready(Pod, "shell", timeout=_PATIENCE)
    log = await client.pods.logs("shell")
    result = await client.pods.exec("shell", ["sh", "-c", "hostname; exit 3"])
    return _same((log, result.text, result.exit_code), ("hello\n", "shell\n", 3))


async def _runs_jobs(client: Client) -> str:
    container = {"name": "main", "image": BUSYBOX, "command": ["sh", "-c", "exit 0"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    await client.create(Job.from_dict(_object("batch/v1", "Job", "once", {"completions": 2, "template": template})))
    await client.wait_for(Job, "once", "condition=Complete", timeout=_PATIENCE)
    return ""


async def _balances_services_by_name(client: Client) -> str:
    container = {
        "name": "main",
        "image": AGNHOST,
        "args": ["netexec", "--http-port=8080"],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
    }
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    await client.create(Deployment.from_dict(_object("apps/v1", "Deployment", "web", spec)))
    await client.create(
        Service.from_dict(_object("v1", "Service", "web", {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}))
    )
    await client.wait_rollout(Deployment, "web", timeout=_PATIENCE)
    pods = {pod.metadata.name async for pod in client.list(Pod, label_selector="app=web")}
    # kube-proxy and CoreDNS follow the Service in their own time.
    script = "for i in $(seq 200); do curl -s -m 5 http://web.default.svc.cluster.local/hostname && echo || sleep 0.5; done | head -20"
    result = await client.pods.exec("shell", ["sh", "-c", script], timeout=_PATIENCE)
    return _same(set(result.text.split()), pods)


async def _lets_pods_reach_the_server(client: Client) -> str:
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = f'curl -s --cacert {account}/ca.crt -H "Authorization: Bearer $(cat {account}/token)" https://kubernetes.default.svc/version'
    result = await client.pods.exec("shell", ["sh", "-c", script], timeout=_PATIENCE)
    return "" if '"gitVersion"' in result.text else f"{result.text}{result.stderr!r}"


#: Checks by the sentence that they verify. Each returns its problem, or an empty text.
CHECKS: dict[str, Callable[[Client], Awaitable[str]]] = {
    "a pod runs on the node, and the server shows its log and runs commands in it": _shows_logs_and_runs_commands,
    "a Job completes": _runs_jobs,
    "a Service is reached by its name and leads to each of its pods": _balances_services_by_name,
    "a pod reaches the server by the service kubernetes with its own account": _lets_pods_reach_the_server,
}


async def _check_all(client: Client) -> int:
    failures = 0
    for sentence, check in CHECKS.items():
        problem = await check(client)
        failures += bool(problem)
        print(f"{'FAILED' if problem else 'ok    '} {sentence}{': ' if problem else ''}{problem}", flush=True)
    return 1 if failures else 0


async def _apply(client: Client, file: Path) -> int:
    """Apply the objects of a file, and wait until its Deployments are rolled out."""
    for tree in (trees := read_yaml(file.read_text(), name=file.name)):
        await client.apply(Unstructured.from_dict(tree), field_manager="tests")
    for tree in trees:
        if tree["kind"] == "Deployment":
            meta = tree["metadata"]
            await client.wait_rollout(Deployment, meta["name"], namespace=meta["namespace"], timeout=_PATIENCE)
    return 0


async def _main(kubeconfig: str, action: str, argument: str = "") -> int:
    async with Client.from_config(kubeconfig) as client:
        if action == "apply":
            return await _apply(client, Path(argument))
        if action == "node":
            await client.wait_for(Node, argument, "condition=Ready", timeout=_PATIENCE)
            return 0
        return await _check_all(client)


def _object(version: str, kind: str, name: str, spec: Mapping[str, object]) -> dict[str, object]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _same(observed: object, expected: object) -> str:
    return "" if observed == expected else f"{observed!r} is not {expected!r}"


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*sys.argv[1:])))
