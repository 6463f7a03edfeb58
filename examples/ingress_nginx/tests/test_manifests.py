"""The manifests, the chart and the image: they match the code and each other, and a server accepts them."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from examples.ingress_nginx.__main__ import main as program_command
from examples.ingress_nginx.ingress.classes import CONTROLLER
from kubeloop.cli import main
from kubeloop.codec.yaml import read_yaml
from kubeloop.testing import LocalCluster
from tests.foreign.building import program
from tests.kubectl.runner import Kubectl

ROOT = Path(__file__).parents[1]
REPOSITORY = ROOT.parents[1]
CONFIG, CHART = ROOT / "config", ROOT / "chart"
NAME = "kubeloop-ingress"

RBAC = f"rbac examples.ingress_nginx.app:controllers --name {NAME} --namespace {NAME}"
WEBHOOKS = f"webhooks examples.ingress_nginx.webhook:declared --service {NAME}/{NAME}-webhooks"
#: The generated files, and the commands that write them.
GENERATED = {
    "config/default/rbac.yaml": RBAC,
    "config/webhooks/webhooks.yaml": WEBHOOKS,
    "chart/files/rules.yaml": f"{RBAC} --rules",
    "chart/files/webhooks.yaml": WEBHOOKS,
}


@pytest.mark.parametrize("file", GENERATED)
def test_a_generated_file_is_that_of_the_code(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    command = f"generate {GENERATED[file]} --out examples/ingress_nginx/{file}"
    result = CliRunner().invoke(main, [*command.split(), "--check"])
    if result.exit_code:
        pytest.fail(f"run: python -m kubeloop {command}\n{result.output}{result.exception or ''}", pytrace=False)


def documents(folder: str) -> list[dict[str, Any]]:
    """Return the objects of the files that a kustomization lists, without its patches."""
    kustomization = next(iter(read_yaml((CONFIG / folder / "kustomization.yaml").read_text())))
    files = [name for name in kustomization["resources"] if name.endswith(".yaml")]
    return [found for name in files for found in read_yaml((CONFIG / folder / name).read_text())]


def container_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    pod = next(found for found in objects if found["kind"] == "Deployment")["spec"]["template"]["spec"]
    container: dict[str, Any] = pod["containers"][0]
    return container


def test_the_class_is_that_of_the_program() -> None:
    (found,) = (found for found in documents("default") if found["kind"] == "IngressClass")
    assert (found["metadata"]["name"], found["spec"]["controller"]) == ("kubeloop", CONTROLLER)
    values = next(iter(read_yaml((CHART / "values.yaml").read_text())))["ingressClass"]
    assert (values["name"], values["controller"]) == ("kubeloop", CONTROLLER)


def test_the_program_has_the_options_of_the_manifests() -> None:
    known = {name for parameter in program_command.params if isinstance(parameter, click.Option) for name in parameter.opts}
    files = [CHART / "templates" / "deployment.yaml", CONFIG / "default" / "deployment.yaml", CONFIG / "webhooks" / "kustomization.yaml"]
    used = {option for file in files for option in re.findall(r"(?:- |value: )(--[a-z-]+)", file.read_text())}
    assert used - known == set()


def test_config_and_chart_run_the_same_container() -> None:
    """Both name the same ports, options, volumes and rights; the names of the chart are those of its release."""
    container = container_of(documents("default"))
    chart = (CHART / "templates" / "deployment.yaml").read_text()
    values = next(iter(read_yaml((CHART / "values.yaml").read_text())))
    assert container["securityContext"] == values["securityContext"]
    assert container["resources"] == values["resources"]
    for port in container["ports"]:
        assert f"- name: {port['name']}" in chart
    for volume in container["volumeMounts"]:
        assert f"mountPath: {volume['mountPath']}" in chart
    for argument in container["args"]:
        assert f"- {argument.partition('=')[0]}=" in chart


def test_the_service_leads_to_the_ports_of_the_container() -> None:
    objects = documents("default")
    (service,) = (found for found in objects if found["kind"] == "Service")
    ports = {port["name"] for port in container_of(objects)["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl on a server of this file, on which no controller runs. It has the kinds of the Gateway API."""
    with LocalCluster(controllers=False) as cluster:
        found = Kubectl(cluster.kubeconfig, tmp_path_factory.mktemp("home"), NAME)
        found("create", "-f", "-", stdin=gzip.decompress((ROOT / "tests" / "data" / "gateway-crds.json.gz").read_bytes()).decode())
        found("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
        yield found


def apply(kubectl: Kubectl, objects: list[dict[str, Any]], *words: str) -> str:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return kubectl("apply", "--server-side", "--validate=strict", *words, "-f", "-", stdin=text)


def kustomized(kubectl: Kubectl, folder: str) -> list[dict[str, Any]]:
    return list(read_yaml(kubectl("kustomize", str(CONFIG / folder))))


@pytest.mark.embedded
def test_a_server_accepts_the_manifests_and_the_samples(kubectl: Kubectl) -> None:
    apply(kubectl, kustomized(kubectl, "default"))
    apply(kubectl, kustomized(kubectl, "webhooks"), "--dry-run=server")
    kubectl("apply", "--validate=strict", "--dry-run=server", "-f", str(ROOT / "samples"))


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        pytest.param("list ingresses.networking.k8s.io -A", True, id="it lists Ingresses"),
        pytest.param("watch endpointslices.discovery.k8s.io -A", True, id="it watches EndpointSlices"),
        pytest.param("list secrets -A", True, id="it lists Secrets"),
        pytest.param("patch ingresses.networking.k8s.io --subresource=status -A", True, id="it writes the status of Ingresses"),
        *(
            pytest.param(f"patch {kind}.gateway.networking.k8s.io --subresource=status -A", True, id=f"it writes the status of {kind}")
            for kind in ("gatewayclasses", "gateways", "httproutes", "grpcroutes")
        ),
        pytest.param("patch gateways.gateway.networking.k8s.io -A", False, id="it does not change Gateways"),
        pytest.param("update ingresses.networking.k8s.io -A", False, id="it does not change Ingresses"),
        pytest.param("delete ingresses.networking.k8s.io -A", False, id="it does not delete Ingresses"),
        pytest.param("create secrets -A", False, id="it does not create Secrets"),
        pytest.param("get nodes", True, id="it reads the node of a replica"),
        pytest.param("list nodes", False, id="it does not list Nodes"),
        pytest.param("list pods", True, id="it lists the replicas"),
        pytest.param("list pods -A", False, id="it does not list other pods"),
        pytest.param("update leases.coordination.k8s.io", True, id="it renews its Lease"),
        pytest.param("update leases.coordination.k8s.io -n default", False, id="it writes no other Lease"),
    ],
)
def test_the_role_is_least_privilege(kubectl: Kubectl, words: str, allowed: bool) -> None:
    apply(kubectl, kustomized(kubectl, "default"))
    account = f"system:serviceaccount:{NAME}:{NAME}"
    answer = kubectl.run("auth", "can-i", *words.split(), f"--as={account}")
    assert answer.out.strip().splitlines()[-1] == ("yes" if allowed else "no"), answer.err


def test_the_webhook_is_added_to_the_deployment() -> None:
    found = Kubectl(Path("unused"), Path("unused"))("kustomize", str(CONFIG / "webhooks"))
    container = container_of(list(read_yaml(found)))
    assert "--webhook-port=9443" in container["args"]
    assert {"name": "webhooks", "containerPort": 9443} in container["ports"]


CHART_VALUES = [
    pytest.param([], id="the default values"),
    pytest.param(["webhook.enabled=true", "config.keep-alive=80"], id="a webhook and settings"),
    pytest.param(["service.type=ClusterIP", "ingressClass.default=true", "watchNamespace=shop"], id="one namespace behind a proxy"),
]


@pytest.mark.upstream
@pytest.mark.timeout(1800)  # The first test builds Helm.
@pytest.mark.parametrize("values", CHART_VALUES)
def test_a_server_accepts_the_chart(kubectl: Kubectl, values: list[str]) -> None:
    apply(kubectl, kustomized(kubectl, "default"))
    command = [str(program("helm")), "template", "demo", str(CHART), "--namespace", NAME, *(f"--set={value}" for value in values)]
    objects = list(read_yaml(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    apply(kubectl, objects, "--dry-run=server", "--force-conflicts")
    arguments = container_of(objects)["args"]
    assert any("--webhook-port" in word for word in arguments) == ("webhook.enabled=true" in values)


def test_the_image_has_all_files_that_the_program_imports(tmp_path: Path) -> None:
    """The program runs from a copy of the files that Dockerfile and Dockerfile.dockerignore name."""
    files: set[Path] = set()
    for line in (ROOT / "image" / "Dockerfile.dockerignore").read_text().splitlines()[1:]:  # the first line leaves out all files
        if line.startswith("#"):
            continue
        assert not re.search(r"^!.*\*.*/", line), f"{line}: some builders find no files below a folder that a pattern names"
        named = {below for found in REPOSITORY.glob(line.removeprefix("!")) for below in (found, *found.rglob("*"))}
        files = files | named if line.startswith("!") else files - named
    text = (ROOT / "image" / "Dockerfile").read_text()
    for source in re.findall(r"^COPY (examples\S+) ", text, re.MULTILINE):
        for file in files:
            if file.is_file() and file.is_relative_to(REPOSITORY / source):
                target = tmp_path / file.relative_to(REPOSITORY)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
    (entrypoint,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    command = [sys.executable, "-B", *json.loads(entrypoint)[1:], "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "--webhook-port" in done.stdout) == (0, True), done.stderr
    lua = {file.name for file in (ROOT / "nginx" / "lua").glob("*.lua")}
    assert {file.name for file in tmp_path.rglob("*.lua")} == lua
    assert not [file for file in tmp_path.rglob("*") if "tests" in file.relative_to(tmp_path).parts]
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", text, re.MULTILINE), (
        "Kubernetes lets an image run as another user than root by its number"
    )
