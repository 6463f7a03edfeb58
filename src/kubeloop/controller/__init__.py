"""Controllers: say what an object wants of the world in ``reconcile``; informers, queue, workers and retries are done for you."""

from kubeloop.controller.declaring.controller import Controller, ControllerBase, KeyController
from kubeloop.controller.declaring.declaration import DeclarationError
from kubeloop.controller.declaring.surroundings import Surroundings
from kubeloop.controller.events import EventRecorder
from kubeloop.controller.managing.manager import Manager, ManagerError
from kubeloop.controller.ownership import OwnershipError, controller_of, is_controlled_by, set_controller_reference, set_owner_reference
from kubeloop.controller.running.result import Result, TerminalError
from kubeloop.controller.running.runnable import Runnable, RunnerStats
from kubeloop.controller.running.workers import ReconcileCounts
from kubeloop.controller.triggers.predicates import (
    Predicate,
    deletion,
    generation_changed,
    labels_changed,
    labels_match,
    path_changed,
    resource_version_changed,
)
from kubeloop.controller.triggers.watch import Watch, to_controller, to_same_name

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
