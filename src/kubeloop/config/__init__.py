"""Client configuration: kubeconfig files, the pod's own service account, credentials and TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeloop.config.authenticator import RequestAuthenticator
from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.credentials import Credentials, ExecPlugin, ImpersonatedUser, Pem, PluginPolicy
from kubeloop.config.in_cluster import in_cluster_config
from kubeloop.config.kubeconfig.merged import Kubeconfig
from kubeloop.config.load import load_config
from kubeloop.config.overrides import Overrides

if TYPE_CHECKING:
    from kubeloop.config.explain import Explanation, Setting
    from kubeloop.config.kubeconfig.edit import KubeconfigEditor, edit_kubeconfig
    from kubeloop.config.plugins.credential import ExecRequest

_LATER = {
    "ExecRequest": "plugins.credential",
    "Explanation": "explain",
    "KubeconfigEditor": "kubeconfig.edit",
    "Setting": "explain",
    "edit_kubeconfig": "kubeconfig.edit",
}

__all__ = [
    "ClusterConfig",
    "Credentials",
    "ExecPlugin",
    "ExecRequest",
    "Explanation",
    "ImpersonatedUser",
    "Kubeconfig",
    "KubeconfigEditor",
    "Overrides",
    "Pem",
    "PluginPolicy",
    "RequestAuthenticator",
    "Setting",
    "edit_kubeconfig",
    "in_cluster_config",
    "load_config",
]


if not TYPE_CHECKING:  # otherwise a type checker would accept any misspelt name as Any

    def __getattr__(name: str) -> Any:
        # Most programs load their configuration, and neither change nor explain it.
        if name not in _LATER:
            from kubeloop.meta.missing_names import missing_name

            raise missing_name(__name__, name)
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
