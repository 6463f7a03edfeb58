"""Informers: a local, indexed and compressed copy of the objects of a cluster, updated by one list and watch per kind."""

from kubeloop.cache.blobs.head import Head, Owner
from kubeloop.cache.deltas import DeltaFifo, DeltaQueue
from kubeloop.cache.diagnostics.describe import Description
from kubeloop.cache.diagnostics.stats import FeedStats, HandlerStats, InformerStats
from kubeloop.cache.handlers.event import EventType, InformerEvent
from kubeloop.cache.handlers.registration import Handler, HandlerFailed, Registration
from kubeloop.cache.informer import Informer
from kubeloop.cache.informers import InformerFactory
from kubeloop.cache.lister.changes import ChangeSet, ChangesForgotten, Deletion
from kubeloop.cache.lister.lister import Lister, OutsideScope
from kubeloop.cache.lister.query import UnreadPath
from kubeloop.cache.multicluster.dynamic import DynamicInformers, DynamicRegistration, ServedKind
from kubeloop.cache.multicluster.several import (
    MulticlusterInformer,
    MulticlusterInformerFactory,
    MulticlusterLister,
    MulticlusterRegistration,
    UnknownCluster,
)
from kubeloop.cache.reflector.initial_state import InconsistentState
from kubeloop.cache.reflector.steps import WatchPolicy
from kubeloop.cache.standalone import (
    ExpiringStore,
    IndexFunctionError,
    ObjectKeyError,
    ObjectStore,
    meta_namespace,
    meta_namespace_key,
    split_meta_namespace_key,
)
from kubeloop.cache.store.index_sources import ByLabel, Sorted
from kubeloop.cache.store.store import Snapshot, UnknownIndex
from kubeloop.cache.tasks import InformerStopped, all_synced

__all__ = [
    "ByLabel",
    "ChangeSet",
    "ChangesForgotten",
    "Deletion",
    "DeltaFifo",
    "DeltaQueue",
    "Description",
    "DynamicInformers",
    "DynamicRegistration",
    "EventType",
    "ExpiringStore",
    "FeedStats",
    "Handler",
    "HandlerFailed",
    "HandlerStats",
    "Head",
    "InconsistentState",
    "IndexFunctionError",
    "Informer",
    "InformerEvent",
    "InformerFactory",
    "InformerStats",
    "InformerStopped",
    "Lister",
    "MulticlusterInformer",
    "MulticlusterInformerFactory",
    "MulticlusterLister",
    "MulticlusterRegistration",
    "ObjectKeyError",
    "ObjectStore",
    "OutsideScope",
    "Owner",
    "Registration",
    "ServedKind",
    "Snapshot",
    "Sorted",
    "UnknownCluster",
    "UnknownIndex",
    "UnreadPath",
    "WatchPolicy",
    "all_synced",
    "meta_namespace",
    "meta_namespace_key",
    "split_meta_namespace_key",
]
