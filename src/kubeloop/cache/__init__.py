"""Informers: a local, indexed, compressed copy of what a cluster has, kept equal to it by one list and watch per kind."""

from kubeloop.cache.changes import Changes, ChangesForgotten, Deletion
from kubeloop.cache.consistency import InconsistentState
from kubeloop.cache.delta_fifo import DeltaFifo
from kubeloop.cache.delta_queue import DeltaQueue
from kubeloop.cache.describe import Description
from kubeloop.cache.dynamic import DynamicInformers, DynamicRegistration
from kubeloop.cache.event import Event, EventType
from kubeloop.cache.expiring_store import ExpiringStore
from kubeloop.cache.head import Head, Owner
from kubeloop.cache.index_sources import ByLabel, Sorted
from kubeloop.cache.informer import Informer
from kubeloop.cache.informers import Informers
from kubeloop.cache.lister import Lister, OutsideScope
from kubeloop.cache.object_keys import meta_namespace, meta_namespace_key, split_meta_namespace_key
from kubeloop.cache.object_store import IndexFunctionError, ObjectKeyError, ObjectStore
from kubeloop.cache.policy import WatchPolicy
from kubeloop.cache.query import UnreadPath
from kubeloop.cache.registration import Handler, HandlerFailed, InformerStopped, Registration
from kubeloop.cache.served_kinds import ServedKind
from kubeloop.cache.several import MulticlusterInformer, MulticlusterInformers, MulticlusterLister, MulticlusterRegistration, UnknownCluster
from kubeloop.cache.stats import FeedStats, HandlerStats, InformerStats
from kubeloop.cache.store import Snapshot, UnknownIndex
from kubeloop.cache.waiting import all_synced

__all__ = [
    "ByLabel",
    "Changes",
    "ChangesForgotten",
    "Deletion",
    "DeltaFifo",
    "DeltaQueue",
    "Description",
    "DynamicInformers",
    "DynamicRegistration",
    "Event",
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
    "InformerStats",
    "InformerStopped",
    "Informers",
    "Lister",
    "MulticlusterInformer",
    "MulticlusterInformers",
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
