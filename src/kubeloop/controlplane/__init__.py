"""The built-in controllers of a Kubernetes control plane that tests and demos need: ordinary users of ``kubeloop.controller``.

They use the API server only through its API, so they run against any conforming server.
"""

from kubeloop.controlplane.catalogue import ClusterKeys, select_controllers
from kubeloop.controlplane.run import controllers, run

__all__ = ["ClusterKeys", "controllers", "run", "select_controllers"]
