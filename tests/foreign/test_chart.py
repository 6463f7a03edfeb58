"""Helm installs, upgrades and uninstalls the chart of a new operator on the embedded server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeloop.client import Client
from kubeloop.codec.yaml import read_yaml
from kubeloop.meta import NotFound, Unstructured
from tests.foreign.building import program
from tests.servers import ServerUnderTest

# The first test builds Helm.
pytestmark = [pytest.mark.server, pytest.mark.upstream, pytest.mark.timeout(1800)]

Definition = Unstructured.for_kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", plural="customresourcedefinitions", namespaced=False
)

Run = Callable[..., str]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator with a kind of two versions and webhooks."""
    folder = tmp_path_factory.mktemp("chart") / "shop-operator"
    kubeloop(folder.parent, "new", "operator", "shop-operator", "--group", "chart.example.com", "--packaging", "both")
    kubeloop(folder, "add", "webhook", "Shop")
    kubeloop(folder, "add", "version", "Shop", "v1")
    return folder


def kubeloop(folder: Path, *words: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "kubeloop", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def helm(server: ServerUnderTest, namespace: str, tmp_path: Path) -> Run:
    environment = {"HOME": str(tmp_path), "KUBECONFIG": str(server.kubeconfig), "PATH": os.environ.get("PATH", "")}

    def run(*words: str, code: int = 0) -> str:
        command = [str(program("helm")), *words, "--namespace", namespace]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def rendered(helm: Run, chart: Path, *values: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What ``helm template`` prints, by kind and name."""
    documents = read_yaml(helm("template", "demo", str(chart), *(f"--set={value}" for value in values)))
    return {(one["kind"], one["metadata"]["name"]): one for one in documents}


def test_the_chart_has_no_fault_that_helm_finds(helm: Run, project: Path) -> None:
    assert "1 chart(s) linted, 0 chart(s) failed" in helm("lint", str(project / "chart"))


def test_the_chart_grants_what_the_manifests_grant(helm: Run, project: Path, namespace: str) -> None:
    chart = rendered(helm, project / "chart")
    manifests = project / "config" / "default"
    names = ("rbac.yaml", "roles.yaml", "metrics.yaml", "webhook_service.yaml")
    for document in [one for name in names for one in read_yaml((manifests / name).read_text())]:
        if document["kind"] in ("ClusterRole", "Role"):
            name = document["metadata"]["name"].replace("shop-operator", "demo")
            rules = json.loads(json.dumps(document["rules"]).replace("shop-operator", "demo"))
            assert chart[document["kind"], name]["rules"] == rules
    assert {name for kind, name in chart if kind in ("ClusterRole", "Role")} == {
        *("demo", "demo-leader-election", "demo-metrics-auth", "demo-metrics-reader", "demo-webhooks"),
        *(f"demo-shop-{role}" for role in ("admin", "editor", "viewer")),
    }


@pytest.mark.parametrize(
    ("values", "path", "expected"),
    [
        pytest.param(["image.tag=2.0"], "containers.0.image", "shop-operator:2.0", id="the tag of the image"),
        pytest.param(["image.repository=here/it"], "containers.0.image", "here/it:0.1.0", id="the repository of the image"),
        pytest.param(["nodeSelector.disk=ssd"], "nodeSelector", {"disk": "ssd"}, id="the selector of nodes"),
        pytest.param(["tolerations[0].key=a"], "tolerations", [{"key": "a"}], id="tolerations"),
        pytest.param(["affinity.nodeAffinity.x=y"], "affinity", {"nodeAffinity": {"x": "y"}}, id="affinity"),
        pytest.param(["resources.limits.memory=1Gi"], "containers.0.resources.limits.memory", "1Gi", id="resources"),
        pytest.param(["env[0].name=A", "env[0].value=b"], "containers.0.env", [{"name": "A", "value": "b"}], id="environment variables"),
        pytest.param(["extraArgs={-v}"], "containers.0.args.-1", "-v", id="more arguments"),
        pytest.param(["watchNamespace=shop"], "containers.0.args.3", "--namespace=shop", id="the namespace to watch"),
        pytest.param(["metrics.secure=false"], "containers.0.args.3", "--metrics-insecure", id="metrics over HTTP"),
        pytest.param(["podSecurityContext.fsGroup=1"], "securityContext.fsGroup", 1, id="the security context of the pod"),
        pytest.param(["serviceAccount.create=false"], "serviceAccountName", "default", id="no service account"),
        pytest.param(["serviceAccount.name=mine"], "serviceAccountName", "mine", id="the name of the service account"),
        pytest.param(["webhook.certificates=cert-manager"], "volumes.0.secret.secretName", "demo-webhooks-cert-manager", id="cert-manager"),
    ],
)
def test_a_value_sets(helm: Run, project: Path, values: list[str], path: str, expected: object) -> None:
    found: Any = rendered(helm, project / "chart", *values)["Deployment", "demo"]["spec"]["template"]["spec"]
    for part in path.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    assert found == expected


async def test_an_upgrade_changes_definitions_and_the_end_of_the_release_keeps_them(
    helm: Run, project: Path, namespace: str, server: ServerUnderTest
) -> None:
    chart, name = str(project / "chart"), "shops.chart.example.com"
    async with Client.from_config(server.kubeconfig) as client:
        try:
            helm("install", "demo", chart, "--set=networkPolicy.enabled=true")
            found = (await client.get(Definition, name)).to_dict()
            assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
            service = found["spec"]["conversion"]["webhook"]["clientConfig"]["service"]
            assert (service["namespace"], service["name"]) == (namespace, "demo-webhooks")
            kinds = Unstructured.for_kind(
                "admissionregistration.k8s.io/v1",
                "ValidatingWebhookConfiguration",
                plural="validatingwebhookconfigurations",
                namespaced=False,
            )
            (webhook,) = (await client.get(kinds, "demo-webhooks")).to_dict()["webhooks"]
            assert webhook["clientConfig"]["service"]["namespace"] == namespace
            file = project / "chart" / "files" / "crds.yaml"
            before = file.read_text()
            file.write_text(before.replace("maximum: 100", "maximum: 200"))
            helm("upgrade", "demo", chart)
            file.write_text(before)
            assert '"maximum": 200' in json.dumps((await client.get(Definition, name)).to_dict())
            helm("uninstall", "demo")
            assert (await client.get(Definition, name)).metadata.name == name
            with pytest.raises(NotFound):
                await client.get(kinds, "demo-webhooks")
        finally:
            await client.delete(Definition, name)
