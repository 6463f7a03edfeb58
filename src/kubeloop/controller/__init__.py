"""Controllers: say what an object wants of the world in ``reconcile``; informers, queue, workers and retries are done for you."""

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

__all__ = [
    "CacheReader",
    "Channel",
    "Controller",
    "ControllerBase",
    "DeclarationError",
    "EventRecorder",
    "KeyController",
    "KeyMap",
    "Manager",
    "ManagerError",
    "OwnershipError",
    "Owns",
    "Predicate",
    "ReconcileCounts",
    "Result",
    "Runnable",
    "RunnerStats",
    "SourceError",
    "Surroundings",
    "TerminalError",
    "Watch",
    "annotations_changed",
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
    "to_field",
    "to_index",
    "to_label",
    "to_owner",
    "to_same_name",
]
