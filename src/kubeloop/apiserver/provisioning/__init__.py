"""The objects that Kubernetes' own components keep in every cluster: default roles, flow control, local API services, the service CIDR."""

from kubeloop.apiserver.provisioning.provide import provide

__all__ = ["provide"]
