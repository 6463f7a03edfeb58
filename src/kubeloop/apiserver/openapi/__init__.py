"""OpenAPI documents, versions 2 and 3, of everything that the server serves."""

from kubeloop.apiserver.openapi.handler import OpenAPI

__all__ = ["OpenAPI"]
