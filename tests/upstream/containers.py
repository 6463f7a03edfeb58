"""Which conformance specs need something that the nodes of a cluster do not have: containers.yaml and process_pods.yaml."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml

#: For simulated nodes, which run no containers.
TABLE = Path(__file__).with_name("containers.yaml")
#: For nodes whose pods are processes.
PROCESS_PODS = Path(__file__).with_name("process_pods.yaml")
#: Clusters with a real container runtime, whose nodes have everything.
COMPLETE = ("real-kubelet", "real-components")


@cache
def needs(cluster: str = "simulated") -> dict[str, list[str]]:
    """Return regular expressions of the names of specs that a cluster cannot pass, by what these specs need of a node.

    Args:
        cluster: The name of the cluster, such as ``process-pods``.
    """
    if cluster in COMPLETE:
        return {}
    table: dict[str, list[str]] = yaml.safe_load((PROCESS_PODS if cluster == "process-pods" else TABLE).read_text())
    return table


def patterns(cluster: str = "simulated") -> list[str]:
    """Return all regular expressions for a cluster."""
    return [pattern for group in needs(cluster).values() for pattern in group]


def need_of(spec: str, cluster: str = "simulated") -> str | None:
    """Return what a spec needs of a node and a cluster lacks, such as ``files in containers``; None if the cluster suffices."""
    return next((need for need, group in needs(cluster).items() if any(re.search(pattern, spec) for pattern in group)), None)
