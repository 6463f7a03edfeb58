"""Informers: a local, indexed, compressed copy of what a cluster has, kept equal to it by one list and watch per kind."""

from kubeloop.cache.bare.expiring_store import ExpiringStore
from kubeloop.cache.bare.object_keys import meta_namespace, meta_namespace_key, split_meta_namespace_key
from kubeloop.cache.bare.object_store import IndexFunctionError, ObjectKeyError, ObjectStore
from kubeloop.cache.deltas.delta_fifo import DeltaFifo
from kubeloop.cache.deltas.delta_queue import DeltaQueue
from kubeloop.cache.documents.head import Head, Owner
from kubeloop.cache.handlers.event import Event, EventType
from kubeloop.cache.handlers.registration import Handler, HandlerFailed, InformerStopped, Registration
from kubeloop.cache.informer import Informer
from kubeloop.cache.informers import Informers
from kubeloop.cache.many.dynamic import DynamicInformers, DynamicRegistration
from kubeloop.cache.many.served_kinds import ServedKind
from kubeloop.cache.many.several import (
    MulticlusterInformer,
    MulticlusterInformers,
    MulticlusterLister,
    MulticlusterRegistration,
    UnknownCluster,
)
from kubeloop.cache.observing.describe import Description
from kubeloop.cache.observing.stats import FeedStats, HandlerStats, InformerStats
from kubeloop.cache.reading.changes import Changes, ChangesForgotten, Deletion
from kubeloop.cache.reading.lister import Lister, OutsideScope
from kubeloop.cache.reading.query import UnreadPath
from kubeloop.cache.reflector.consistency import InconsistentState
from kubeloop.cache.reflector.policy import WatchPolicy
from kubeloop.cache.running.waiting import all_synced
from kubeloop.cache.store.index_sources import ByLabel, Sorted
from kubeloop.cache.store.store import Snapshot, UnknownIndex

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
