"""Which configuration to use: an explicit file, KUBECONFIG, ~/.kube/config, or the pod's own cluster."""

from __future__ import annotations

import os
from pathlib import Path

from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.in_cluster import in_cluster_config, is_in_cluster
from kubeloop.config.kubeconfig import read_kubeconfig
from kubeloop.config.resolve import resolve
from kubeloop.meta.errors import ConfigError


def load_config(kubeconfig: str | Path | None = None, context: str | None = None) -> ClusterConfig:
    """The cluster to talk to, by client-go's precedence: ``kubeconfig``, the list in ``KUBECONFIG``, ``~/.kube/config``, in-cluster.

    Files of the list that do not exist are skipped; a file given as argument must exist. In-cluster is tried only when the files say
    nothing at all, and not when a ``context`` is asked for.

    Raises:
        ConfigError: nothing found, or what was found cannot be used; the text names file, field and way out.
    """
    if kubeconfig is not None:
        return resolve(read_kubeconfig([Path(kubeconfig).expanduser()], must_exist=True), context)
    listed = os.environ.get("KUBECONFIG", "")
    files = [Path(part) for part in listed.split(os.pathsep) if part] or [Path.home() / ".kube" / "config"]
    config = read_kubeconfig(files, must_exist=False)
    empty = not (config.clusters or config.contexts or config.users or config.current_context)
    if empty and not context and is_in_cluster():
        return in_cluster_config()
    if empty:
        looked = ", ".join(str(file) for file in files)
        origin = "KUBECONFIG names" if listed else "the default is"
        raise ConfigError(
            f"no configuration found: {origin} {looked}, where nothing is set, and this is no pod with a service account; "
            "give a kubeconfig, or set KUBECONFIG"
        )
    return resolve(config, context)
