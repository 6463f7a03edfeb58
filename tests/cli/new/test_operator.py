"""``kubeloop new operator``: the project passes its own tests and checks, its manifests are taken by a server, and it works."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import Namespace
from kubeloop.cli.new.command import new
from kubeloop.client import Client, WriteOptions
from kubeloop.codec.yaml import read_yaml
from kubeloop.meta import ObjectMeta, Unstructured
from kubeloop.testing import eventually, one
from tests.cli.new.conftest import Project, make
from tests.cli.new.helm import rendered
from tests.servers import ServerUnderTest

# Projects are made, and their tests and tools run, in processes of their own.
pytestmark = pytest.mark.timeout(300)

STRICT = WriteOptions(field_manager="test", validation="Strict")
DRY = WriteOptions(field_manager="test", validation="Strict", dry_run=True)


@pytest.mark.embedded
def test_a_new_project_passes_its_own_tests(project: Project) -> None:
    done = project.run("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^1[0-9] passed in", done.stdout, re.MULTILINE)


SPEC = "image: Annotated[str, Meta(min_length=1)]"
STATUS = "status: WebStatus = msgspec.field(default_factory=WebStatus)"
OPTIONAL_STATUS = "status: WebStatus | None = None"
SPEC_FIELD = "spec: WebSpec"
OPTIONAL_SPEC = "spec: WebSpec = msgspec.field(default_factory=WebSpec)"
COUNT = "        web.status.ready_replicas = ready\n"
SET_STATUS = """\
        if web.status is None:
            web.status = WebStatus(ready_replicas=ready)
        web.status.ready_replicas = ready
"""
IMPORT = "types import Web\n"


@pytest.mark.embedded
@pytest.mark.parametrize(
    "edits",
    [
        pytest.param([("types", f'{SPEC} = "nginx:1.29"', SPEC)], id="a required field in the spec"),
        pytest.param(
            [
                ("types", "ready_replicas: int = 0", "ready_replicas: int"),
                ("types", STATUS, OPTIONAL_STATUS),
                ("controller", IMPORT, "types import Web, WebStatus\n"),
                ("controller", COUNT, SET_STATUS),
            ],
            id="a required field in the status",
        ),
        pytest.param([("types", SPEC_FIELD, OPTIONAL_SPEC)], id="a spec that may be left out"),
    ],
)
def test_a_project_goes_on_working_when_fields_become_required(
    project: Project, tmp_path: Path, types: Path, edits: list[tuple[str, str, str]]
) -> None:
    changed = Project(tmp_path / project.name, project.name, project.group, project.wheel)
    shutil.copytree(project.folder, changed.folder)
    for module, old, edited in edits:
        path = changed.folder / project.name.replace("-", "_") / f"{module}.py"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, edited))
    for command in re.findall(r"kubeloop generate (.+)", (changed.folder / "Makefile").read_text()):
        made = changed.run("-m", "kubeloop", "generate", *command.split())
        assert made.returncode == 0, made.stderr
    for words in (["pytest", "-q", "-p", "no:cacheprovider"], ["mypy", "--cache-dir", str(types)]):
        done = changed.run("-m", *words)
        assert done.returncode == 0, done.stdout + done.stderr


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
def test_doing_it_again_overwrites_nothing_and_says_what_is_there(project: Project) -> None:
    before = {path: path.read_bytes() for path in project.folder.rglob("*") if path.is_file()}
    done = CliRunner().invoke(new, ["operator", project.name, "--out", str(project.folder)])
    assert done.exit_code == 1
    assert re.search(r"Error: \S+/web\d+-operator/\S+ is there already, and nothing is overwritten; choose another folder", done.output)
    assert {path: path.read_bytes() for path in project.folder.rglob("*") if path.is_file()} == before
    assert [path.name for path in project.folder.parent.iterdir()] == [project.name]


@pytest.mark.embedded
def test_a_name_that_cannot_be_makes_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(new, ["operator", "Web", "--out", str(tmp_path / "web")])
    assert done.exit_code == 1
    assert 'Error: NAME "Web"' in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("packaging", "there", "not_there"), [("helm", "chart/Chart.yaml", "config"), ("kustomize", "config/kustomization.yaml", "chart")]
)
def test_only_the_packaging_that_was_asked_for_is_made(tmp_path: Path, packaging: str, there: str, not_there: str) -> None:
    done = CliRunner().invoke(new, ["operator", "web-operator", "--packaging", packaging, "--out", str(tmp_path / "web")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "web" / there).is_file()
    assert not (tmp_path / "web" / not_there).exists()
    assert not re.search(r"@@|\n\n\n", "".join(path.read_text() for path in (tmp_path / "web").glob("*") if path.is_file()))


@pytest.fixture
async def installed(project: Project, server: ServerUnderTest) -> AsyncIterator[Client]:
    """A server that serves the project's kind."""
    async with Client.from_config(server.kubeconfig) as client:
        (definition,) = documents(project.folder / "config" / "crd.yaml")
        name = definition["metadata"]["name"]
        await client.create(Unstructured.from_dict(definition), options=STRICT)
        await client.wait_ready(CustomResourceDefinition, name, timeout=30)
        try:
            yield client
        finally:
            await client.delete(CustomResourceDefinition, name)
            await client.wait_gone(CustomResourceDefinition, name, timeout=60)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(read_yaml(path.read_text()))


@pytest.mark.server
async def test_a_server_takes_every_manifest(project: Project, installed: Client) -> None:
    """Each document by a dry run of server-side apply with strict fields: those of kustomize, those of the chart, and the sample."""
    config, chart = project.folder / "config", project.folder / "chart"
    (kustomization,) = documents(config / "kustomization.yaml")
    found = [document for name in kustomization["resources"] for document in documents(config / name)]
    found += rendered(chart, "release", project.name)
    found += rendered(chart, "release", project.name, {"watchNamespace": "shop", "tag": "2.0", "replicas": 1})
    found += documents(chart / "crds" / "webs.yaml") + documents(project.folder / "samples" / "web.yaml")
    await installed.create(Namespace(metadata=ObjectMeta(name=project.name)))
    try:
        for document in found:
            await installed.apply(Unstructured.from_dict(document), options=DRY, force=True)
    finally:
        await installed.delete(Namespace, project.name)
    kinds = [document["kind"] for document in found]
    assert kinds.count("ClusterRole") == 3
    assert kinds.count("Deployment") == 3
    images = [one["spec"]["template"]["spec"]["containers"][0]["image"] for one in found if one["kind"] == "Deployment"]
    assert images == [f"{project.name}:0.1.0", f"{project.name}:0.1.0", f"{project.name}:2.0"]


@pytest.mark.embedded
def test_chart_and_kustomize_grant_the_same(project: Project) -> None:
    config = documents(project.folder / "config" / "rbac.yaml")
    chart = rendered(project.folder / "chart", project.name, project.name)
    roles = [one for one in chart if one["apiVersion"].startswith("rbac") or one["kind"] == "ServiceAccount"]
    assert roles == config


@pytest.mark.server
async def test_the_operator_runs_and_reconciles_an_object(
    project: Project, installed: Client, namespace: str, server: ServerUnderTest
) -> None:
    command = [sys.executable, "-m", project.name.replace("-", "_"), "--kubeconfig", str(server.kubeconfig), "--namespace", namespace]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--leader-election",
        "--health",
        "127.0.0.1:0",
        cwd=project.folder,
        env=project.environment,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        kind = Unstructured.of(f"{project.group}/v1alpha1", "Web")
        (sample,) = documents(project.folder / "samples" / "web.yaml")
        web = Unstructured.from_dict({**sample, "metadata": {"name": "a", "namespace": namespace}})
        await installed.create(web)
        client = installed.in_namespace(namespace)
        deployment = await eventually(one(client, Deployment, "a"), lambda found: found.spec.replicas == 2, within=60)
        assert [owner.kind for owner in deployment.metadata.owner_references] == ["Web"]
        condition = {"type": "Ready", "observedGeneration": 1}
        await eventually(one(client, kind, "a"), {"status": {"conditions": [condition]}}, within=60)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        _, said = await process.communicate()
        print(said.decode())  # shown if this fails
    assert process.returncode == 0, said.decode()
