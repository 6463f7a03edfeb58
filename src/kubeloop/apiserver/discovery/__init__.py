"""Discovery: which groups, versions and resources this server has."""

from kubeloop.apiserver.discovery.handler import Discovery

__all__ = ["Discovery"]
