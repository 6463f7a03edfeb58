"""Kubeconfig files: reading, merging, viewing and changing them. ``config.resolve`` chooses the context."""

from kubeloop.config.kubeconfig.entries import Cluster, Context, Exec, ExecVariable, Extension, NamedCluster, NamedContext, NamedUser, User
from kubeloop.config.kubeconfig.merged import Found, Kubeconfig, KubeconfigFiles, kubeconfig_files, read_kubeconfig

__all__ = [
    "Cluster",
    "Context",
    "Exec",
    "ExecVariable",
    "Extension",
    "Found",
    "Kubeconfig",
    "KubeconfigFiles",
    "NamedCluster",
    "NamedContext",
    "NamedUser",
    "User",
    "kubeconfig_files",
    "read_kubeconfig",
]
