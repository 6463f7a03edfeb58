"""Kubernetes events that a controller records about an object, shown by ``kubectl describe`` and ``kubectl events``."""

from kubeloop.controller.events.correlation import EventLimits
from kubeloop.controller.events.occurrence import EventSubject, EventType, Occurrence
from kubeloop.controller.events.recorder import FLUSH, EventRecorder
from kubeloop.controller.events.sender import QUEUE
from kubeloop.controller.events.sinks import CoreEvents, EventSink, SeriesEvents

__all__ = [
    "FLUSH",
    "QUEUE",
    "CoreEvents",
    "EventLimits",
    "EventRecorder",
    "EventSink",
    "EventSubject",
    "EventType",
    "Occurrence",
    "SeriesEvents",
]
