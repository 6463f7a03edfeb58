"""The manifests, the chart and the image: they match the code, a server accepts them, and they grant what the operator needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from examples.bitcoin_operator import app
from examples.bitcoin_operator.__main__ import NAME
from examples.bitcoin_operator.webhooks import hooks
from kubeloop.cli import main
from kubeloop.codec.yaml import read_yaml
from kubeloop.config import Kubeconfig
from kubeloop.testing import LocalCluster
from tests.foreign.building import program
from tests.kubectl.runner import Kubectl

ROOT = Path(__file__).parents[1]
REPOSITORY = ROOT.parents[1]
CONFIG, CHART = ROOT / "config", ROOT / "chart"
DEFINITION = "bitcoinnetworks.bitcoincontroller.christianb93.github.com"

KINDS, PROGRAM = "examples.bitcoin_operator.types", "examples.bitcoin_operator.app:controllers"
CRD = f"crd {KINDS}"
RBAC = f"rbac {PROGRAM} --name {NAME} --namespace {NAME}"
ROLES = f"roles {KINDS} --name {NAME}"
WEBHOOKS = f"webhooks examples.bitcoin_operator.webhooks:hooks --service {NAME}/{NAME}-webhooks"
#: The generated files, and the commands that write them.
GENERATED = {
    "config/default/crd.yaml": CRD,
    "config/default/rbac.yaml": RBAC,
    "config/default/roles.yaml": ROLES,
    "config/webhooks/webhooks.yaml": WEBHOOKS,
    "chart/files/crds.yaml": CRD,
    "chart/files/rules.yaml": f"{RBAC} --rules",
    "chart/files/roles.yaml": ROLES,
    "chart/files/webhooks.yaml": WEBHOOKS,
}


@pytest.mark.parametrize("file", GENERATED)
def test_a_generated_file_is_that_of_the_code(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    command = f"generate {GENERATED[file]} --out examples/bitcoin_operator/{file}"
    result = CliRunner().invoke(main, [*command.split(), "--check"])
    if result.exit_code:
        pytest.fail(f"run: python -m kubeloop {command}\n{result.output}{result.exception or ''}", pytrace=False)


def definition(group: str, kind: str, plural: str, version: str = "v1") -> dict[str, Any]:
    """Return the definition of a kind of another operator, which accepts any object."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


OTHER_KINDS = [
    definition("monitoring.coreos.com", "ServiceMonitor", "servicemonitors"),
    definition("cert-manager.io", "Issuer", "issuers"),
    definition("cert-manager.io", "Certificate", "certificates"),
]


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """kubectl on a server of this file, which other kinds of the manifests are installed on; no operator runs."""
    with LocalCluster(controllers=False) as cluster:
        found = Kubectl(cluster.kubeconfig, tmp_path_factory.mktemp("home"), NAME)
        apply(found, OTHER_KINDS)
        found("wait", "--for=condition=Established", "crd", "--all", "--timeout=10s")
        yield found


def apply(kubectl: Kubectl, objects: list[dict[str, Any]], *words: str) -> str:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return kubectl("apply", "--server-side", "--validate=strict", *words, "-f", "-", stdin=text)


def install(kubectl: Kubectl, folder: str) -> None:
    apply(kubectl, list(read_yaml(kubectl("kustomize", str(CONFIG / folder)))))
    kubectl("wait", "--for=condition=Established", f"crd/{DEFINITION}", "--timeout=10s")


@pytest.mark.embedded
@pytest.mark.parametrize("folder", ["default", "webhooks", "cert-manager", "network-policy", "prometheus"])
def test_a_server_accepts_the_kustomization(kubectl: Kubectl, folder: str) -> None:
    install(kubectl, "default")
    try:
        install(kubectl, folder)
    finally:
        kubectl("delete", "validatingwebhookconfiguration", "--all")


def test_the_overlay_for_cert_manager_names_one_secret_and_one_folder() -> None:
    found = read_yaml(Kubectl(Path("unused"), Path("unused"))("kustomize", str(CONFIG / "cert-manager")))
    by_kind = {one["kind"]: one for one in found}
    pod = by_kind["Deployment"]["spec"]["template"]["spec"]
    folders = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    secrets = {one["name"]: one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    assert secrets == {"webhook-certificates": by_kind["Certificate"]["spec"]["secretName"]}
    assert f"--webhook-certificates={folders['webhook-certificates']}" in pod["containers"][0]["args"]


@pytest.mark.embedded
def test_a_server_accepts_the_samples(kubectl: Kubectl) -> None:
    install(kubectl, "default")
    kubectl("apply", "--validate=strict", "-f", str(ROOT / "samples"))
    network = json.loads(kubectl("get", "bitcoinnetwork", "my-network", "-o", "json"))
    assert network["spec"] == {"nodes": 3, "secret": "bitcoin-default-secret"}
    assert set(json.loads(kubectl("get", "secret", network["spec"]["secret"], "-o", "json"))["data"]) == {"BC_RPC_USER", "BC_RPC_PASSWORD"}


@pytest.mark.embedded
def test_without_an_operator_its_webhooks_stop_changes_of_the_spec_only(kubectl: Kubectl) -> None:
    install(kubectl, "webhooks")
    try:
        kubectl("apply", "-f", str(ROOT / "samples"))
        kubectl("label", "bitcoinnetwork", "my-network", "team=a")
        assert "failed calling webhook" in kubectl.refused("scale", "bitcoinnetwork", "my-network", "--replicas=2")
        kubectl("delete", "bitcoinnetwork", "my-network")
    finally:
        kubectl("delete", "validatingwebhookconfiguration", "--all")


@pytest.fixture
def account(kubectl: Kubectl, tmp_path: Path) -> Path:
    """A kubeconfig of the operator's account on a server with the kind and without the roles of the operator."""
    install(kubectl, "default")
    kubectl("delete", "-f", str(CONFIG / "default" / "rbac.yaml"))
    rbac = read_yaml((CONFIG / "default" / "rbac.yaml").read_text())
    apply(kubectl, [one for one in rbac if one["kind"] == "ServiceAccount"])
    config = Kubeconfig.read(kubectl.kubeconfig).view(flatten=True, raw=True)
    token = kubectl("create", "token", NAME).strip()
    config["users"] = [{"name": one["name"], "user": {"token": token}} for one in config["users"]]
    for context in config["contexts"]:
        context["context"]["namespace"] = NAME
    file = tmp_path / "account.kubeconfig"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(config))
    return file


def test_the_program_of_kubeloop_run_has_the_controllers_and_the_webhooks() -> None:
    assert [type(one) for one in app.program()] == [type(one) for one in [*app.controllers(), hooks]]


@pytest.mark.embedded
def test_doctor_reports_missing_permissions_until_the_manifest_is_applied(kubectl: Kubectl, account: Path) -> None:
    before = doctor(account, "-o", "json")
    missing = {one["subject"] for one in json.loads(before.output)["findings"] if one["state"] == "failed"}
    assert (before.exit_code, {DEFINITION, "pods", "secrets", "services", "statefulsets.apps"} <= missing) == (1, True)
    fix = list(read_yaml(doctor(account, "--fix").output))

    kubectl("apply", "--server-side", "-f", str(CONFIG / "default" / "rbac.yaml"))
    after = doctor(account, "-o", "json")
    problems = [one for one in json.loads(after.output)["findings"] if one["check"] == "permission" and one["state"] != "ok"]
    assert (after.exit_code, problems) == (0, []), after.output
    # The manifest grants what the program needs, and nothing else.
    assert rules(fix) == rules(list(read_yaml((CONFIG / "default" / "rbac.yaml").read_text())))


def doctor(kubeconfig: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", PROGRAM, "--kubeconfig", str(kubeconfig), *words])


def rules(objects: list[dict[str, Any]]) -> set[tuple[str, str, str, str]]:
    """Return what roles grant: the kind of the role, and an API group, a resource and a verb each."""
    return {
        (role["kind"], group, resource, verb)
        for role in objects
        for rule in role.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


CHART_VALUES = [
    pytest.param([], id="the default values"),
    pytest.param(["webhook.enabled=true"], id="webhooks"),
    pytest.param(["webhook.enabled=true", "webhook.certificates=cert-manager"], id="webhooks with certificates of cert-manager"),
    pytest.param(["networkPolicy.enabled=true", "metrics.serviceMonitor.enabled=true"], id="the network policy and the monitor"),
]


@pytest.mark.upstream
@pytest.mark.timeout(1800)  # The first test builds Helm.
@pytest.mark.parametrize("values", CHART_VALUES)
def test_a_server_accepts_the_chart(kubectl: Kubectl, values: list[str]) -> None:
    install(kubectl, "default")
    command = [str(program("helm")), "template", "demo", str(CHART), "--namespace", NAME, *(f"--set={value}" for value in values)]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    objects = list(read_yaml(rendered))
    apply(kubectl, objects, "--dry-run=server", "--force-conflicts")
    pod = next(one for one in objects if one["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert any("--webhook-port" in word for word in pod["containers"][0]["args"]) == ("webhook.enabled=true" in values)


def test_the_image_has_all_files_that_the_program_imports(tmp_path: Path) -> None:
    """The program runs from a copy of the files that Dockerfile and Dockerfile.dockerignore name."""
    files: set[Path] = set()
    for line in (ROOT / "Dockerfile.dockerignore").read_text().splitlines()[1:]:  # the first line leaves out all files
        named = set(REPOSITORY.glob(line.removeprefix("!")))
        files = files | named if line.startswith("!") else files - named
    text = (ROOT / "Dockerfile").read_text()
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
    assert not [file for file in tmp_path.rglob("*") if re.search("tests|demo|daemon", str(file.relative_to(tmp_path)))]
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", text, re.MULTILINE), (
        "Kubernetes lets an image run as another user than root by its number"
    )
