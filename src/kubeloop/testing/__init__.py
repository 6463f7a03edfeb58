"""Test support for programs that use kubeloop: a cluster on this machine, and one in the test's event loop with injected faults."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubeloop.kubelet.streaming import CommandHandler, Terminal
    from kubeloop.testing.actions import Actions
    from kubeloop.testing.assertions import consistently, eventually
    from kubeloop.testing.calls import RecordedCall, on
    from kubeloop.testing.fake_time import with_fake_time
    from kubeloop.testing.faults import Faults
    from kubeloop.testing.format import assert_golden
    from kubeloop.testing.kube_cluster import KubeCluster
    from kubeloop.testing.kubelet import PortHandler, ScriptedKubelet
    from kubeloop.testing.kubelet_containers import ContainerLog, run_process
    from kubeloop.testing.kubelet_server import KubeletRequest
    from kubeloop.testing.local_cluster import LocalCluster
    from kubeloop.testing.servers import HandlerServer, TlsTestServer
    from kubeloop.testing.targets import ObjectProbe, all_cached, cached, many, one

_HOMES = {
    "Actions": "actions",
    "RecordedCall": "calls",
    "CommandHandler": "kubelet_server",
    "ContainerLog": "kubelet_containers",
    "Faults": "faults",
    "TlsTestServer": "servers",
    "HandlerServer": "servers",
    "KubeCluster": "kube_cluster",
    "KubeletRequest": "kubelet_server",
    "LocalCluster": "local_cluster",
    "PortHandler": "kubelet",
    "ScriptedKubelet": "kubelet",
    "ObjectProbe": "targets",
    "Terminal": "kubelet_containers",
    "all_cached": "targets",
    "assert_golden": "format",
    "cached": "targets",
    "consistently": "assertions",
    "with_fake_time": "fake_time",
    "eventually": "assertions",
    "many": "targets",
    "on": "calls",
    "one": "targets",
    "run_process": "kubelet_containers",
}

__all__ = [
    "Actions",
    "CommandHandler",
    "ContainerLog",
    "Faults",
    "HandlerServer",
    "KubeCluster",
    "KubeletRequest",
    "LocalCluster",
    "ObjectProbe",
    "PortHandler",
    "RecordedCall",
    "ScriptedKubelet",
    "Terminal",
    "TlsTestServer",
    "all_cached",
    "assert_golden",
    "cached",
    "consistently",
    "eventually",
    "many",
    "on",
    "one",
    "run_process",
    "with_fake_time",
]


if not TYPE_CHECKING:  # otherwise a type checker would accept any misspelt name as Any

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            from kubeloop.meta.missing_names import missing_name

            raise missing_name(__name__, name)
        try:
            module = importlib.import_module(f"kubeloop.testing.{home}")
        except ModuleNotFoundError as error:
            from kubeloop.testing.extras import not_installed

            raise not_installed(error) from error
        return getattr(module, name)
