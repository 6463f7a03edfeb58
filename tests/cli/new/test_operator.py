"""``kubeloop new operator``: the project passes its own tests and checks, a server accepts its manifests, and it works."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ServiceAccount
from kubeloop.api.rbac.v1 import ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject
from kubeloop.cli.new.command import add, new
from kubeloop.client import Client, WriteOptions
from kubeloop.codec.yaml import read_yaml
from kubeloop.meta import ObjectMeta, Unstructured
from kubeloop.testing import eventually, one
from tests.cli.new.conftest import Project, make
from tests.kubectl.runner import Kubectl, kubectl_binary
from tests.servers import ServerUnderTest

# Projects are made, and their tests and tools run, in separate processes.
pytestmark = pytest.mark.timeout(300)

STRICT = WriteOptions(field_manager="test", field_validation="Strict")


@pytest.mark.embedded
def test_a_new_project_passes_its_own_tests(project: Project) -> None:
    done = project.run("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^1[0-9] passed in", done.stdout, re.MULTILINE)


@pytest.mark.embedded
def test_the_program_says_in_one_line_that_its_configuration_is_wrong(project: Project) -> None:
    done = project.run("-m", project.name.replace("-", "_"), "--kubeconfig", "missing.yaml")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ConfigError: missing.yaml: ")
    assert "Traceback" not in done.stderr


LONG = ["--kind", "W" + "e" * 30 + "b"]


@pytest.mark.embedded
@pytest.mark.parametrize("options", [pytest.param((), id="usual names"), pytest.param(LONG, id="the longest names")])
def test_a_new_project_is_formatted_and_has_no_fault_that_ruff_finds(project: Project, tmp_path: Path, options: list[str]) -> None:
    made = project
    if options:
        made = Project(tmp_path / ("w" + "e" * 38 + "b"), "w" + "e" * 38 + "b", "example.com", project.wheel)
        make(made, options)
    for command in (["check", "--no-cache", "."], ["format", "--no-cache", "--check", "--diff", "."]):
        done = made.run("-m", "ruff", *command)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.embedded
def test_a_new_project_passes_a_strict_type_check(project: Project, types: Path) -> None:
    done = project.run("-m", "mypy", "--cache-dir", str(types))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.embedded
def test_a_second_run_overwrites_nothing_and_names_the_file_that_is_there(project: Project) -> None:
    before = {path: path.read_bytes() for path in project.folder.rglob("*") if path.is_file()}
    done = CliRunner().invoke(new, ["operator", project.name, "--out", str(project.folder)])
    assert done.exit_code == 1
    assert re.search(r"Error: \S+/web\d+-operator/\S+ is there already, and nothing is overwritten; choose another folder", done.output)
    assert {path: path.read_bytes() for path in project.folder.rglob("*") if path.is_file()} == before


@pytest.mark.embedded
def test_a_name_that_is_not_allowed_creates_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(new, ["operator", "Web", "--out", str(tmp_path / "web")])
    assert done.exit_code == 1
    assert 'Error: NAME "Web"' in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("packaging", "there", "not_there"),
    [("helm", "chart/Chart.yaml", "config"), ("kustomize", "config/default/kustomization.yaml", "chart")],
)
def test_a_project_has_only_the_packaging_that_was_asked_for(tmp_path: Path, packaging: str, there: str, not_there: str) -> None:
    done = CliRunner().invoke(new, ["operator", "web-operator", "--packaging", packaging, "--out", str(tmp_path / "web")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "web" / there).is_file()
    assert not (tmp_path / "web" / not_there).exists()
    texts = "".join(path.read_text() for path in (tmp_path / "web").rglob("*") if path.is_file() and path.suffix != ".py")
    assert not re.search(r"@@|\n\n\n", texts)


def kustomized(project: Project, folder: str) -> list[dict[str, Any]]:
    """What ``kubectl kustomize`` prints."""
    command = [kubectl_binary(), "kustomize", str(project.folder / "config" / folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(read_yaml(done.stdout))


@asynccontextmanager
async def served(project: Project, server: ServerUnderTest) -> AsyncIterator[Client]:
    """The server has the project's definition."""
    async with Client.from_config(server.kubeconfig) as client:
        (definition,) = read_yaml((project.folder / "config" / "default" / "crd.yaml").read_text())
        name = definition["metadata"]["name"]
        await client.create(Unstructured.from_dict(definition), options=STRICT)
        await client.wait_ready(CustomResourceDefinition, name, timeout=30)
        try:
            yield client
        finally:
            await client.delete(CustomResourceDefinition, name)
            await client.wait_gone(CustomResourceDefinition, name, timeout=60)


#: What the manifests use of a kind of the Prometheus operator.
SERVICE_MONITORS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com", "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
    "spec": {
        "group": "monitoring.coreos.com",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors", "singular": "servicemonitor", "listKind": "ServiceMonitorList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                },
            }
        ],
    },
}


@pytest.mark.server
def test_kubectl_installs_all_manifests_and_removes_them(project: Project, kubectl: Kubectl) -> None:
    """By server-side apply with strict fields, as ``make deploy`` does; and twice, which changes nothing."""
    kubectl = replace(kubectl, namespace=project.name)
    kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(SERVICE_MONITORS))
    kubectl("wait", "--for=condition=Established", "crd/servicemonitors.monitoring.coreos.com")
    folders = ("default", "prometheus", "network-policy")
    try:
        for folder in folders:
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": kustomized(project, folder)})
            kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=text)
            assert "serverside-applied" in kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=text)
        kubectl("wait", "--for=condition=Established", f"crd/webs.{project.group}")
        kubectl("apply", "--validate=strict", "-f", str(project.folder / "samples" / "v1alpha1_web.yaml"))
        assert kubectl("get", f"webs.{project.group}", "web-sample", "-o", "jsonpath={.spec.replicas}") == "2"
        image = kubectl("get", "deployment", project.name, "-o", "jsonpath={..image}")
        assert image == f"{project.name}:0.1.0"
    finally:
        for folder in reversed(folders):
            kubectl.run("delete", "--ignore-not-found", "--wait=false", "-k", str(project.folder / "config" / folder))
        kubectl.run("delete", "crd", "servicemonitors.monitoring.coreos.com")


@pytest.mark.embedded
def test_the_overlay_for_cert_manager_names_its_certificate_wherever_it_is_trusted(project: Project, tmp_path: Path) -> None:
    shutil.copytree(project.folder, tmp_path / "project")
    extended = Project(tmp_path / "project", project.name, project.group, project.wheel)
    for words in (["webhook", "Web"], ["version", "Web", "v1"]):
        done = CliRunner().invoke(add, [*words, "--project", str(extended.folder)])
        assert done.exit_code == 0, done.output
    found = {(one["kind"], one["metadata"]["name"]): one for one in kustomized(extended, "cert-manager")}
    certificate = found["Certificate", f"{project.name}-webhooks"]
    assert f"{project.name}-webhooks.{project.name}.svc" in certificate["spec"]["dnsNames"]
    trusting = [name for name, one in found.items() if "cert-manager.io/inject-ca-from" in one["metadata"].get("annotations", {})]
    assert sorted(trusting) == [
        ("CustomResourceDefinition", f"webs.{project.group}"),
        ("MutatingWebhookConfiguration", f"{project.name}-webhooks"),
        ("ValidatingWebhookConfiguration", f"{project.name}-webhooks"),
    ]
    spec = found["Deployment", project.name]["spec"]["template"]["spec"]
    assert spec["volumes"][0]["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert spec["containers"][0]["args"][-1] == f"--webhook-certificates={spec['containers'][0]['volumeMounts'][0]['mountPath']}"


@pytest.mark.server
async def test_the_operator_runs_and_shows_metrics_to_those_who_may_read_them(
    project: Project, namespace: str, server: ServerUnderTest
) -> None:
    command = [sys.executable, "-m", project.name.replace("-", "_"), "--kubeconfig", str(server.kubeconfig), "--namespace", namespace]
    port = free_port()
    async with served(project, server) as client:
        process = await asyncio.create_subprocess_exec(
            *command,
            *("--leader-election", "--health", "127.0.0.1:0", "--metrics", f"127.0.0.1:{port}"),
            cwd=project.folder,
            env=project.environment,
            stderr=asyncio.subprocess.PIPE,
        )
        errors = asyncio.create_task(lines(process))
        try:
            kind = Unstructured.for_kind(f"{project.group}/v1alpha1", "Web")
            (sample,) = read_yaml((project.folder / "samples" / "v1alpha1_web.yaml").read_text())
            await client.create(Unstructured.from_dict({**sample, "metadata": {"name": "a", "namespace": namespace}}))
            inside = client.in_namespace(namespace)
            deployment = await eventually(one(inside, Deployment, "a-web"), lambda obj: obj.spec.replicas == 2, within=60)
            assert [owner.kind for owner in deployment.metadata.owner_references] == ["Web"]
            condition = {"type": "Ready", "observedGeneration": 1}
            await eventually(one(inside, kind, "a"), {"status": {"conditions": [condition]}}, within=60)
            async with reader(inside, namespace) as tokens:
                assert await asyncio.to_thread(scrape, port, "") == (401, "Unauthorized\n")
                assert (await asyncio.to_thread(scrape, port, tokens["stranger"]))[0] == 403
                status, text = await asyncio.to_thread(scrape, port, tokens["reader"])
                assert status == 200
                assert 'controller_runtime_reconcile_total{controller="web"' in text
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()
            said = await errors
            print(said)  # shown if this fails
    assert process.returncode == 0, said


async def lines(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    return (await process.stderr.read()).decode()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def scrape(port: int, token: str) -> tuple[int, str]:
    """What Prometheus gets, with the options that the ServiceMonitor has."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"https://127.0.0.1:{port}/metrics", headers=headers), context=context
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@asynccontextmanager
async def reader(client: Client, namespace: str) -> AsyncIterator[dict[str, str]]:
    """Tokens of two accounts; ``reader`` has the rule of the role that the manifests have for readers of metrics."""
    name = f"{namespace}-metrics-reader"
    accounts = ("reader", "stranger")
    for account in accounts:
        await client.create(ServiceAccount(metadata=ObjectMeta(name=account)))
    rules = [PolicyRule(verbs=["get"], non_resource_urls=["/metrics"])]
    await client.create(ClusterRole(metadata=ObjectMeta(name=name), rules=rules))
    role = RoleRef(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=name)
    subjects = [Subject(kind="ServiceAccount", name="reader", namespace=namespace)]
    await client.create(ClusterRoleBinding(metadata=ObjectMeta(name=name), role_ref=role, subjects=subjects))
    try:
        tokens = {}
        for account in accounts:
            body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}'
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
            answer = await client.transport.request("POST", path, body=body, headers={"Content-Type": "application/json"})
            tokens[account] = json.loads(answer.body)["status"]["token"]
        yield tokens
    finally:
        await client.delete(ClusterRoleBinding, name)
        await client.delete(ClusterRole, name)
