"""Chooses the configuration: an explicit file, KUBECONFIG, ~/.kube/config, or the pod's own cluster."""

from __future__ import annotations

from pathlib import Path

from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.in_cluster import in_cluster_config, is_in_cluster, pod_namespace
from kubeloop.config.kubeconfig.merged import KubeconfigFiles, kubeconfig_files, read_kubeconfig
from kubeloop.config.overrides import Overrides
from kubeloop.config.plugin_policy import PluginPolicy
from kubeloop.config.resolve import resolve
from kubeloop.meta.errors import ConfigError


def load_config(
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    *,
    overrides: Overrides | None = None,
    plugin_policy: PluginPolicy | None = None,
) -> ClusterConfig:
    """Load the configuration by client-go's precedence: ``kubeconfig``, the list in ``KUBECONFIG``, ``~/.kube/config``, in-cluster.

    Missing files of the list are skipped; in-cluster is tried only if the files choose no context, and neither ``kubeconfig``,
    ``context`` nor a server is given. ``ClusterConfig.explain`` says where each setting came from.

    Args:
        kubeconfig: A file, which must exist. None: ``KUBECONFIG`` or the default file.
        context: Name of a context. None: the current context.
        overrides: Settings that take precedence over the files.
        plugin_policy: The credential plugins that may run. None: all.

    Returns:
        The cluster's configuration.

    Raises:
        ConfigError: no configuration was found, or it cannot be used; the text names file, field and the fix.
    """
    files = kubeconfig_files(kubeconfig)
    config = read_kubeconfig(list(files.paths), must_exist=files.explicit)
    given = overrides or Overrides()
    chosen = context or config.current_context or given.cluster
    if not files.explicit and not chosen:
        if is_in_cluster():
            return in_cluster_config(overrides=given)
        if not given.server and not (config.clusters or config.contexts or config.users):
            raise _nothing_found(files)
    return resolve(config, context, given, namespace=pod_namespace, policy=plugin_policy, files_from=files.origin)


def _nothing_found(files: KubeconfigFiles) -> ConfigError:
    looked = ", ".join(f"{file} ({'which sets nothing' if file.exists() else 'which does not exist'})" for file in files.paths)
    origin = "KUBECONFIG names" if files.origin == "KUBECONFIG" else "the default is"
    return ConfigError(
        f"no configuration found: {origin} {looked or 'no file'}, and this is no pod with a service account; "
        "give a kubeconfig, or set KUBECONFIG"
    )
