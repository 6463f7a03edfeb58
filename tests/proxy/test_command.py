"""``kubeloop proxy`` as a command: its output, and a message with the way out for each mistake."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubeloop.testing import LocalCluster
from tests.kubectl.runner import Kubectl
from tests.proxy.rules.rule_texts import rule, text_of

HIDE_ALL = text_of(rule(match=[{"resources": ["configmaps"]}], name="hide-all"))


def command(cluster: LocalCluster, *args: str) -> list[str]:
    return [sys.executable, "-m", "kubeloop", "proxy", "--kubeconfig", str(cluster.kubeconfig), *args]


@contextmanager
def running(cluster: LocalCluster, *args: str) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """Start the command; the process, URL and kubeconfig of its line."""
    process = subprocess.Popen(command(cluster, *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready https://127.0.0.1:"), line + process.communicate()[1]
        _, url, kubeconfig = line.split()
        yield process, url, Path(kubeconfig.removeprefix("kubeconfig="))
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=20)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def test_the_line_names_a_kubeconfig_that_works_and_is_removed(local_cluster: LocalCluster, tmp_path: Path) -> None:
    rules, other, health = tmp_path / "rules.yaml", tmp_path / "ann", free_port()
    rules.write_text(HIDE_ALL)
    options = ("--rules", str(rules), "--user-kubeconfig", f"ann:devs,ops={other}", "--health", f"127.0.0.1:{health}")
    with running(local_cluster, *options) as (process, url, kubeconfig):
        kubectl = Kubectl(kubeconfig, tmp_path)
        assert url in kubeconfig.read_text()
        assert kubectl.run("get", "configmaps", "-A").err == "No resources found\n"
        assert "devs" in Kubectl(other, tmp_path)("auth", "whoami")
        assert other.stat().st_mode & 0o77 == 0
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{health}/readyz") as reply:
            assert reply.read() == b"ok"
        with opener.open(f"http://127.0.0.1:{health}/readyz?verbose") as reply:
            assert reply.read() == b"[+]proxy-rules ok\nreadyz check passed\n"
        with opener.open(f"http://127.0.0.1:{health}/metrics") as reply:
            assert b'kubeloop_proxy_objects_hidden_total{rule="hide-all"}' in reply.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, "Traceback" in errors) == (0, False), errors
        assert not kubeconfig.exists()


MISTAKES = [
    pytest.param(["--kubeconfig", "{tmp}/none"], "{tmp}/none", id="no kubeconfig"),
    pytest.param(["--context", "nowhere"], "nowhere", id="an unknown context"),
    pytest.param(["--rules", "{tmp}/none.yaml"], "none.yaml", id="no rules"),
    pytest.param(["--rules", "{tmp}/wrong.yaml"], "wrong.yaml:1: rule hide-all", id="rules with mistakes"),
    pytest.param(["--port", "{port}"], "{port}", id="a port that is taken"),
    pytest.param(["--bind-address", "192.0.2.1"], "192.0.2.1", id="an address of another machine"),
    pytest.param(["--user-kubeconfig", "ann"], "must be USER[:GROUP,...]=FILE", id="a user without a file"),
    pytest.param(["--user-kubeconfig", "=x"], "must be USER[:GROUP,...]=FILE", id="a file without a user"),
    pytest.param(["--user-kubeconfig", "ann={tmp}/no/where/x"], "{tmp}/no/where", id="a folder that does not exist"),
    pytest.param(["--kubeconfig-out", "{tmp}/no/where/x"], "{tmp}/no/where", id="no folder for the kubeconfig"),
    pytest.param(["--client-ca-file", "{tmp}/none.crt"], "none.crt", id="no client CA"),
    pytest.param(["--client-ca-file", "{tmp}/wrong.yaml"], "--client-ca-file", id="a client CA that is none"),
    pytest.param(["--proxy-client-cert-file", "{tmp}/x"], "belong together", id="a certificate of a front proxy without its key"),
    pytest.param(["--proxy-client-key-file", "{tmp}/x"], "belong together", id="a key of a front proxy without its certificate"),
    pytest.param(
        ["--proxy-client-cert-file", "{tmp}/none", "--proxy-client-key-file", "{tmp}/x"],
        "proxy-client-cert-file: {tmp}/none: cannot be read",
        id="a certificate of a front proxy that does not exist",
    ),
    pytest.param(["--advertise-address", "https://x"], "must be HOST[:PORT]", id="an advertised URL"),
    pytest.param(["--advertise-address", "0.0.0.0"], "no client can connect", id="an advertised address of no machine"),
    pytest.param(["--health", "8080"], "must be HOST:PORT", id="a health address without a host"),
    pytest.param(["--health", "127.0.0.1:{port}"], "{port}", id="a health port that is taken"),
    pytest.param(["--health", "127.0.0.1:99999"], "must be HOST:PORT", id="a health port that does not exist"),
]


@pytest.mark.parametrize(("args", "words"), MISTAKES)
def test_a_mistake_is_a_message(local_cluster: LocalCluster, tmp_path: Path, args: list[str], words: str) -> None:
    (tmp_path / "wrong.yaml").write_text(HIDE_ALL.replace('"drop"', '"dorp"'))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        values = {"tmp": str(tmp_path), "port": str(taken.getsockname()[1])}
        filled = [word.format(**values) for word in args]
        done = subprocess.run(command(local_cluster, *filled), capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 1, done
    assert words.format(**values) in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_cluster_that_is_away_is_a_message(local_cluster: LocalCluster, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "away"
    kubeconfig.write_text(Path(local_cluster.kubeconfig).read_text().replace(local_cluster.url, f"https://127.0.0.1:{free_port()}"))
    done = subprocess.run(command(local_cluster, "--kubeconfig", str(kubeconfig)), capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done
    assert "127.0.0.1" in done.stderr
