"""The server of a run: a separate process, with users, roles, a policy of admission and a log of audit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubeloop.blocking import Client
from kubeloop.meta import Unstructured
from tests.soak.server.settings import Settings
from tests.soak.server.wire import Target

AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Request", "verbs": ["create", "update", "patch", "delete"]}, {"level": "Metadata"}],
}
_RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}]


@dataclass(frozen=True)
class Started:
    process: subprocess.Popen[str]
    target: Target
    log: Path
    audit: Path

    def resident(self) -> float:
        """MiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


@contextmanager
def started(settings: Settings, folder: Path) -> Iterator[Started]:
    tokens, policy, kubeconfig = folder / "tokens.csv", folder / "audit.json", folder / "kubeconfig"
    users = [f'token-{number},client-{number},uid-{number},"soak"' for number in range(settings.clients)]
    users += ['token-bystander,bystander,b,"soak"', 'token-greedy,greedy,g,"soak"']
    tokens.write_text("\n".join(users) + "\n")
    policy.write_text(json.dumps(AUDIT))
    found = [str(Path(sys.executable).parent / "kubeloop"), "server", "--no-controllers", "--kubeconfig", str(kubeconfig)]
    # History that is kept by time is full within the first minute, with which memory is compared; by default it fills for five.
    found += ["--history", "20"]
    found += ["--token-auth-file", str(tokens), "--audit-policy-file", str(policy), "--audit-log-path", str(folder / "audit.log")]
    log = folder / "server.log"
    with log.open("w") as errors, subprocess.Popen(found, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        if ready[:1] != ["ready"]:
            raise RuntimeError(f"the server did not start: {log.read_text()}")
        try:
            with Client.from_config(kubeconfig) as client:
                ca = client.transport.config.ca
                assert ca is not None
                (folder / "ca.pem").write_bytes(ca.read())
                for obj in _objects(settings):
                    client.create(Unstructured.from_dict(obj))
            yield Started(process, Target(int(ready[1].rpartition(":")[2]), str(folder / "ca.pem")), log, folder / "audit.log")
        finally:
            process.terminate()
            process.wait(30)


def _objects(settings: Settings) -> Iterator[dict[str, Any]]:
    rbac = "rbac.authorization.k8s.io"
    yield {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "soak"}, "rules": _RULES}
    for number in range(settings.namespaces):
        namespace = f"soak-{number}"
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"soak": "yes"}}}
        yield {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "soak", "namespace": namespace},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "soak"},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "soak"}],
        }
        yield {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "pods", "namespace": namespace},
            "spec": {"hard": {"pods": "10"}},
        }
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-bystander", "namespace": "soak-0"}}
    matching = {
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]
    }
    group = "admissionregistration.k8s.io"
    yield {
        "apiVersion": f"{group}/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "soak"},
        "spec": {
            "matchConstraints": matching,
            "validations": [{"expression": "!has(object.data) || object.data.all(key, size(object.data[key]) < 5000)"}],
        },
    }
    yield {
        "apiVersion": f"{group}/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "soak"},
        "spec": {
            "policyName": "soak",
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"soak": "yes"}}},
        },
    }
