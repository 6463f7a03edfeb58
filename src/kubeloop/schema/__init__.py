"""Schemas of built-in kinds and of custom resources: one node type, one shipped document, read on demand."""

from kubeloop.schema.document import (
    GroupInfo,
    ResourceInfo,
    Schemas,
    SubresourceInfo,
    builtin,
    openapi_paths,
    openapi_paths_of,
)
from kubeloop.schema.node import TypeSchema

__all__ = [
    "GroupInfo",
    "ResourceInfo",
    "Schemas",
    "SubresourceInfo",
    "TypeSchema",
    "builtin",
    "openapi_paths",
    "openapi_paths_of",
]
