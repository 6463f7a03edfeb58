"""kubeloop: a typed Kubernetes client, informers, controllers, and an embedded API server to run and test them on."""

__version__ = "0.1.0"
