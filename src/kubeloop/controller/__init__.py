"""Controllers: say what an object wants of the world in ``reconcile``; informers, queue, workers and retries are done for you."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kubeloop.controller.declaring.controller import Controller, ControllerBase, KeyController
from kubeloop.controller.declaring.declaration import DeclarationError
from kubeloop.controller.declaring.surroundings import Surroundings
from kubeloop.controller.events import EventRecorder
from kubeloop.controller.managing.manager import Manager, ManagerError
from kubeloop.controller.ownership import OwnershipError, controller_of, is_controlled_by, set_controller_reference, set_owner_reference
from kubeloop.controller.reading.reader import CacheReader
from kubeloop.controller.running.outcome import ReconcileCounts
from kubeloop.controller.running.result import Result, TerminalError
from kubeloop.controller.running.runnable import Runnable, RunnerStats
from kubeloop.controller.triggers.mapping import KeyMap, to_controller, to_field, to_index, to_label, to_owner, to_same_name
from kubeloop.controller.triggers.predicates import (
    Predicate,
    annotations_changed,
    deletion,
    generation_changed,
    labels_changed,
    labels_match,
    path_changed,
    resource_version_changed,
)
from kubeloop.controller.triggers.source import Channel, SourceError
from kubeloop.controller.triggers.watch import Owns, Watch

if TYPE_CHECKING:
    from kubeloop.controller.children.children import Children
    from kubeloop.controller.children.drift import Drift, find_drift
    from kubeloop.controller.children.report import ChildOutcome, ChildrenFailed, ChildrenReport, ForeignChild
    from kubeloop.controller.children.waiting import ChildrenState, state_of, wait_for_children
    from kubeloop.controller.children.wanted import UnplacedChild
    from kubeloop.controller.managing.background import Background, NotRunnableError
    from kubeloop.controller.managing.clusters import OnCluster, OnEachCluster
    from kubeloop.controller.managing.endpoints import Endpoints
    from kubeloop.controller.managing.errors import GraceExceeded
    from kubeloop.controller.managing.probes import Unhealthy
    from kubeloop.controller.managing.scope import CacheScope, KindScope
    from kubeloop.controller.objects.conditions import (
        ConditionsError,
        ConditionView,
        get_condition,
        has_condition,
        remove_condition,
        set_condition,
    )
    from kubeloop.controller.objects.finalizers import FinalizerError, add_finalizer, has_finalizer, remove_finalizer
    from kubeloop.controller.objects.status_writer import StatusError, StatusWrite, StatusWriter
    from kubeloop.controller.objects.write_backoff import WriteBackoff
    from kubeloop.controller.shortcuts.decorators import UNKNOWN, Unknown, every, on_change, on_create, on_delete, on_resume
    from kubeloop.controller.shortcuts.handler_controller import HandlerController

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
    "KeyMap",
    "KindScope",
    "Manager",
    "ManagerError",
    "NotRunnableError",
    "OnCluster",
    "OnEachCluster",
    "OwnershipError",
    "Owns",
    "Predicate",
    "ReconcileCounts",
    "Result",
    "Runnable",
    "RunnerStats",
    "SourceError",
    "StatusError",
    "StatusWrite",
    "StatusWriter",
    "Surroundings",
    "TerminalError",
    "Unhealthy",
    "Unknown",
    "UnplacedChild",
    "Watch",
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

#: Loaded when first asked for: what only some programs use costs the others no start-up.
_LATER = {
    "Unhealthy": "kubeloop.controller.managing.probes",
    "OnEachCluster": "kubeloop.controller.managing.clusters",
    "OnCluster": "kubeloop.controller.managing.clusters",
    "NotRunnableError": "kubeloop.controller.managing.background",
    "KindScope": "kubeloop.controller.managing.scope",
    "GraceExceeded": "kubeloop.controller.managing.errors",
    "Endpoints": "kubeloop.controller.managing.endpoints",
    "CacheScope": "kubeloop.controller.managing.scope",
    "Background": "kubeloop.controller.managing.background",
    "Children": "kubeloop.controller.children.children",
    "Drift": "kubeloop.controller.children.drift",
    "find_drift": "kubeloop.controller.children.drift",
    "ChildOutcome": "kubeloop.controller.children.report",
    "ChildrenFailed": "kubeloop.controller.children.report",
    "ChildrenReport": "kubeloop.controller.children.report",
    "ForeignChild": "kubeloop.controller.children.report",
    "ChildrenState": "kubeloop.controller.children.waiting",
    "state_of": "kubeloop.controller.children.waiting",
    "wait_for_children": "kubeloop.controller.children.waiting",
    "UnplacedChild": "kubeloop.controller.children.wanted",
    "ConditionsError": "kubeloop.controller.objects.conditions",
    "ConditionView": "kubeloop.controller.objects.conditions",
    "get_condition": "kubeloop.controller.objects.conditions",
    "has_condition": "kubeloop.controller.objects.conditions",
    "remove_condition": "kubeloop.controller.objects.conditions",
    "set_condition": "kubeloop.controller.objects.conditions",
    "FinalizerError": "kubeloop.controller.objects.finalizers",
    "add_finalizer": "kubeloop.controller.objects.finalizers",
    "has_finalizer": "kubeloop.controller.objects.finalizers",
    "remove_finalizer": "kubeloop.controller.objects.finalizers",
    "StatusError": "kubeloop.controller.objects.status_writer",
    "StatusWrite": "kubeloop.controller.objects.status_writer",
    "StatusWriter": "kubeloop.controller.objects.status_writer",
    "WriteBackoff": "kubeloop.controller.objects.write_backoff",
    "UNKNOWN": "kubeloop.controller.shortcuts.decorators",
    "Unknown": "kubeloop.controller.shortcuts.decorators",
    "every": "kubeloop.controller.shortcuts.decorators",
    "on_change": "kubeloop.controller.shortcuts.decorators",
    "on_create": "kubeloop.controller.shortcuts.decorators",
    "on_delete": "kubeloop.controller.shortcuts.decorators",
    "on_resume": "kubeloop.controller.shortcuts.decorators",
    "HandlerController": "kubeloop.controller.shortcuts.handler_controller",
}


def __getattr__(name: str) -> Any:
    home = _LATER.get(name)
    if home is None:
        from kubeloop.meta.missing_names import missing_name

        raise missing_name(__name__, name)
    return getattr(importlib.import_module(home), name)
