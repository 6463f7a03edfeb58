"""Controllers: implement the desired state in ``reconcile``; informers, queue, workers and retries are provided."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kubeloop.controller.builder.context import RunnableContext
from kubeloop.controller.builder.controller import Controller, ControllerBase, KeyController
from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.events import EventRecorder
from kubeloop.controller.handler.map_funcs import MapFunc, to_controller, to_field, to_index, to_label, to_owner, to_same_name
from kubeloop.controller.handler.predicates import (
    Predicate,
    annotations_changed,
    deletion,
    generation_changed,
    labels_changed,
    labels_match,
    path_changed,
    resource_version_changed,
)
from kubeloop.controller.handler.watch import Channel, Owns, SourceError, WatchedKind
from kubeloop.controller.manager.manager import Manager, ManagerError
from kubeloop.controller.ownership import OwnershipError, controller_of, is_controlled_by, set_controller_reference, set_owner_reference
from kubeloop.controller.reader.reader import CacheReader
from kubeloop.controller.result import Result, TerminalError
from kubeloop.controller.runner.runnable import ReconcileCounts, Runnable, RunnerStats

if TYPE_CHECKING:
    from kubeloop.controller.children.children import Children
    from kubeloop.controller.children.desired import UnplacedChild
    from kubeloop.controller.children.drift import Drift, find_drift
    from kubeloop.controller.children.readiness import ChildrenState, state_of, wait_for_children
    from kubeloop.controller.children.report import ChildOutcome, ChildrenFailed, ChildrenReport, ForeignChild
    from kubeloop.controller.controllerutil.conditions import (
        ConditionsError,
        ConditionView,
        get_condition,
        has_condition,
        remove_condition,
        set_condition,
    )
    from kubeloop.controller.controllerutil.finalizers import FinalizerError, add_finalizer, has_finalizer, remove_finalizer
    from kubeloop.controller.controllerutil.status_writer import StatusError, StatusWrite, StatusWriter, WriteBackoff
    from kubeloop.controller.decorators.decorators import UNKNOWN, Unknown, every, on_change, on_create, on_delete, on_resume
    from kubeloop.controller.decorators.handler_controller import HandlerController
    from kubeloop.controller.errors import GraceExceeded
    from kubeloop.controller.manager.background import Background, NotRunnableError
    from kubeloop.controller.manager.clusters import OnCluster, OnEachCluster
    from kubeloop.controller.manager.endpoints import Endpoints, Unhealthy
    from kubeloop.controller.reader.reader import CacheScope, KindCacheScope

__all__ = [
    "UNKNOWN",
    "Background",
    "CacheReader",
    "CacheScope",
    "Channel",
    "ChildOutcome",
    "Children",
    "ChildrenFailed",
    "ChildrenReport",
    "ChildrenState",
    "ConditionView",
    "ConditionsError",
    "Controller",
    "ControllerBase",
    "DeclarationError",
    "Drift",
    "Endpoints",
    "EventRecorder",
    "FinalizerError",
    "ForeignChild",
    "GraceExceeded",
    "HandlerController",
    "KeyController",
    "KindCacheScope",
    "Manager",
    "ManagerError",
    "MapFunc",
    "NotRunnableError",
    "OnCluster",
    "OnEachCluster",
    "OwnershipError",
    "Owns",
    "Predicate",
    "ReconcileCounts",
    "Result",
    "Runnable",
    "RunnableContext",
    "RunnerStats",
    "SourceError",
    "StatusError",
    "StatusWrite",
    "StatusWriter",
    "TerminalError",
    "Unhealthy",
    "Unknown",
    "UnplacedChild",
    "WatchedKind",
    "WriteBackoff",
    "add_finalizer",
    "annotations_changed",
    "controller_of",
    "deletion",
    "every",
    "find_drift",
    "generation_changed",
    "get_condition",
    "has_condition",
    "has_finalizer",
    "is_controlled_by",
    "labels_changed",
    "labels_match",
    "on_change",
    "on_create",
    "on_delete",
    "on_resume",
    "path_changed",
    "remove_condition",
    "remove_finalizer",
    "resource_version_changed",
    "set_condition",
    "set_controller_reference",
    "set_owner_reference",
    "state_of",
    "to_controller",
    "to_field",
    "to_index",
    "to_label",
    "to_owner",
    "to_same_name",
    "wait_for_children",
]

#: Public name -> its module. These modules are loaded at the first access, so that rarely used ones do not slow down the start.
_LATER = {
    "Unhealthy": "kubeloop.controller.manager.endpoints",
    "OnEachCluster": "kubeloop.controller.manager.clusters",
    "OnCluster": "kubeloop.controller.manager.clusters",
    "NotRunnableError": "kubeloop.controller.manager.background",
    "KindCacheScope": "kubeloop.controller.reader.reader",
    "GraceExceeded": "kubeloop.controller.errors",
    "Endpoints": "kubeloop.controller.manager.endpoints",
    "CacheScope": "kubeloop.controller.reader.reader",
    "Background": "kubeloop.controller.manager.background",
    "Children": "kubeloop.controller.children.children",
    "Drift": "kubeloop.controller.children.drift",
    "find_drift": "kubeloop.controller.children.drift",
    "ChildOutcome": "kubeloop.controller.children.report",
    "ChildrenFailed": "kubeloop.controller.children.report",
    "ChildrenReport": "kubeloop.controller.children.report",
    "ForeignChild": "kubeloop.controller.children.report",
    "ChildrenState": "kubeloop.controller.children.readiness",
    "state_of": "kubeloop.controller.children.readiness",
    "wait_for_children": "kubeloop.controller.children.readiness",
    "UnplacedChild": "kubeloop.controller.children.desired",
    "ConditionsError": "kubeloop.controller.controllerutil.conditions",
    "ConditionView": "kubeloop.controller.controllerutil.conditions",
    "get_condition": "kubeloop.controller.controllerutil.conditions",
    "has_condition": "kubeloop.controller.controllerutil.conditions",
    "remove_condition": "kubeloop.controller.controllerutil.conditions",
    "set_condition": "kubeloop.controller.controllerutil.conditions",
    "FinalizerError": "kubeloop.controller.controllerutil.finalizers",
    "add_finalizer": "kubeloop.controller.controllerutil.finalizers",
    "has_finalizer": "kubeloop.controller.controllerutil.finalizers",
    "remove_finalizer": "kubeloop.controller.controllerutil.finalizers",
    "StatusError": "kubeloop.controller.controllerutil.status_writer",
    "StatusWrite": "kubeloop.controller.controllerutil.status_writer",
    "StatusWriter": "kubeloop.controller.controllerutil.status_writer",
    "WriteBackoff": "kubeloop.controller.controllerutil.status_writer",
    "UNKNOWN": "kubeloop.controller.decorators.decorators",
    "Unknown": "kubeloop.controller.decorators.decorators",
    "every": "kubeloop.controller.decorators.decorators",
    "on_change": "kubeloop.controller.decorators.decorators",
    "on_create": "kubeloop.controller.decorators.decorators",
    "on_delete": "kubeloop.controller.decorators.decorators",
    "on_resume": "kubeloop.controller.decorators.decorators",
    "HandlerController": "kubeloop.controller.decorators.handler_controller",
}


def __getattr__(name: str) -> Any:
    home = _LATER.get(name)
    if home is None:
        from kubeloop.meta.missing_names import missing_name

        raise missing_name(__name__, name)
    return getattr(importlib.import_module(home), name)
