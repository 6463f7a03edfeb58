"""The Kubernetes API with typed objects: verbs, lists, watches, discovery and REST mapping, over one transport."""

from kubeloop.client.client import Client
from kubeloop.client.conflict import DEFAULT_BACKOFF, DEFAULT_RETRY, Retries, retry_on_conflict, retry_on_error
from kubeloop.client.lists import ListCall, ObjectList
from kubeloop.client.mapper import Mapper
from kubeloop.client.mapping import ALL_NAMESPACES, ResourceMapping
from kubeloop.client.options import DeleteOptions, ListOptions, Propagation, WatchOptions, WriteOptions
from kubeloop.client.ownership.extract import extract
from kubeloop.client.selector_text import Fields, Labels
from kubeloop.client.subresource import Subresource
from kubeloop.client.verbs.changing import CreateOrUpdateResult, OperationResult
from kubeloop.client.verbs.deleting import DeleteResult
from kubeloop.client.watches import Event, Watch
from kubeloop.client.write_hooks import Write

__all__ = [
    "ALL_NAMESPACES",
    "DEFAULT_BACKOFF",
    "DEFAULT_RETRY",
    "Client",
    "CreateOrUpdateResult",
    "DeleteOptions",
    "DeleteResult",
    "Event",
    "Fields",
    "Labels",
    "ListCall",
    "ListOptions",
    "Mapper",
    "ObjectList",
    "OperationResult",
    "Propagation",
    "ResourceMapping",
    "Retries",
    "Subresource",
    "Watch",
    "WatchOptions",
    "Write",
    "WriteOptions",
    "extract",
    "retry_on_conflict",
    "retry_on_error",
]
