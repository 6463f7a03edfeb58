"""kubectl reads: what a person types to look around, and what comes back."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable

import pytest
import yaml

from tests.kubectl.manifests import DEPLOYMENT, POD, SERVICE
from tests.kubectl.runner import Kubectl, kubectl_binary

pytestmark = pytest.mark.server


@pytest.fixture
def shop(kubectl: Kubectl) -> Kubectl:
    """A namespace with a pod and a service."""
    kubectl("apply", "-f", "-", stdin=f"{POD}---{SERVICE}")
    return kubectl


def test_version_names_client_and_server(kubectl: Kubectl) -> None:
    versions = json.loads(kubectl("version", "-o", "json"))
    assert versions["serverVersion"]["major"] == "1"
    assert versions["serverVersion"]["gitVersion"].startswith("v1.36.")


@pytest.mark.parametrize(
    ("name", "short", "version", "namespaced", "kind"),
    [
        ("pods", "po", "v1", "true", "Pod"),
        ("namespaces", "ns", "v1", "false", "Namespace"),
        ("configmaps", "cm", "v1", "true", "ConfigMap"),
        ("deployments", "deploy", "apps/v1", "true", "Deployment"),
        ("leases", "", "coordination.k8s.io/v1", "true", "Lease"),
        ("customresourcedefinitions", "crd,crds", "apiextensions.k8s.io/v1", "false", "CustomResourceDefinition"),
    ],
)
def test_api_resources_lists(kubectl: Kubectl, name: str, short: str, version: str, namespaced: str, kind: str) -> None:
    rows = [line.split() for line in kubectl("api-resources").splitlines()]
    assert [name, *([short] if short else []), version, namespaced, kind] in rows


def test_api_versions_has_the_core_group_and_apps(kubectl: Kubectl) -> None:
    assert {"v1", "apps/v1", "coordination.k8s.io/v1"} <= set(kubectl("api-versions").split())


def test_get_yaml_shows_what_was_applied_with_its_defaults(shop: Kubectl) -> None:
    pod = yaml.safe_load(shop("get", "pod", "solo", "-o", "yaml"))
    assert pod["spec"]["containers"][0]["command"] == ["sleep", "3600"]
    assert pod["spec"]["restartPolicy"] == "Always"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30


def test_get_json_of_several_is_a_list(shop: Kubectl) -> None:
    answer = json.loads(shop("get", "pods,services", "-o", "json"))
    assert answer["kind"] == "List"
    assert sorted(item["kind"] for item in answer["items"]) == ["Pod", "Service"]


def test_get_name_prints_resource_slash_name(shop: Kubectl) -> None:
    assert shop("get", "pod", "-o", "name") == "pod/solo\n"


def test_get_jsonpath_picks_a_field(shop: Kubectl) -> None:
    assert shop("get", "pod", "solo", "-o", "jsonpath={.spec.containers[*].image}") == "busybox:1.36"


def test_get_prints_the_columns_of_pods(shop: Kubectl) -> None:
    assert shop("get", "pods").splitlines()[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]


def test_get_wide_adds_the_columns_of_lower_priority(shop: Kubectl) -> None:
    header = shop("get", "pods", "-o", "wide").splitlines()[0]
    assert re.split(r"\s{2,}", header.strip()) == [
        "NAME",
        "READY",
        "STATUS",
        "RESTARTS",
        "AGE",
        "IP",
        "NODE",
        "NOMINATED NODE",
        "READINESS GATES",
    ]


def test_get_of_all_namespaces_names_each_namespace(shop: Kubectl) -> None:
    lines = shop("get", "pods", "-A").splitlines()
    assert lines[0].split()[:2] == ["NAMESPACE", "NAME"]
    assert [shop.namespace, "solo"] in [line.split()[:2] for line in lines]


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param("app=solo", True, id="equality finds"),
        pytest.param("app!=solo", False, id="inequality leaves out"),
        pytest.param("tier in (back,front)", True, id="a set finds"),
        pytest.param("!tier", False, id="absence leaves out"),
    ],
)
def test_get_by_label(shop: Kubectl, selector: str, matches: bool) -> None:
    assert ("pod/solo" in shop("get", "pods", "-l", selector, "-o", "name")) is matches


def test_get_by_field(shop: Kubectl) -> None:
    assert shop("get", "pods", "--field-selector", "metadata.name=solo", "-o", "name") == "pod/solo\n"
    assert shop("get", "pods", "--field-selector", "metadata.name=other", "-o", "name") == ""


def test_get_watch_prints_a_change_as_it_happens(shop: Kubectl, start_kubectl: Callable[..., subprocess.Popen[str]]) -> None:
    watching = start_kubectl(
        "get", "pods", "-w", "-o", "jsonpath={.metadata.name}={.metadata.labels.seen}{'\\n'}", "--output-watch-events=false"
    )
    assert watching.stdout is not None
    assert watching.stdout.readline() == "solo=\n"
    shop("label", "pod", "solo", "seen=yes")
    assert any(line == "solo=yes\n" for line in iter(watching.stdout.readline, ""))


def test_get_of_a_missing_object_says_not_found(kubectl: Kubectl) -> None:
    assert kubectl.refused("get", "pod", "nobody") == 'Error from server (NotFound): pods "nobody" not found\n'


def test_get_of_an_unknown_kind_says_so(kubectl: Kubectl) -> None:
    assert 'the server doesn\'t have a resource type "unicorns"' in kubectl.refused("get", "unicorns")


def test_get_of_nothing_says_no_resources(kubectl: Kubectl) -> None:
    assert kubectl.run("get", "pods").err == f"No resources found in {kubectl.namespace} namespace.\n"


def test_describe_a_pod_shows_its_containers(shop: Kubectl) -> None:
    text = shop("describe", "pod", "solo")
    assert re.search(r"^Name:\s+solo$", text, re.MULTILINE)
    assert re.search(r"Image:\s+busybox:1\.36", text)


def test_describe_a_deployment_shows_strategy_and_template(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    text = kubectl("describe", "deployment", "web")
    assert re.search(r"StrategyType:\s+RollingUpdate", text)
    assert re.search(r"RollingUpdateStrategy:\s+25% max unavailable, 25% max surge", text)


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        pytest.param("pods.spec.containers", ("KIND:       Pod", "FIELD: containers <[]Container>"), id="a list of a core type"),
        pytest.param("deployment.spec.replicas", ("GROUP:      apps", "FIELD: replicas <integer>"), id="a scalar of a named group"),
        pytest.param("configmap", ("KIND:       ConfigMap", "VERSION:    v1", "FIELDS:"), id="a whole kind"),
    ],
)
def test_explain_names_types_and_fields(kubectl: Kubectl, path: str, lines: tuple[str, ...]) -> None:
    text = kubectl("explain", path)
    for line in lines:
        assert line in text


def test_explain_lists_fields_with_their_types(kubectl: Kubectl) -> None:
    text = kubectl("explain", "pod.spec")
    assert re.search(r"^  containers\t<\[\]Container> -required-$", text, re.MULTILINE)
    assert re.search(r"^  nodeName\t<string>$", text, re.MULTILINE)
    assert re.search(r"^  nodeSelector\t<map\[string\]string>$", text, re.MULTILINE)


def test_explain_reads_the_older_openapi_document_too(kubectl: Kubectl) -> None:
    text = kubectl("explain", "deployment.spec", "--output=plaintext-openapiv2")
    assert re.search(r"^   replicas\t<integer>$", text, re.MULTILINE)


def test_kubectl_is_the_pinned_one() -> None:
    shown = subprocess.run([kubectl_binary(), "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout)["clientVersion"]["gitVersion"] == "v1.36.3"
