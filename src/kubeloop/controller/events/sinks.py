"""Sinks: which API of which cluster events go to. Each has a memory of its own (behaviour J137)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from kubeloop.client import Client
from kubeloop.controller.events.correlation import CoreCorrelator, Correlator, Limits
from kubeloop.controller.events.series import SeriesCorrelator
from kubeloop.controller.events.writing import CoreWriter, SeriesWriter, Source, Writer
from kubeloop.meta.names import qualified_name
from kubeloop.timing import Clock


class EventSink(Protocol):
    """A place for events; anything with these two methods will do."""

    @property
    def api(self) -> str:
        """Its name in metrics."""

    def correlator(self, clock: Clock) -> Correlator:
        """A new memory: which occurrences are written, and which are only counted."""

    def writer(self, client: Client, source: Source) -> Writer:
        """Writes there on behalf of ``source``; ``client`` is the recorder's."""


@dataclass(frozen=True, slots=True)
class CoreEvents:
    """Events of core/v1: similar ones are combined, the same again is a count, too many about one object are dropped (``limits``).

    ``client`` None is that of the recorder.
    """

    client: Client | None = None
    limits: Limits = field(default_factory=Limits)
    api: ClassVar[str] = "v1"

    def correlator(self, clock: Clock) -> Correlator:
        return CoreCorrelator(self.limits, clock)

    def writer(self, client: Client, source: Source) -> Writer:
        return CoreWriter(self.client or client, source)


@dataclass(frozen=True, slots=True)
class SeriesEvents:
    """Events of events.k8s.io/v1: repetition is a series, written when it starts, each 30 min and when it is over.

    ``client`` None is that of the recorder.
    """

    client: Client | None = None
    api: ClassVar[str] = "events.k8s.io/v1"

    def correlator(self, clock: Clock) -> Correlator:
        return SeriesCorrelator(clock)

    def writer(self, client: Client, source: Source) -> Writer:
        """
        Raises:
            ValueError: the component is no qualified name, and the server would refuse every event.
        """
        wrong = qualified_name(source.component)
        if wrong:
            raise ValueError(f'"{source.component}" cannot be the reporting controller of an event: {"; ".join(wrong)}')
        return SeriesWriter(self.client or client, source)
