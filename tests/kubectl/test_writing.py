"""kubectl writes: create, apply, patch, label, annotate, scale, delete, wait, and what it prints."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable

import pytest

from tests.kubectl.manifests import DEPLOYMENT, POD
from tests.kubectl.runner import Kubectl

pytestmark = pytest.mark.server


def field(kubectl: Kubectl, kind: str, name: str, path: str) -> str:
    return kubectl("get", kind, name, "-o", f"jsonpath={path}")


def test_create_prints_created_and_a_second_create_already_exists(kubectl: Kubectl) -> None:
    assert kubectl("create", "configmap", "settings", "--from-literal=a=1") == "configmap/settings created\n"
    assert kubectl.refused("create", "configmap", "settings") == (
        'error: failed to create configmap: configmaps "settings" already exists\n'
    )


def test_create_secret_encodes_its_values(kubectl: Kubectl) -> None:
    kubectl("create", "secret", "generic", "password", "--from-literal=word=opensesame")
    assert field(kubectl, "secret", "password", "{.data.word}") == "b3BlbnNlc2FtZQ=="
    assert field(kubectl, "secret", "password", "{.type}") == "Opaque"


def test_create_from_a_file_with_an_unknown_field_is_refused_by_name(kubectl: Kubectl) -> None:
    said = kubectl.refused("create", "-f", "-", stdin=POD.replace("containers:", "bogus: 1\n  containers:"))
    assert 'unknown field "spec.bogus"' in said


def test_apply_creates_then_says_unchanged_then_configures(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web created\n"
    assert kubectl("apply", "-f", "-", stdin=DEPLOYMENT) == "deployment.apps/web unchanged\n"
    changed = DEPLOYMENT.replace("nginx:1.25", "nginx:1.27").replace("replicas: 2", "replicas: 3")
    assert kubectl("apply", "-f", "-", stdin=changed) == "deployment.apps/web configured\n"
    assert field(kubectl, "deployment", "web", "{.spec.template.spec.containers[0].image} {.spec.replicas}") == "nginx:1.27 3"


def test_apply_keeps_what_others_added_and_removes_what_left_the_manifest(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "envoy:1"}]}}}}
    kubectl("patch", "deployment", "web", "-p", json.dumps(sidecar))
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT.replace(", ports: [{containerPort: 80}]", ""))
    assert field(kubectl, "deployment", "web", "{.spec.template.spec.containers[*].name}") in ("nginx side", "side nginx")
    assert field(kubectl, "deployment", "web", '{.spec.template.spec.containers[?(@.name=="nginx")].ports}') == ""


def test_apply_takes_a_list(kubectl: Kubectl) -> None:
    two = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in ("a", "b")]
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": two})
    assert kubectl("apply", "-f", "-", stdin=manifest) == "configmap/a created\nconfigmap/b created\n"


@pytest.mark.parametrize(
    ("flag", "patch", "path", "value"),
    [
        pytest.param("merge", '{"spec":{"replicas":4}}', "{.spec.replicas}", "4", id="a merge patch"),
        pytest.param("json", '[{"op":"replace","path":"/spec/replicas","value":5}]', "{.spec.replicas}", "5", id="a JSON patch"),
        pytest.param(
            "strategic",
            '{"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:2"}]}}}}',
            "{.spec.template.spec.containers[*].image}",
            "nginx:2",
            id="a strategic patch finds the container by its name",
        ),
    ],
)
def test_patch(kubectl: Kubectl, flag: str, patch: str, path: str, value: str) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    assert kubectl("patch", "deployment", "web", "--type", flag, "-p", patch) == "deployment.apps/web patched\n"
    assert field(kubectl, "deployment", "web", path) == value


def test_label_and_annotate_add_and_remove(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    assert kubectl("label", "pod", "solo", "colour=red") == "pod/solo labeled\n"
    assert kubectl("annotate", "pod", "solo", "note=hello world") == "pod/solo annotated\n"
    assert field(kubectl, "pod", "solo", "{.metadata.labels.colour} {.metadata.annotations.note}") == "red hello world"
    assert kubectl("label", "pod", "solo", "colour-") == "pod/solo unlabeled\n"
    assert field(kubectl, "pod", "solo", "{.metadata.labels.colour}") == ""


def test_scale_sets_the_replicas_through_the_subresource(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    assert kubectl("scale", "deployment", "web", "--replicas=7") == "deployment.apps/web scaled\n"
    assert field(kubectl, "deployment", "web", "{.spec.replicas}") == "7"


def test_scale_with_a_wrong_precondition_is_refused(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    assert "Expected replicas to be 9, was 2" in kubectl.refused("scale", "deployment", "web", "--current-replicas=9", "--replicas=1")


def test_replace_puts_the_whole_object(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "settings", "--from-literal=a=1")
    document = json.loads(kubectl("get", "configmap", "settings", "-o", "json"))
    document["data"] = {"b": "2"}
    assert kubectl("replace", "-f", "-", stdin=json.dumps(document)) == "configmap/settings replaced\n"
    assert json.loads(kubectl("get", "configmap", "settings", "-o", "json"))["data"] == {"b": "2"}


def test_an_invalid_manifest_is_refused_with_each_cause(kubectl: Kubectl) -> None:
    said = kubectl.refused("apply", "-f", "-", stdin=DEPLOYMENT.replace("replicas: 2", "replicas: -2"))
    assert 'The Deployment "web" is invalid: spec.replicas: Invalid value: -2: must be greater than or equal to 0' in said


def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "settings")
    assert re.match(r'configmap "settings" deleted', kubectl("delete", "configmap", "settings", "--wait"))
    assert "NotFound" in kubectl.refused("get", "configmap", "settings")


def test_delete_by_label_deletes_only_those(kubectl: Kubectl) -> None:
    for name in ("a", "b", "c"):
        kubectl("create", "configmap", name)
    kubectl("label", "configmap", "a", "b", "old=yes")
    kubectl("delete", "configmap", "-l", "old=yes")
    names = kubectl("get", "configmap", "-o", "name").split()
    assert "configmap/c" in names
    assert not {"configmap/a", "configmap/b"} & set(names)


def test_wait_for_a_jsonpath_ends_when_it_is_met(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "settings", "--from-literal=state=ready")
    met = kubectl("wait", "configmap/settings", "--for=jsonpath={.data.state}=ready", "--timeout=5s")
    assert met == "configmap/settings condition met\n"


def test_wait_for_delete_ends_when_the_object_is_gone(kubectl: Kubectl, start_kubectl: Callable[..., subprocess.Popen[str]]) -> None:
    kubectl("create", "configmap", "settings")
    kubectl("patch", "configmap", "settings", "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/hold"]}}')
    kubectl("delete", "configmap", "settings", "--wait=false")
    waiting = start_kubectl("wait", "configmap/settings", "--for=delete", "--timeout=20s")
    assert field(kubectl, "configmap", "settings", "{.metadata.deletionTimestamp}")
    kubectl("patch", "configmap", "settings", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert waiting.wait(20) == 0


def test_diff_shows_what_would_change(kubectl: Kubectl) -> None:
    before = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: s}\ndata: {a: '1'}\n"
    kubectl("apply", "-f", "-", stdin=before)
    result = kubectl.run("diff", "--server-side=false", "-f", "-", stdin=before.replace("1'", "2'"))
    assert result.code == 1, result.err
    assert '+  a: "2"' in result.out
