"""PodSecurity: pods keep to the Pod Security Standards that their namespace's labels name."""

from kubeloop.apiserver.admission.pod_security.plugin import PodSecurity

__all__ = ["PodSecurity"]
