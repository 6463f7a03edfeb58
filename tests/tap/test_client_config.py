"""The kubeconfig and the environment of a tapped command."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import pytest

from kubeloop.meta.errors import ConfigError
from kubeloop.tap.client_config import TapMode, TemporaryKubeconfig, command_environment, is_loopback, load_cluster, through_tap

USER = {"token": "secret", "exec": {"command": "login", "apiVersion": "client.authentication.k8s.io/v1"}}
CLUSTER = {"server": "https://10.0.0.1:6443", "certificate-authority-data": "b2xk", "tls-server-name": "api", "disable-compression": True}
KUBECONFIG: dict[str, Any] = {
    "clusters": [{"name": "c", "cluster": CLUSTER}],
    "users": [{"name": "u", "user": USER}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
    "current-context": "x",
}


def data(text: bytes) -> str:
    return base64.b64encode(text).decode()


@pytest.mark.parametrize(
    ("mode", "trusted", "expected"),
    [
        pytest.param(
            TapMode.SERVER,
            b"",
            {"server": "https://127.0.0.1:7", "certificate-authority-data": data(b"TAP"), "disable-compression": True},
            id="the tap is the server",
        ),
        pytest.param(
            TapMode.PROXY_URL,
            b"",
            {**CLUSTER, "certificate-authority-data": data(b"TAP"), "proxy-url": "http://127.0.0.1:7"},
            id="the tap is the proxy of the same server",
        ),
        pytest.param(
            TapMode.HTTPS_PROXY,
            b"OLD",
            {**CLUSTER, "certificate-authority-data": data(b"OLD\nTAP")},
            id="the tap is trusted beside the cluster",
        ),
    ],
)
def test_the_cluster_of_the_command(mode: TapMode, trusted: bytes, expected: dict[str, Any]) -> None:
    changed = through_tap(KUBECONFIG, mode, 7, b"TAP", trusted=trusted)
    assert changed["clusters"] == [{"name": "c", "cluster": expected}]
    assert (changed["users"], changed["contexts"]) == (KUBECONFIG["users"], KUBECONFIG["contexts"])
    assert KUBECONFIG["clusters"][0]["cluster"] is CLUSTER


def test_only_the_entries_of_the_context_are_given_to_the_command(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "config").write_text(
        """
current-context: a
clusters:
- {name: one, cluster: {server: "https://one:6443", certificate-authority: ca.crt}}
- {name: two, cluster: {server: "https://two:6443"}}
users:
- {name: jane, user: {tokenFile: token}}
- {name: john, user: {token: secret}}
contexts:
- {name: a, context: {cluster: two, user: john}}
- {name: b, context: {cluster: one, user: jane, namespace: shop}}
"""
    )
    config, kubeconfig = load_cluster(tmp_path / "config", "b")
    assert (config.server, config.namespace) == ("https://one:6443", "shop")
    assert [one["name"] for one in (*kubeconfig["clusters"], *kubeconfig["users"], *kubeconfig["contexts"])] == ["one", "jane", "b"]
    assert kubeconfig["current-context"] == "b"
    assert kubeconfig["users"][0]["user"] == {"tokenFile": str(tmp_path / "token")}
    assert kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"] == data(b"-----BEGIN CERTIFICATE-----\n")


def test_a_kubeconfig_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_cluster(tmp_path / "config", None)


def test_the_temporary_kubeconfig_is_private_and_goes() -> None:
    file = TemporaryKubeconfig(KUBECONFIG)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    file.remove()
    assert not file.path.parent.exists()


@pytest.mark.parametrize(
    ("mode", "kubeconfig", "expected"),
    [
        pytest.param(TapMode.SERVER, Path("/k"), {"A": "b", "NO_PROXY": "*", "KUBECONFIG": "/k"}, id="another server"),
        pytest.param(TapMode.PROXY_URL, Path("/k"), {"A": "b", "NO_PROXY": "*", "KUBECONFIG": "/k"}, id="proxy-url"),
        pytest.param(
            TapMode.HTTPS_PROXY,
            None,
            {"A": "b", "HTTPS_PROXY": "http://127.0.0.1:7", "https_proxy": "http://127.0.0.1:7", "KUBECONFIG": "/old"},
            id="HTTPS_PROXY keeps the kubeconfig and removes NO_PROXY",
        ),
    ],
)
def test_the_environment_of_the_command(mode: TapMode, kubeconfig: Path | None, expected: dict[str, str]) -> None:
    assert command_environment(mode, 7, kubeconfig, {"A": "b", "NO_PROXY": "*", "KUBECONFIG": "/old"}) == expected


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://127.0.0.1:6443", True),
        ("https://localhost", True),
        ("https://[::1]:6443", True),
        ("https://127.1:6443", False),
        ("https://10.0.0.1", False),
        ("https://api.example.com", False),
    ],
)
def test_is_loopback(server: str, expected: bool) -> None:
    assert is_loopback(server) is expected
