"""Configuration of a program in a pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.config import in_cluster_config
from kubeloop.meta import ConfigError

HOST = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("t1\n")
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "namespace").write_text("ops\n")
    return tmp_path


def test_address_token_authority_and_namespace_come_from_the_pod(account: Path) -> None:
    config = in_cluster_config(HOST, account)
    assert (config.server, config.name, config.namespace) == ("https://10.0.0.1:443", "in-cluster", "ops")
    assert config.credentials.token_file == account / "token"
    assert config.ca is not None
    assert config.ca.path == account / "ca.crt"


def test_an_ipv6_address_is_put_in_brackets(account: Path) -> None:
    assert in_cluster_config({**HOST, "KUBERNETES_SERVICE_HOST": "fd00::1"}, account).server == "https://[fd00::1]:443"


def test_the_namespace_of_the_environment_wins_and_default_is_the_last_resort(account: Path) -> None:
    assert in_cluster_config({**HOST, "POD_NAMESPACE": "web"}, account).namespace == "web"
    (account / "namespace").unlink()
    assert in_cluster_config(HOST, account).namespace == "default"


def test_without_a_ca_file_the_authorities_of_the_system_decide(account: Path) -> None:
    (account / "ca.crt").unlink()
    assert in_cluster_config(HOST, account).ca is None


def test_outside_a_pod_it_says_so(account: Path) -> None:
    with pytest.raises(ConfigError, match=r"not in a cluster: KUBERNETES_SERVICE_HOST .* give a kubeconfig"):
        in_cluster_config({}, account)


def test_a_pod_without_a_token_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="automountServiceAccountToken: true"):
        in_cluster_config(HOST, tmp_path)
