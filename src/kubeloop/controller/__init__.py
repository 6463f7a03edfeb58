"""Controllers: say what an object wants of the world in ``reconcile``; informers, queue, workers and retries are done for you."""

from kubeloop.controller.controller import Controller, ControllerBase, KeyController, Surroundings
from kubeloop.controller.declaration import DeclarationError
from kubeloop.controller.events import EventRecorder
from kubeloop.controller.managing.manager import Manager, ManagerError
from kubeloop.controller.ownership import OwnershipError, controller_of, is_controlled_by, set_controller_reference, set_owner_reference
from kubeloop.controller.predicates import (
    Predicate,
    deletion,
    generation_changed,
    labels_changed,
    labels_match,
    path_changed,
    resource_version_changed,
)
from kubeloop.controller.result import Result, TerminalError
from kubeloop.controller.runner import Runnable, RunnerStats
from kubeloop.controller.watch import Watch, to_controller, to_same_name
from kubeloop.controller.workers import ReconcileCounts

__all__ = [
    "Controller",
    "ControllerBase",
    "DeclarationError",
    "EventRecorder",
    "KeyController",
    "Manager",
    "ManagerError",
    "OwnershipError",
    "Predicate",
    "ReconcileCounts",
    "Result",
    "Runnable",
    "RunnerStats",
    "Surroundings",
    "TerminalError",
    "Watch",
    "controller_of",
    "deletion",
    "generation_changed",
    "is_controlled_by",
    "labels_changed",
    "labels_match",
    "path_changed",
    "resource_version_changed",
    "set_controller_reference",
    "set_owner_reference",
    "to_controller",
    "to_same_name",
]
