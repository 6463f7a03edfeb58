"""Surroundings: what a manager gives to all that it runs; and what one connected controller works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kubeloop.cache import Informer, Informers
from kubeloop.client import Client
from kubeloop.meta import ObjectKey, Resource
from kubeloop.timing import Clock

if TYPE_CHECKING:
    from kubeloop.controller.events import EventRecorder


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a manager gives to all that it runs. ``namespace`` None is all namespaces; ``grace``, ``sync_timeout``: the manager's."""

    client: Client
    informers: Informers
    clock: Clock
    namespace: str | None = None
    grace: float | None = None
    sync_timeout: float = 120.0


@dataclass(frozen=True, slots=True)
class Connection:
    """What one connected controller works with."""

    surroundings: Surroundings
    events: EventRecorder
    informers: Mapping[type[Resource], Informer[Any]]
    enqueue: Callable[[ObjectKey, float], None]
