"""The Kubernetes API with typed objects: verbs, lists, watches, discovery and REST mapping, over one transport."""

from kubeloop.client.client import Client
from kubeloop.client.conflict import retry_on_conflict
from kubeloop.client.lists import ListCall, ObjectList
from kubeloop.client.mapper import Mapper
from kubeloop.client.mapping import ResourceMapping
from kubeloop.client.options import DeleteOptions, ListOptions, Propagation, WatchOptions, WriteOptions
from kubeloop.client.selector_text import Fields, Labels
from kubeloop.client.watches import Event, Watch
from kubeloop.client.writes import Write

__all__ = [
    "Client",
    "DeleteOptions",
    "Event",
    "Fields",
    "Labels",
    "ListCall",
    "ListOptions",
    "Mapper",
    "ObjectList",
    "Propagation",
    "ResourceMapping",
    "Watch",
    "WatchOptions",
    "Write",
    "WriteOptions",
    "retry_on_conflict",
]
