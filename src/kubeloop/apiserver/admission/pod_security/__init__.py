"""PodSecurity: pods must satisfy the Pod Security Standard that the labels of their namespace name."""

from kubeloop.apiserver.admission.pod_security.plugin import PodSecurity

__all__ = ["PodSecurity"]
