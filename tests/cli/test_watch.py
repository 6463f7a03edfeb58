"""``kubeloop watch`` as a person or a program meets it: a process beside a server, and kubectl that changes things."""

from __future__ import annotations

import functools
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop.testing import LocalCluster
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

server_test = pytest.mark.server
embedded = pytest.mark.embedded


class Watching:
    """A running ``kubeloop watch``; its notes come first on standard error, its changes on standard output."""

    def __init__(self, kubeconfig: Path, *args: str) -> None:
        command = [sys.executable, "-m", "kubeloop", "watch", *args, "--kubeconfig", str(kubeconfig)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def note(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()[9:].rstrip("\n")

    def note_with(self, text: str) -> str:
        while text not in (line := self.note()):
            assert line or self.process.poll() is None, f"ended without a note of {text!r}"
        return line

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().rstrip("\n")
        return re.sub(r"^\d\d:\d\d:\d\d ", "", line)

    def lines(self, count: int) -> list[str]:
        return [self.line() for _ in range(count)]

    def end(self, signal_number: int | None = None) -> tuple[int, str, str]:
        if signal_number is not None:
            self.process.send_signal(signal_number)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.fixture
def watch_with() -> Iterator[Callable[..., Watching]]:
    """Starts a watch with a kubeconfig; ended with the test."""
    running: list[Watching] = []

    def start(kubeconfig: Path, *args: str) -> Watching:
        running.append(Watching(kubeconfig, *args))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        for stream in (one.process.stdout, one.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def watch(watch_with: Callable[..., Watching], server: ServerUnderTest) -> Callable[..., Watching]:
    """Starts a watch on the server under test."""
    return functools.partial(watch_with, Path(server.kubeconfig))


@pytest.fixture(scope="session")
def kubectl_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def kubectl(server: ServerUnderTest, namespace: str, kubectl_home: Path) -> Kubectl:
    return Kubectl(Path(server.kubeconfig), kubectl_home, namespace)


@server_test
def test_it_sums_up_present_objects_and_shows_changes_field_by_field(watch: Callable[..., Watching], kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "there", "--from-literal=x=1")
    watching = watch("cm", "-n", kubectl.namespace, "-l", "!system", "--field-selector", "metadata.name!=kube-root-ca.crt")
    summary = watching.note_with("watching")
    assert re.fullmatch(rf'configmaps in namespace "{kubectl.namespace}" with .+: 1 object at version \d+ \(there\); watching', summary)
    kubectl("create", "configmap", "new", "--from-literal=x=1")
    kubectl("patch", "configmap", "new", "-p", '{"data":{"x":"2","y":"3"},"metadata":{"labels":{"example.com/app":"web"}}}')
    kubectl("delete", "configmap", "new")
    key = f"{kubectl.namespace}/new"
    lines = watching.lines(6)
    assert lines[:2] == [f"ADDED    {key}", f"MODIFIED {key}"]
    assert sorted(lines[2:5]) == sorted(
        ["           data.x: 1 -> 2", "           data.y: + 3", "           metadata.labels[example.com/app]: + web"]
    )
    assert lines[5] == f"DELETED  {key}  or no longer selected"
    assert watching.end(signal.SIGINT) == (130, "", "")


@server_test
def test_values_of_secrets_are_masked_in_every_form(watch: Callable[..., Watching], kubectl: Kubectl) -> None:
    watches = [watch("secrets", "-n", kubectl.namespace, "-o", output, "--all-fields") for output in ("text", "json")]
    for watching in watches:
        watching.note_with("watching")
    kubectl("create", "secret", "generic", "s", "--from-literal=password=hunter2")
    kubectl("patch", "secret", "s", "-p", '{"stringData":{"password":"hunter3"}}')
    kubectl("delete", "secret", "s")
    text, tree = watches
    found = [text.line()]
    while not found[-1].startswith("DELETED"):
        found.append(text.line())
    assert "           data.password: *** changed" in found
    read = [json.loads(tree.line()) for _ in range(3)]
    assert [one["type"] for one in read] == ["ADDED", "MODIFIED", "DELETED"]
    assert read[1]["object"]["data"] == {"password": "***"}
    assert {"path": "data.password", "before": "***", "after": "***"} in read[1]["changes"]
    everything = "\n".join(found) + json.dumps(read)
    assert "aHVudGVy" not in everything
    assert "hunter" not in everything
    assert [watching.end(signal.SIGTERM)[0] for watching in watches] == [143, 143]


@server_test
def test_one_object_is_watched_also_before_it_exists_and_once_ends_after_one_change(
    watch: Callable[..., Watching], kubectl: Kubectl
) -> None:
    watching = watch("configmap", "one", "-n", kubectl.namespace, "-o", "name", "--once")
    assert "none yet" in watching.note_with("watching")
    kubectl("create", "configmap", "other")
    kubectl("create", "configmap", "one")
    assert watching.end() == (0, "configmap/one\n", "")


@server_test
def test_initial_objects_are_listed_when_asked_for(watch: Callable[..., Watching], kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "a")
    watching = watch("ConfigMap", "a", "-n", kubectl.namespace, "--initial")
    assert watching.line() == f"INITIAL  {kubectl.namespace}/a"


@server_test
def test_a_custom_kind_is_found_by_its_short_name_and_by_resource_and_group(watch: Callable[..., Watching], kubectl: Kubectl) -> None:
    group = f"{kubectl.namespace}.example.com"
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "shortNames": [f"gd{os.getpid()}"]}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition: dict[str, Any] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(definition))
    try:
        kubectl("wait", "--for=condition=Established", f"crd/gadgets.{group}")
        kubectl.wait_published(group, "v1", "gadgets")
        watches = [watch(name, "-n", kubectl.namespace) for name in (f"gadgets.{group}", f"gd{os.getpid()}")]
        for watching in watches:
            assert watching.note_with("watching").startswith(f"gadgets.{group} in namespace")
        gadget = {"apiVersion": f"{group}/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"parts": [{"name": "a", "size": 1}]}}
        kubectl("create", "-f", "-", stdin=json.dumps(gadget))
        kubectl("patch", f"gadgets.{group}", "g", "--type=json", "-p", '[{"op":"replace","path":"/spec/parts/0/size","value":2}]')
        for watching in watches:
            lines = watching.lines(3)
            assert lines[:2] == [f"ADDED    {kubectl.namespace}/g", f"MODIFIED {kubectl.namespace}/g"]
            while "spec.parts" not in lines[-1]:
                lines.append(watching.line())
            assert lines[-1] == "           spec.parts[a].size: 1 -> 2"
    finally:
        kubectl("delete", "crd", f"gadgets.{group}")


def on_a_terminal(kubeconfig: Path, namespace: str, kubectl: Kubectl, **environment: str) -> str:
    """What it writes to a terminal, until one change has been shown."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kubeloop", "watch", "cm", "a", "-n", namespace, "--once", "--kubeconfig", str(kubeconfig)]
    environ = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, text=True, env={**environ, "TERM": "xterm", **environment})
    os.close(theirs)
    try:
        assert process.stderr is not None
        assert "watching" in process.stderr.readline()
        kubectl("create", "configmap", "a")
        process.communicate(timeout=30)
        return os.read(ours, 65536).decode()
    finally:
        process.kill()
        process.communicate()
        os.close(ours)


@server_test
@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        pytest.param({}, True, id="a terminal gets colours"),
        pytest.param({"NO_COLOR": "1"}, False, id="NO_COLOR is respected"),
    ],
)
def test_colours(server: ServerUnderTest, kubectl: Kubectl, environment: dict[str, str], coloured: bool) -> None:
    written = on_a_terminal(Path(server.kubeconfig), kubectl.namespace, kubectl, **environment)
    assert f"{kubectl.namespace}/a" in written
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", written)) is coloured


@server_test
@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param(["podz"], 'serves no resource "podz"; did you mean pods', id="a kind that is not served"),
        pytest.param(
            ["tokenreviews"], "tokenreviews cannot be watched: the server does not offer list and watch", id="a kind without watch"
        ),
        pytest.param(["nodes", "-n", "x"], "Node is cluster-scoped: leave out -n x", id="a namespace for a cluster-scoped kind"),
        pytest.param(["cm", "a", "-A"], "one ConfigMap cannot be named across all namespaces", id="a name in all namespaces"),
        pytest.param(["cm", "-A", "-n", "x"], "-n and -A exclude each other", id="one namespace and all of them"),
        pytest.param(["cm", "-l", "a=("], "-l 'a=(': unable to parse requirement", id="a selector that is none"),
        pytest.param(["cm", "--field-selector", "a"], "--field-selector 'a': invalid selector", id="a field selector that is none"),
        pytest.param(["cm", "-n", "Not!Valid"], "-n 'Not!Valid' cannot be a namespace: a lowercase", id="a namespace that cannot be"),
        pytest.param(["cm", "--field-selector", "spec.x=1"], '"spec.x" is not a known field selector', id="a field that selects nothing"),
        pytest.param(["cm", "--context", "nosuch"], 'there is no context "nosuch"', id="a context that is not there"),
    ],
)
def test_a_resource_that_cannot_be_watched_is_an_error_of_one_line(watch: Callable[..., Watching], args: list[str], message: str) -> None:
    status, out, err = watch(*args).end()
    assert (status, out) == (1, "")
    assert err.startswith("Error: ")
    assert message in err
    assert err.count("\n") == 1


@server_test
def test_the_error_for_a_user_that_may_not_watch_names_the_required_verbs(
    watch_with: Callable[..., Watching], kubectl: Kubectl, tmp_path: Path
) -> None:
    config = json.loads(kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
    config["users"][0]["user"]["as"] = "other-user"
    limited = tmp_path / "limited"
    limited.write_text(json.dumps(config))
    status, _, err = watch_with(limited, "secrets", "-n", kubectl.namespace).end()
    assert status == 1
    assert "Forbidden" in err
    assert "kubectl auth can-i watch secrets" in err
    assert 'User "other-user"' in err
    assert "Traceback" not in err


@embedded
def test_a_missing_server_is_an_error_of_one_line(watch_with: Callable[..., Watching], tmp_path: Path) -> None:
    with LocalCluster(controllers=False) as cluster:
        kubeconfig = tmp_path / "gone"
        kubeconfig.write_text(cluster.kubeconfig.read_text())
    status, out, err = watch_with(kubeconfig, "pods").end()
    assert (status, out) == (1, "")
    assert re.match(r"Error: .*127\.0\.0\.1:\d+", err)
    assert "Traceback" not in err


@embedded
def test_a_server_that_dies_and_comes_back_is_survived_and_reported(watch_with: Callable[..., Watching], tmp_path: Path) -> None:
    with LocalCluster(controllers=False) as cluster:
        kubectl = Kubectl(cluster.kubeconfig, tmp_path)
        kubectl("create", "configmap", "lost")
        watching = watch_with(cluster.kubeconfig, "cm", "-n", "default", "--field-selector", "metadata.name!=kube-root-ca.crt")
        watching.note_with("watching")
        cluster.kill()
        assert "again" in watching.note_with("configmaps")
        cluster.restart()
        # Its store was in memory and its versions restart: changes beyond the version seen last are shown.
        names = [f"new-{number}" for number in range(5)]
        for name in names:
            kubectl("create", "configmap", name)
        while (line := watching.line()) != f"ADDED    default/{names[-1]}":
            assert line
        status, out, err = watching.end(signal.SIGINT)
        assert (status, out) == (130, "")
        assert "Traceback" not in err


@server_test
def test_a_reader_that_leaves_ends_it_without_a_word(watch: Callable[..., Watching], kubectl: Kubectl) -> None:
    watching = watch("cm", "-n", kubectl.namespace, "-o", "name")
    watching.note_with("watching")
    assert watching.process.stdout is not None
    watching.process.stdout.close()
    kubectl("create", "configmap", "a")
    assert watching.process.wait(timeout=30) == 0
    assert watching.process.stderr is not None
    assert watching.process.stderr.read() == ""


def test_help_needs_no_cluster_and_shows_examples() -> None:
    done = subprocess.run([sys.executable, "-m", "kubeloop", "watch", "--help"], capture_output=True, text=True, check=True)
    assert "field by field" in done.stdout
    assert "kubeloop watch deploy web -n shop" in done.stdout
