"""How urgent a change is: what a person or another program has just done comes before what a restart or a resync brings up."""

from __future__ import annotations

from typing import Any

from kubeloop.cache import Event, EventType
from kubeloop.workqueue import LOW_PRIORITY


def priority_of(event: Event[Any]) -> int:
    """``LOW_PRIORITY`` (-100) for objects of the first list, resyncs, and updates that changed nothing; 0 for all else.

    Source: controller-runtime pkg/handler (behaviour R216).
    """
    kind = event.type
    if kind is EventType.UPDATED:
        old = event.old
        return LOW_PRIORITY if old is not None and old.resource_version == event.head.resource_version else 0
    return LOW_PRIORITY if event.initial or kind is EventType.RESYNC else 0
