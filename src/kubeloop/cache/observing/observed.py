"""Observed: how people and monitoring look at the informers of a factory. What is not asked for is not imported and costs nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubeloop.cache.observing.describe import Description, dump
from kubeloop.cache.observing.stats import InformerStats
from kubeloop.meta.signals import on_signal
from kubeloop.transport import logger_with_context

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from kubeloop.cache.informer import Informer

_log = logger_with_context("kubeloop.cache")


class Observed(ABC):
    """What informers can be asked about themselves. See docs/observability.md."""

    #: Ends what was begun here, when the informers end.
    _endings: list[Callable[[], object]]

    @property
    @abstractmethod
    def cluster(self) -> str:
        """What keys, logs and metrics call the cluster."""

    @abstractmethod
    def __iter__(self) -> Iterator[Informer[Any]]:
        """The informers that there are now."""

    def measure(self) -> list[InformerStats]:
        """The numbers of this moment, of each informer."""
        return [informer.stats for informer in self]

    def describe(self) -> Description:
        """The moment as a table: ``print`` it, ``rich.print`` it, or leave it at the end of a notebook's cell."""
        return Description(self.measure())

    def dump(self) -> dict[str, Any]:
        """All numbers as a tree for ``json``. No object's contents; the name of an object only where a handler is at it."""
        return dump(self.measure())

    def dump_on_signal(self, number: int | None = None, to: Path | None = None) -> None:
        """From now until the informers end, a signal (SIGUSR1) writes ``dump()`` as a line of JSON to standard error, or to a file.

        The file is replaced each time, at once and as a whole, and is for its owner only.

        Raises:
            RuntimeError, ValueError: not in the main thread, the signal cannot be caught, or this system (Windows) has no SIGUSR1.
        """
        loop = asyncio.get_running_loop()
        if number is None:
            if not hasattr(signal, "SIGUSR1"):
                raise RuntimeError("this system has no SIGUSR1: give another signal (on Windows signal.SIGBREAK), or call dump() itself")
            number = signal.SIGUSR1
        undo = on_signal(signal.Signals(number), partial(self._write_dump, to))
        self._endings.append(lambda: loop.is_closed() or undo())

    def metrics(self, registry: CollectorRegistry | None = None, *, name: str = "kubeloop") -> None:
        """Show these informers in a Prometheus registry (None: prometheus_client's default one) until they end.

        ``name`` is a label of each series; it tells apart several factories for one cluster.

        Raises:
            ValueError: informers of that name and cluster are in the registry already, or the name is empty.
        """
        from kubeloop.cache.observing.metrics import metrics_of

        collector, cluster = metrics_of(registry), self.cluster
        collector.add(name, cluster, self)
        self._endings.append(lambda: collector.remove(name, cluster))

    def _end_observation(self) -> None:
        """The informers have ended."""
        endings, self._endings = self._endings, []
        for end in reversed(endings):  # a second handler of a signal brings back the first one
            end()

    def _write_dump(self, to: Path | None) -> None:
        text = json.dumps({"time": datetime.now(UTC).isoformat(), "cluster": self.cluster, **self.dump()}) + "\n"
        if to is None:
            sys.stderr.write(text)
            sys.stderr.flush()
            return
        try:
            beside = to.with_name(f".{to.name}.{os.getpid()}")
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(text)
            beside.replace(to)
        except OSError as error:
            _log.error("cannot write the dump to %s: %s", to, error.strerror or error)
