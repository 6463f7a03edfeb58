"""The Kubernetes API with typed objects: verbs, lists, watches, discovery and REST mapping, over one transport."""

from kubeloop.client.client import Client
from kubeloop.client.conflict import DEFAULT_BACKOFF, DEFAULT_RETRY, Retries, retry_on_conflict, retry_on_error
from kubeloop.client.lists import ListCall, ObjectList
from kubeloop.client.managed_fields import extract
from kubeloop.client.mapper import ALL_NAMESPACES, Mapper, ResourceMapping
from kubeloop.client.options import DeleteOptions, ListOptions, Propagation, WatchOptions, WriteOptions
from kubeloop.client.selector_text import Fields, Labels
from kubeloop.client.verbs.delete import DeleteResult
from kubeloop.client.verbs.subresources import Subresource
from kubeloop.client.verbs.update_with_retry import CreateOrUpdateResult, OperationResult
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
