"""The built-in controllers of a Kubernetes control plane, written with ``kubeloop.controller``.

The controllers use the API server only through its API, so they run against any conforming server.
"""

from kubeloop.controlplane.catalogue import ClusterKeys, select_controllers
from kubeloop.controlplane.leader_election import ControlPlaneLeases
from kubeloop.controlplane.run import controllers, run

__all__ = ["ClusterKeys", "ControlPlaneLeases", "controllers", "run", "select_controllers"]
