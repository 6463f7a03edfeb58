"""Webhooks of a program under ``kubeloop run``: served while it runs, and taken back at its end and after a crash."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeloop.cli.run.command import run
from kubeloop.cli.run.webhooks import listening_port, session_name
from kubeloop.meta import ConfigError
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(300)]

PROGRAM = """
from kubeloop import Controller
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.controller.webhooks import Denied, Webhooks

hooks = Webhooks()


@hooks.validating(ConfigMap, operations=["CREATE"], failure_policy="Ignore")
def check(config: ConfigMap) -> None:
    if config.metadata.name == "wrong":
        raise Denied("it is called wrong")


class Maps(Controller[ConfigMap], name="maps"):
    async def reconcile(self, config: ConfigMap) -> None:
        print("saw", config.metadata.name)


def program():
    return [Maps(), hooks]


def without():
    return [Maps()]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "maps.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def kubectl(server: ServerUnderTest, namespace: str, tmp_path: Path) -> Kubectl:
    return Kubectl(Path(server.kubeconfig), tmp_path, namespace)


def started(folder: Path, *args: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    return subprocess.Popen(
        [sys.executable, "-m", "kubeloop", "run", *args],
        cwd=folder,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    seen = ""
    while line := process.stdout.readline():
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"ended without {text!r}:\n{seen}")


@pytest.fixture
def session(folder: Path, server: ServerUnderTest, namespace: str) -> list[str]:
    """The arguments of a run against the server under test, whose webhooks it reaches at a free port of this machine."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    url = f"https://127.0.0.1:{port}"
    return ["--kubeconfig", str(server.kubeconfig), "-n", namespace, "--no-live", "--no-reload", "--webhook-url", url]


def configurations(kubectl: Kubectl) -> list[str]:
    items = json.loads(kubectl("get", "validatingwebhookconfigurations", "-l", "kubeloop.dev/webhook-session", "-o", "json"))["items"]
    return [item["metadata"]["name"] for item in items if item["metadata"]["name"].startswith("kubeloop-run-maps-")]


def test_they_are_registered_while_it_runs(folder: Path, kubectl: Kubectl, session: list[str]) -> None:
    process = started(folder, "maps:program", *session)
    try:
        read_until(process, " synced, ")
        assert len(configurations(kubectl)) == 1
        while (refused := kubectl.run("create", "configmap", "wrong", "--dry-run=server")).code == 0:
            pass  # An API server learns of a configuration a moment after it is stored.
        assert "it is called wrong" in refused.err
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 0, rest
    finally:
        process.kill()
        process.communicate()
    assert configurations(kubectl) == []


def test_a_run_after_a_crash_removes_them(folder: Path, kubectl: Kubectl, session: list[str]) -> None:
    process = started(folder, "maps:program", *session)
    try:
        read_until(process, " synced, ")
        os.killpg(process.pid, signal.SIGKILL)
    finally:
        process.communicate()
    (left,) = configurations(kubectl)
    # The program has no webhooks any more.
    (folder / "maps.py").write_text(PROGRAM.replace("[Maps(), hooks]", "[Maps()]"))
    process = started(folder, "maps:program", *session[:-2])
    try:
        seen = read_until(process, " synced, ")
        assert f"removed ValidatingWebhookConfiguration {left}: an earlier run left it behind" in seen
        assert configurations(kubectl) == []
    finally:
        process.terminate()
        process.communicate()


def test_without_an_address_that_a_cluster_reaches_they_are_not_registered(folder: Path, kubectl: Kubectl, session: list[str]) -> None:
    process = started(folder, "maps:program", *session[:-2])
    try:
        seen = read_until(process, " synced, ")
        assert "the webhooks of the program are not served; to serve them: --webhook-url" in seen
        assert configurations(kubectl) == []
    finally:
        process.terminate()
        process.communicate()


def test_with_an_embedded_server_they_are_served_on_loopback(folder: Path, tmp_path: Path) -> None:
    process = started(folder, "maps:program", "--embedded", "--no-live", "--no-reload")
    try:
        first = read_until(process, "kubectl --kubeconfig ")
        kubeconfig = Path(first.rpartition("--kubeconfig ")[2].strip())
        read_until(process, " synced, ")
        assert len(configurations(Kubectl(kubeconfig, tmp_path))) == 1
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("http://here:1", "is not an address of a webhook server", id="plain HTTP"),
        pytest.param("https://here:1/path", "is not an address of a webhook server", id="a path"),
        pytest.param("https://:1", "names no host", id="no host"),
        pytest.param("https://here:x", "--webhook-url: Port could not be cast", id="no port"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str, message: str) -> None:
    result = CliRunner().invoke(run, ["maps:program", "--webhook-url", url])
    assert result.exit_code == 1
    assert message in result.output


@pytest.mark.parametrize(("url", "port"), [("https://here:8443", 8443), ("https://here", 9443)])
def test_the_port_is_that_of_the_address(url: str, port: int) -> None:
    assert listening_port(url) == port


def test_the_name_of_a_session_is_that_of_the_program_and_no_other() -> None:
    assert session_name("maps:program") == session_name("maps:program")
    assert session_name("maps:program") != session_name("maps:without")
    with pytest.raises(ConfigError, match="names no host"):
        listening_port("https://")
