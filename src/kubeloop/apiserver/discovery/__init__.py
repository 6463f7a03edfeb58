"""Discovery: documents with the groups, versions and resources of the server."""

from kubeloop.apiserver.discovery.handler import Discovery

__all__ = ["Discovery"]
