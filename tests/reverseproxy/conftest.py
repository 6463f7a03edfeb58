"""Pods whose kubelet is scripted, behind either server: the fixtures of the server's own tests."""

from __future__ import annotations

from tests.apiserver.kubelet.conftest import Cluster, cluster, kubectl_home, kubelet

__all__ = ["Cluster", "cluster", "kubectl_home", "kubelet"]
