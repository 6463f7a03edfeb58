"""Configuration of a program that runs in a pod: its service account's token, CA and namespace.

Source: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/ and client-go rest.InClusterConfig.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.credentials import Credentials, Pem
from kubeloop.meta.errors import ConfigError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def is_in_cluster(environ: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> bool:
    """True if the environment and the token file of a pod are there."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST") and environ.get("KUBERNETES_SERVICE_PORT")) and (account / "token").is_file()


def in_cluster_config(environ: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> ClusterConfig:
    """The pod's own cluster. The token file is named, not read: the kubelet rotates it, so it is read anew while in use.

    Namespace: ``POD_NAMESPACE``, else the service account's file, else ``default``.

    Raises:
        ConfigError: not in a pod, or the pod has no service account mounted.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError(
            "not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set; outside a pod give a kubeconfig"
        )
    if not (account / "token").is_file():
        raise ConfigError(f"{account / 'token'}: no such file; set automountServiceAccountToken: true for this pod, or give a kubeconfig")
    authority = account / "ca.crt"
    namespace = environ.get("POD_NAMESPACE", "")
    if not namespace:
        try:
            namespace = (account / "namespace").read_text().strip()
        except OSError:
            namespace = ""  # optional in upstream too
    return ClusterConfig(
        name="in-cluster",
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace or "default",
        # Without the file the system's authorities decide, as in client-go.
        ca=Pem(path=authority, field="service account CA") if authority.is_file() else None,
        credentials=Credentials(token_file=account / "token", owner="service account"),
        source="in-cluster configuration",
    )
