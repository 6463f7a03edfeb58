"""kubeloop: a typed Kubernetes client, informers, controllers, and an embedded API server to run and test them on.

The names below are loaded when they are first used, so that ``import kubeloop`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kubeloop.version import VERSION as __version__  # noqa: N811 - Python's usual name for it

if TYPE_CHECKING:
    from kubeloop.cache import Informer, InformerFactory, ObjectStore
    from kubeloop.client import ALL_NAMESPACES, Client
    from kubeloop.controller import Controller, EventRecorder, Manager, Result, TerminalError, set_controller_reference
    from kubeloop.meta import (
        AlreadyExists,
        ApiError,
        ConfigError,
        Conflict,
        DeadlineError,
        DecodeError,
        Expired,
        Forbidden,
        IncompleteObject,
        Invalid,
        KubeloopError,
        Model,
        NotFound,
        ObjectKey,
        ObjectMeta,
        PartialObject,
        Resource,
        TransportError,
        Unauthorized,
        UnknownKind,
        Unstructured,
        WaitFailed,
        custom_resource,
        replace,
    )
    from kubeloop.meta.program import run
    from kubeloop.testing import LocalCluster


_HOMES = {
    "cache": ("Informer", "InformerFactory", "ObjectStore"),
    "client": ("ALL_NAMESPACES", "Client"),
    "controller": ("Controller", "EventRecorder", "Manager", "Result", "TerminalError", "set_controller_reference"),
    "meta": (
        "AlreadyExists", "ApiError", "ConfigError", "Conflict", "DeadlineError", "DecodeError", "Expired", "Forbidden", "IncompleteObject",
        "Invalid", "KubeloopError", "Model", "NotFound", "ObjectKey", "ObjectMeta", "PartialObject", "Resource", "TransportError",
        "Unauthorized", "UnknownKind", "Unstructured", "WaitFailed", "custom_resource", "replace",
    ),
    "meta.program": ("run",),
    "testing": ("LocalCluster",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ALL_NAMESPACES",
    "AlreadyExists",
    "ApiError",
    "Client",
    "ConfigError",
    "Conflict",
    "Controller",
    "DeadlineError",
    "DecodeError",
    "EventRecorder",
    "Expired",
    "Forbidden",
    "IncompleteObject",
    "Informer",
    "InformerFactory",
    "Invalid",
    "KubeloopError",
    "LocalCluster",
    "Manager",
    "Model",
    "NotFound",
    "ObjectKey",
    "ObjectMeta",
    "ObjectStore",
    "PartialObject",
    "Resource",
    "Result",
    "TerminalError",
    "TransportError",
    "Unauthorized",
    "UnknownKind",
    "Unstructured",
    "WaitFailed",
    "__version__",
    "custom_resource",
    "replace",
    "run",
    "set_controller_reference",
]


if not TYPE_CHECKING:  # a type checker would let any misspelt name pass as Any

    def __getattr__(name: str) -> Any:
        home = _HOME_OF.get(name)
        if home is None:
            from kubeloop.meta.missing_names import missing_name

            raise missing_name(__name__, name)
        value = getattr(importlib.import_module(f"kubeloop.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
