"""Which configuration to use: an explicit file, KUBECONFIG, ~/.kube/config, or the pod's own cluster."""

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
    """The cluster to talk to, by client-go's precedence: ``kubeconfig``, the list in ``KUBECONFIG``, ``~/.kube/config``, in-cluster.

    Files of the list that do not exist are skipped; a file given as argument must exist. In-cluster is tried only when the files
    choose no context, and not when a ``kubeconfig``, a ``context`` or a server is asked for. ``overrides`` win over all of them.
    ``ClusterConfig.explain`` says where each setting came from.

    Raises:
        ConfigError: nothing found, or what was found cannot be used; the text names file, field and way out.
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
