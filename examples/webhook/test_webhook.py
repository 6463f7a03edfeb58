"""The policy, hook by hook without a server; and the whole program by kubectl on both servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from examples.webhook.hooks import defaults, hooks, limits, protect
from kubeloop.api.apps.v1 import Deployment
from kubeloop.codec.yaml import read_yaml
from kubeloop.controller.webhooks import AdmissionUser, Service
from tests.kubectl.runner import Kubectl

HERE = Path(__file__).parent


def deployment(*, image: str = "nginx:1", replicas: int = 1, **metadata: Any) -> Deployment:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image}]}}
    made: Deployment = Deployment.from_dict(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"team": "shop"}, **metadata},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        }
    )
    return made


async def test_few_old_replica_sets_are_kept_and_the_author_is_noted() -> None:
    answer = await hooks.review(defaults, deployment(), user=AdmissionUser("ann"))
    assert answer.object is not None
    assert answer.object.spec.revision_history_limit == 2
    assert answer.object.metadata.annotations == {"example.com/author": "ann"}


async def test_an_update_leaves_the_author_alone() -> None:
    answer = await hooks.review(
        defaults, deployment(annotations={"example.com/author": "ann"}), operation="UPDATE", user=AdmissionUser("bob")
    )
    assert answer.object is not None
    assert answer.object.metadata.annotations == {"example.com/author": "ann"}


@pytest.mark.parametrize(
    ("desired", "fields", "warnings"),
    [
        pytest.param(deployment(), (), (), id="what keeps to the policy is allowed"),
        pytest.param(deployment(replicas=6), ("spec.replicas",), (), id="six replicas are refused"),
        pytest.param(deployment(labels={}), ("metadata.labels[team]",), (), id="a missing team label is refused"),
        pytest.param(deployment(replicas=6, labels={}), ("spec.replicas", "metadata.labels[team]"), (), id="both are said at once"),
        pytest.param(deployment(image="reg:5000/nginx"), (), ('image "reg:5000/nginx" has no tag',), id="no tag is a warning"),
    ],
)
async def test_limits(desired: Deployment, fields: tuple[str, ...], warnings: tuple[str, ...]) -> None:
    answer = await hooks.review(limits, desired)
    assert (answer.fields, answer.warnings) == (fields, warnings)


async def test_a_protected_object_stays() -> None:
    assert (await hooks.review(protect, deployment())).allowed
    assert "protected" in (await hooks.review(protect, deployment(annotations={"example.com/protected": "true"}))).message


def test_the_manifests_have_what_the_program_asks_for() -> None:
    found = {(one["kind"], one["metadata"]["name"]): one for one in read_yaml((HERE / "manifests.yaml").read_text(), name="manifests.yaml")}
    service = Service("default", "deployment-policy")
    assert found["Service", service.name]["spec"]["ports"] == [{"port": service.port, "targetPort": 9443}]
    for configuration in hooks.configurations(service.name, service):
        assert configuration.metadata.name in found["ClusterRole", service.name]["rules"][0]["resourceNames"]


@pytest.mark.server
def test_the_program_serves_the_policy_to_kubectl(kubectl: Kubectl) -> None:
    label = f"kubernetes.io/metadata.name={kubectl.namespace}"
    environment = os.environ | {"KUBECONFIG": str(kubectl.kubeconfig)}
    command = [sys.executable, "-m", "examples.webhook", "--namespace", kubectl.namespace, "--local"]
    program = subprocess.Popen(command, cwd=HERE.parents[1], env=environment, stderr=subprocess.PIPE)
    try:
        kubectl("label", "namespace", "-l", label, "example.com/policy=enforced")
        tree = deployment(labels={}).to_dict()
        deadline = time.monotonic() + 30
        while (refused := kubectl.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(tree))).code == 0:
            assert time.monotonic() < deadline, "the API server never asked"
            time.sleep(0.05)
        # kubectl may say before what it finds of the kinds of other tests.
        assert refused.err.endswith('The Deployment "web" is invalid: metadata.labels[team]: Required value: whom to ask about it\n')
        made = kubectl.run("create", "-f", "-", stdin=json.dumps(deployment(image="nginx").to_dict()))
        assert made.code == 0
        assert made.err.endswith('Warning: image "nginx" has no tag\n')
        assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.revisionHistoryLimit}") == "2"
        kubectl("annotate", "deployment", "web", "example.com/protected=true")
        kept = kubectl.run("delete", "deployment", "web")
        assert (kept.code, "it is protected" in kept.err) == (1, True)
        kubectl("annotate", "deployment", "web", "example.com/protected-")
        kubectl("delete", "deployment", "web")
    finally:
        kubectl("label", "namespace", "-l", label, "example.com/policy-")
        program.terminate()
        _, errors = program.communicate(timeout=20)
        for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"):
            kubectl("delete", kind, "deployment-policy", "--ignore-not-found")
    assert (program.returncode, errors) == (0, b"SIGTERM: stopping; once more to exit at once\n")
