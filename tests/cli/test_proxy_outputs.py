"""What ``kubeloop proxy`` writes: kubeconfigs, never over the file from which it reads its cluster; its address; and its readiness."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeloop.cli import main
from kubeloop.cli.proxy import advertised_address, readiness
from kubeloop.config import ClusterConfig
from kubeloop.meta.errors import ConfigError
from kubeloop.proxy.server import ProxyServer
from tests.config.documents import document, write

_READ = "reads its cluster from this file"


@pytest.mark.parametrize(
    ("args", "environment", "message"),
    [
        pytest.param(["--kubeconfig", "config", "--kubeconfig-out", "config"], {}, _READ, id="the file of the flag"),
        pytest.param(["--kubeconfig-out", "config"], {"KUBECONFIG": "config"}, _READ, id="the file of KUBECONFIG"),
        pytest.param(["--kubeconfig-out", "link"], {"KUBECONFIG": "config"}, _READ, id="a link to it"),
        pytest.param(
            ["--kubeconfig", "config", "--kubeconfig-out", "a", "--user-kubeconfig", "ann=a"], {}, "two kubeconfigs", id="one file twice"
        ),
    ],
)
def test_an_output_that_would_lose_a_kubeconfig_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], environment: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    content = document(
        clusters=[{"name": "kubeloop", "cluster": {"server": "https://127.0.0.1:1"}}], users=[{"name": "kubeloop", "user": {}}]
    )
    content["contexts"] = [{"name": "kubeloop", "context": {"cluster": "kubeloop", "user": "kubeloop"}}]
    content["current-context"] = "kubeloop"
    before = write(tmp_path / "config", content).read_bytes()
    (tmp_path / "link").symlink_to("config")
    result = CliRunner().invoke(main, ["proxy", *args], env={"KUBECONFIG": "", **environment})
    assert (result.exit_code, message in result.output) == (1, True), result.output
    assert (tmp_path / "config").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", None, id="nothing"),
        pytest.param("proxy.example.com", ("proxy.example.com", 0), id="a name"),
        pytest.param("Proxy.example.com:6443", ("proxy.example.com", 6443), id="a name and a port"),
        pytest.param("192.0.2.7", ("192.0.2.7", 0), id="an IPv4 address"),
        pytest.param("192.0.2.7:1", ("192.0.2.7", 1), id="an IPv4 address and a port"),
        pytest.param("2001:db8::7", ("2001:db8::7", 0), id="an IPv6 address"),
        pytest.param("[2001:db8::7]:6443", ("2001:db8::7", 6443), id="an IPv6 address and a port"),
    ],
)
def test_an_advertised_address_is_a_host_and_perhaps_a_port(text: str, expected: tuple[str, int] | None) -> None:
    assert advertised_address(text) == expected


@pytest.mark.parametrize("text", ["https://a", "a/b", "a:0", "a:99999", "a:b", "a_b", ":80", "u@a", "a?b", "0.0.0.0", "[::]:1"])
def test_another_advertised_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--advertise-address"):
        advertised_address(text)


@pytest.mark.parametrize(
    ("verbose", "failed_reloads", "expected"),
    [
        pytest.param(False, 0, b"ok", id="a proxy that is ready"),
        pytest.param(False, 2, b"ok", id="a proxy whose changed rules have mistakes is ready"),
        pytest.param(True, 0, b"[+]proxy-rules ok\nreadyz check passed\n", id="the checks of a proxy that is ready"),
        pytest.param(
            True,
            2,
            b"[+]proxy-rules ok\n[!]the changed rules have mistakes, and the former ones stay in force: see the log\nreadyz check passed\n",
            id="the checks name changed rules with mistakes",
        ),
    ],
)
def test_readiness(verbose: bool, failed_reloads: int, expected: bytes) -> None:
    server = ProxyServer(ClusterConfig(server="https://127.0.0.1:1"))
    server.failed_reloads = failed_reloads
    answer = readiness(server, verbose=verbose)
    assert (answer.status, answer.body) == (200, expected)


def test_a_check_that_fails_is_named() -> None:
    class FailingServer(ProxyServer):
        def checks(self) -> dict[str, str]:
            return {"proxy-rules": "", "cache": "pods are not listed"}

    answer = readiness(FailingServer(ClusterConfig(server="https://127.0.0.1:1")), verbose=False)
    assert (answer.status, answer.body) == (503, b"[+]proxy-rules ok\n[-]cache failed: pods are not listed\nreadyz check failed\n")
