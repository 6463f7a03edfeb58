"""The built-in controllers of a Kubernetes control plane, as far as tests and demos need them: ordinary users of ``kubeloop.controller``.

They know the API server only through its API; any conforming server will do.
"""

from kubeloop.controlplane.run import ClusterKeys, controllers, run

__all__ = ["ClusterKeys", "controllers", "run"]
