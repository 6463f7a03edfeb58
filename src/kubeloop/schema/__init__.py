"""Schemas of built-in kinds and custom resources: one node type, and one shipped document that is read on demand."""

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
