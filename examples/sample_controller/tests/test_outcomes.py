"""Every outcome of the controller, as kubectl shows it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable

import pytest

from examples.sample_controller.steps import MANIFESTS
from examples.sample_controller.tests.conftest import Starter, foo
from tests.kubectl.runner import Kubectl

pytestmark = pytest.mark.embedded  # pods and garbage collection need the built-in controllers

TIMEOUT = "--timeout=20s"
Started = Callable[..., subprocess.Popen[str]]


def available(kubectl: Kubectl, count: int, name: str = "example-foo") -> None:
    kubectl("wait", f"foo/{name}", f"--for=jsonpath={{.status.availableReplicas}}={count}", TIMEOUT)


def appears(kubectl: Kubectl, resource: str) -> None:
    kubectl("wait", resource, "--for=create", TIMEOUT)


def event(start_kubectl: Started, name: str, reason: str) -> str:
    """The message of an event of that Foo, as soon as there is one."""
    selector = f"involvedObject.kind=Foo,involvedObject.name={name},reason={reason}"
    watching = start_kubectl("get", "events", "--field-selector", selector, "--watch", "-o", "jsonpath={.message}{'\\n'}")
    assert watching.stdout is not None
    return watching.stdout.readline().rstrip("\n")


def test_a_foo_gets_a_deployment_a_replica_set_and_a_pod(controlled: Kubectl) -> None:
    controlled("apply", "-f", str(MANIFESTS / "example-foo.yaml"))
    available(controlled, 1)
    assert controlled("get", "deployment", "example-foo").splitlines()[1].split()[:2] == ["example-foo", "1/1"]
    assert (
        controlled("get", "pods", "-l", "controller=example-foo", "-o", "jsonpath={.items[*].spec.containers[*].image}") == "nginx:latest"
    )


def test_the_deployment_is_owned_and_labelled_as_the_original_does_it(controlled: Kubectl) -> None:
    controlled("apply", "-f", "-", stdin=foo())
    available(controlled, 1)
    deployment = json.loads(controlled("get", "deployment", "example-foo", "-o", "json"))
    owner = deployment["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Foo", "example-foo", True)
    labels = {"app": "nginx", "controller": "example-foo"}
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"] == labels


def test_without_replicas_the_servers_default_counts(controlled: Kubectl) -> None:
    controlled("apply", "-f", "-", stdin=foo(replicas=None))
    available(controlled, 1)
    assert controlled("get", "deployment", "example-foo", "-o", "jsonpath={.spec.replicas}") == "1"


def test_a_change_of_replicas_reaches_the_pods_and_the_status(controlled: Kubectl) -> None:
    controlled("apply", "-f", "-", stdin=foo())
    available(controlled, 1)
    controlled("patch", "foo", "example-foo", "--type=merge", "-p", '{"spec":{"replicas":3}}')
    available(controlled, 3)
    assert len(controlled("get", "pods", "-l", "controller=example-foo", "-o", "name").split()) == 3


def test_a_deployment_scaled_by_hand_is_scaled_back(controlled: Kubectl) -> None:
    controlled("apply", "-f", "-", stdin=foo(replicas=2))
    available(controlled, 2)
    controlled("scale", "deployment", "example-foo", "--replicas=5")
    controlled("wait", "deployment/example-foo", "--for=jsonpath={.spec.replicas}=2", TIMEOUT)


def test_taking_replicas_away_leaves_the_count_as_it_is(controlled: Kubectl) -> None:
    controlled("apply", "-f", "-", stdin=foo(replicas=2))
    available(controlled, 2)
    controlled("patch", "foo", "example-foo", "--type=merge", "-p", '{"spec":{"replicas":null}}')
    controlled("apply", "-f", "-", stdin=foo("other", "other"))  # handled after the change before it
    available(controlled, 1, "other")
    assert controlled("get", "deployment", "example-foo", "-o", "jsonpath={.spec.replicas}") == "2"


def test_a_deleted_deployment_comes_back(controlled: Kubectl) -> None:
    controlled("apply", "-f", "-", stdin=foo())
    available(controlled, 1)
    before = controlled("get", "deployment", "example-foo", "-o", "jsonpath={.metadata.uid}")
    controlled("delete", "deployment", "example-foo", TIMEOUT)
    appears(controlled, "deployment/example-foo")
    assert controlled("get", "deployment", "example-foo", "-o", "jsonpath={.metadata.uid}") != before


def test_a_deployment_of_another_owner_is_left_alone_and_a_warning_says_so(controlled: Kubectl, start_kubectl: Started) -> None:
    controlled("create", "deployment", "taken", "--image=busybox:1.36")
    controlled("apply", "-f", "-", stdin=foo(deployment="taken", replicas=4))
    assert event(start_kubectl, "example-foo", "ErrResourceExists") == 'Resource "taken" already exists and is not managed by Foo'
    assert controlled("get", "deployment", "taken", "-o", "jsonpath={.spec.replicas} {.metadata.ownerReferences}") == "1 "


def test_a_foo_without_a_deployment_name_is_reported_and_not_tried_again(foos: Kubectl, start_controller: Starter) -> None:
    program = start_controller()
    foos("apply", "-f", "-", stdin=foo(deployment=""))
    foos("apply", "-f", "-", stdin=foo("other", "other"))
    available(foos, 1, "other")
    assert len(re.findall(r"spec\.deploymentName is empty", program.log)) == 1
    assert foos("get", "deployments", "-o", "name") == "deployment.apps/other\n"


def test_deleting_a_foo_takes_everything_with_it(controlled: Kubectl) -> None:
    controlled("apply", "-f", "-", stdin=foo(replicas=2))
    available(controlled, 2)
    pods = controlled("get", "pods", "-o", "name").split()
    controlled("delete", "foo", "example-foo")
    controlled("wait", "deployment/example-foo", *pods, "--for=delete", TIMEOUT)
    assert controlled("get", "deployments,replicasets,pods", "-o", "name") == ""


def test_another_deployment_name_leaves_the_old_deployment_until_the_foo_goes(controlled: Kubectl) -> None:
    controlled("apply", "-f", "-", stdin=foo())
    available(controlled, 1)
    controlled("apply", "-f", "-", stdin=foo(deployment="renamed"))
    appears(controlled, "deployment/renamed")
    assert controlled("get", "deployments", "-o", "name").split() == ["deployment.apps/example-foo", "deployment.apps/renamed"]
    controlled("delete", "foo", "example-foo")
    controlled("wait", "deployment/example-foo", "deployment/renamed", "--for=delete", TIMEOUT)


def test_describe_shows_that_it_was_synced(controlled: Kubectl, start_kubectl: Started) -> None:
    controlled("apply", "-f", "-", stdin=foo())
    event(start_kubectl, "example-foo", "Synced")
    assert re.search(r"Normal\s+Synced\s.*sample-controller\s+Foo synced successfully", controlled("describe", "foo", "example-foo"))


@pytest.mark.parametrize(("replicas", "rule"), [(0, "greater than or equal to 1"), (11, "less than or equal to 10")])
def test_replicas_out_of_range_are_refused_by_the_server(foos: Kubectl, replicas: int, rule: str) -> None:
    said = foos.refused("apply", "-f", "-", stdin=foo(replicas=replicas))
    assert f"spec.replicas: Invalid value: {replicas}: spec.replicas in body should be {rule}" in said


def test_without_a_status_subresource_its_write_fails_and_is_tried_again(foos: Kubectl, start_controller: Starter) -> None:
    foos("apply", "-f", str(MANIFESTS / "crd.yaml"))
    program = start_controller()
    foos("apply", "-f", "-", stdin=foo())
    appears(foos, "deployment/example-foo")
    foos("wait", "deployment/example-foo", "--for=condition=Available", TIMEOUT)
    foos("scale", "deployment", "example-foo", "--replicas=2")
    foos("wait", "deployment/example-foo", "--for=jsonpath={.spec.replicas}=1", TIMEOUT)
    assert "NotFound" in program.log
    assert foos("get", "foo", "example-foo", "-o", "jsonpath={.status}") == ""
