"""The program as a user runs it: a separate process, kubectl beside it."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from kubeloop.testing import TlsTestServer
from tests.kubectl.runner import Kubectl

pytestmark = pytest.mark.embedded

HERE = Path(__file__).parent
MANIFEST = HERE / "nginx-deployment.yaml"
ROOT = HERE.parents[1]
COMMAND = [sys.executable, "-m", "examples.pod_informer"]


class Program:
    """The running program and what it has printed."""

    def __init__(self, *arguments: str) -> None:
        self.lines: list[str] = []
        self._came = threading.Condition()
        self.process = subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._came:
                self.lines.append(line.rstrip("\n"))
                self._came.notify_all()

    def wait(self, enough: Callable[[list[str]], bool]) -> list[str]:
        """The lines so far, as soon as they are enough."""
        with self._came:
            assert self._came.wait_for(lambda: enough(self.lines), 30), "\n".join(self.lines)
            return list(self.lines)

    def end(self, number: signal.Signals) -> list[str]:
        """Every line, when it has ended by itself with status 0."""
        self.process.send_signal(number)
        assert self.process.wait(20) == 0
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.lines


@pytest.fixture
def start(kubectl: Kubectl) -> Iterator[Callable[..., Program]]:
    running: list[Program] = []

    def start(*arguments: str) -> Program:
        running.append(Program("--kubeconfig", str(kubectl.kubeconfig), "-n", kubectl.namespace, *arguments))
        return running[-1]

    yield start
    for program in running:
        if program.process.poll() is None:
            program.end(signal.SIGTERM)


def names(lines: list[str], verb: str) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith(f"{verb} ")]


def test_two_pods_come_with_a_deployment_and_go_with_it_until_ctrl_c(start: Callable[..., Program], kubectl: Kubectl) -> None:
    program = start()
    first, second = program.wait(lambda lines: len(lines) == 2)
    assert re.fullmatch(rf'starting: pods in namespace "{kubectl.namespace}" of cluster ".+", resync every 30 s', first)
    assert second == "synced: 0 pods"
    kubectl("apply", "-f", str(MANIFEST))
    lines = program.wait(lambda lines: len([line for line in lines if re.search(r"-> Running on ", line)]) == 2)
    pods = names(lines, "ADD")
    assert len(set(pods)) == len(pods) == 2
    assert all(pod.startswith(f"{kubectl.namespace}/nginx-deployment-") for pod in pods)
    kubectl("delete", "-f", str(MANIFEST))
    lines = program.wait(lambda lines: len(names(lines, "DEL")) == 2)
    assert sorted(names(lines, "DEL")) == sorted(pods)
    assert program.end(signal.SIGINT)[-2:] == ["received SIGINT: stopping", "main stopped..."]


def test_a_deleted_pod_is_one_line_and_its_replacement_another_and_resyncs_show_each_again(
    start: Callable[..., Program], kubectl: Kubectl
) -> None:
    program = start("--resync", "1")
    program.wait(lambda lines: len(lines) == 2)
    kubectl("apply", "-f", str(MANIFEST))
    lines = program.wait(lambda lines: len([line for line in lines if re.search(r"-> Running on ", line)]) == 2)
    gone = names(lines, "ADD")[0]
    kubectl("delete", "pod", gone.partition("/")[2])
    lines = program.wait(lambda lines: len(names(lines, "ADD")) == 3 and names(lines, "DEL") == [gone])
    alive = set(names(lines, "ADD")) - {gone}
    seen = len(lines)
    lines = program.wait(lambda lines: len([line for line in lines[seen:] if line.endswith("(resync)")]) >= 4)
    shown = [line.split()[1] for line in lines[seen:] if line.endswith("(resync)")]
    assert set(shown) == alive
    assert names(lines, "DEL") == [gone]
    assert program.end(signal.SIGTERM)[-2:] == ["received SIGTERM: stopping", "main stopped..."]
    kubectl("delete", "-f", str(MANIFEST))


async def test_asked_to_list_it_asks_for_a_page_at_version_0_and_then_watches_from_there(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    async with TlsTestServer() as server:
        kubeconfig.write_bytes(server.kubeconfig)
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "--kubeconfig", str(kubeconfig), "--list", cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        asked: list[str] = []
        async with asyncio.timeout(20):
            while len(asked) < 2:
                await asyncio.sleep(0.01)
                asked = [each for each in server.faults.requests if "/pods?" in each]
        process.send_signal(signal.SIGINT)
        out, _ = await asyncio.wait_for(process.communicate(), 20)
    listed, watched = ({key: value[0] for key, value in parse_qs(urlsplit(each.split()[1]).query).items()} for each in asked[:2])
    assert listed == {"limit": "500", "resourceVersion": "0"}
    assert (watched["watch"], watched["allowWatchBookmarks"]) == ("true", "true")
    assert int(watched["resourceVersion"]) > 0
    assert 300 <= int(watched["timeoutSeconds"]) <= 600
    assert out.decode().splitlines()[-1] == "main stopped..."


def test_it_ends_with_a_message_and_no_traceback_when_it_cannot_begin(tmp_path: Path) -> None:
    command = [*COMMAND, "--kubeconfig", str(tmp_path / "missing")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("pod-informer: ")
    assert "missing" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_readme_shows_the_programs_own_lines() -> None:
    readme = (HERE / "README.md").read_text()
    for line in ("resync every 30 s", "received SIGINT: stopping", "main stopped...", "(resync)"):
        assert line in readme
