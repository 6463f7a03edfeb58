"""Events: what a controller tells users about an object, as ``kubectl describe`` and ``kubectl events`` show it."""

from kubeloop.controller.events.correlation import Limits
from kubeloop.controller.events.occurrence import EventType, Occurrence, Subject
from kubeloop.controller.events.recorder import FLUSH, EventRecorder
from kubeloop.controller.events.sender import QUEUE
from kubeloop.controller.events.sinks import CoreEvents, EventSink, SeriesEvents

__all__ = ["FLUSH", "QUEUE", "CoreEvents", "EventRecorder", "EventSink", "EventType", "Limits", "Occurrence", "SeriesEvents", "Subject"]
