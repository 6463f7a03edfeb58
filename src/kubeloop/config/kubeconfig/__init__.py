"""Kubeconfig files: reading, merging, viewing and changing them. ``config.load`` chooses the context."""

from kubeloop.config.kubeconfig.entries import (
    Cluster,
    Context,
    Exec,
    ExecVariable,
    Extension,
    KubeconfigUser,
    NamedCluster,
    NamedContext,
    NamedUser,
)
from kubeloop.config.kubeconfig.merged import EntryInFile, Kubeconfig, KubeconfigFiles, kubeconfig_files, read_kubeconfig

__all__ = [
    "Cluster",
    "Context",
    "EntryInFile",
    "Exec",
    "ExecVariable",
    "Extension",
    "Kubeconfig",
    "KubeconfigFiles",
    "KubeconfigUser",
    "NamedCluster",
    "NamedContext",
    "NamedUser",
    "kubeconfig_files",
    "read_kubeconfig",
]
