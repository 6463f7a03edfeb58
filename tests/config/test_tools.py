"""Kubeconfigs as the tools of the field write them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from kubeloop.config import Kubeconfig, load_config
from tests.config.documents import write

PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").decode()


def kubeconfig(cluster: str, user: str, name: str) -> str:
    return (
        f"apiVersion: v1\nclusters:\n- cluster:\n{cluster}  name: {name}\ncontexts:\n- context:\n    cluster: {name}\n    user: {name}\n"
        f"  name: {name}\ncurrent-context: {name}\nkind: Config\npreferences: {{}}\nusers:\n- name: {name}\n  user:\n{user}"
    )


KIND = kubeconfig(
    f"    certificate-authority-data: {PEM}\n    server: https://127.0.0.1:40123\n",
    f"    client-certificate-data: {PEM}\n    client-key-data: {PEM}\n",
    "kind-kind",
)
MINIKUBE = kubeconfig(
    """\
    certificate-authority: ca.crt
    extensions:
    - extension:
        last-update: Mon, 01 Jan 2026 10:00:00 UTC
        provider: minikube.sigs.k8s.io
        version: v1.40.0
      name: cluster_info
    server: https://192.168.49.2:8443
""",
    "    client-certificate: client.crt\n    client-key: client.key\n",
    "minikube",
)
EKS = kubeconfig(
    f"    certificate-authority-data: {PEM}\n    server: https://0123456789ABCDEF.gr7.eu-west-1.eks.amazonaws.com\n",
    """\
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      args:
      - --region
      - eu-west-1
      - eks
      - get-token
      - --cluster-name
      - shop
      command: aws
      env:
      - name: AWS_PROFILE
        value: prod
      interactiveMode: IfAvailable
      provideClusterInfo: false
""",
    "arn:aws:eks:eu-west-1:123456789012:cluster/shop",
)
GKE = kubeconfig(
    f"    certificate-authority-data: {PEM}\n    server: https://203.0.113.7\n",
    """\
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: gke-gcloud-auth-plugin
      env: null
      args: null
      installHint: |
        Install gke-gcloud-auth-plugin for use with kubectl by following
        https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-access-for-kubectl#install_plugin
      provideClusterInfo: true
""",
    "gke_project_zone_shop",
)
OPENSHIFT = kubeconfig(
    "    server: https://api.shop.example:6443\n    insecure-skip-tls-verify: true\n",
    "    token: sha256~abc-DEF_123\n",
    "admin/api-shop:6443/ann",
)


@pytest.mark.parametrize(
    ("text", "server", "method"),
    [
        pytest.param(KIND, "https://127.0.0.1:40123", "client certificate", id="kind, Docker Desktop, k3s: everything in one file"),
        pytest.param(MINIKUBE, "https://192.168.49.2:8443", "client certificate", id="minikube: files beside it"),
        pytest.param(EKS, "https://0123456789ABCDEF.gr7.eu-west-1.eks.amazonaws.com", "exec", id="EKS: a plugin with arguments"),
        pytest.param(GKE, "https://203.0.113.7", "exec", id="GKE: a plugin with a hint of several lines"),
        pytest.param(OPENSHIFT, "https://api.shop.example:6443", "token", id="OpenShift: a token"),
    ],
)
def test_the_kubeconfig_of(tmp_path: Path, text: str, server: str, method: str) -> None:
    for name in ("ca.crt", "client.crt", "client.key"):
        (tmp_path / name).write_bytes(base64.b64decode(PEM))
    config = load_config(write(tmp_path / "config", text))
    assert (config.server, config.credentials.methods) == (server, [method])
    if config.credentials.exec is not None:
        assert config.credentials.exec.interactive == "IfAvailable"


def test_an_empty_file_is_an_empty_kubeconfig(tmp_path: Path) -> None:
    found = Kubeconfig.read(write(tmp_path / "config", ""))
    assert (found.clusters, found.users, found.contexts, found.current_context) == ({}, {}, {}, "")
