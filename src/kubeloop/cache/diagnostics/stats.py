"""Statistics of one informer at one moment, which ``describe``, ``dump`` and ``metrics`` show. Reads counters, changes nothing.

They may be read in any thread; counters that change meanwhile may then be microseconds apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.handlers.handler_meter import HandlerMeter
from kubeloop.cache.pipeline import ReflectorTarget
from kubeloop.cache.scope import InformerScope
from kubeloop.cache.store.store import Snapshot
from kubeloop.meta import kind_info

#: Sample size for caches of more than twice so many objects: adding up a million would take a second.
SAMPLE = 5_000


@dataclass(frozen=True, slots=True)
class FeedStats:
    """State of one list and watch of an informer. Informers of several namespaces have one for each.

    ``failure`` is the text of the last request's error and ``reason`` the error's class name; both are "" while requests succeed.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     pods = informers.for_kind(Pod)
        ...     await pods.wait_synced()
        ...     feed = pods.stats.feeds[0]
        ...     print(feed.synced, feed.failure or "no failure")
        True no failure
    """

    namespace: str | None
    synced: bool
    resource_version: str
    watching: bool
    watches: int
    failure: str
    lists: Mapping[str, int]
    restarts: Mapping[str, int]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HandlerStats:
    """Statistics of one handler: its waiting events and the times of its calls, in seconds.

    ``pending``: number of waiting events; ``oldest``: how long the first of them has waited. ``running``: duration so far of the current
    call, with the object ``key``. ``slow``: number of calls of a plain function that blocked the event loop for more than
    ``HandlerMeter.limit`` seconds. ``merged``: number of events that were merged into a later one.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     pods = informers.for_kind(Pod)
        ...     registration = pods.on_event(added=print, name="printer")
        ...     await registration.wait_synced()
        ...     print([(handler.name, handler.calls) for handler in pods.stats.handlers])
        [('printer', 0)]
    """

    name: str
    synced: bool
    pending: int
    oldest: float
    key: str
    running: float
    calls: int
    failures: int
    seconds: float
    longest: float
    slow: int
    merged: int


@dataclass(frozen=True, slots=True)
class InformerStats:
    """Statistics of one informer at one moment, as ``informer.stats`` returns them.

    Attributes:
        stored_bytes: Memory of the stored objects, without heads and indexes.
        raw_bytes: Size of the same objects as JSON.
        exact: True if all objects were measured, False if a sample of ``SAMPLE`` was.
        lag: Seconds since a server last confirmed the state of the cache by a list, an event or a bookmark; None: not yet. Servers send a
            bookmark each minute, so up to 60 s are normal.
        by_type: Number of changes since the start, by type.
        failures: Number of failed requests, by error.
        undecodable: Number of reads of an object that does not fit its type.
        transform_failures: Number of objects that are stored unchanged because the transform raised.
        reads: Number of queries.
        own_writes: Number of writes of this program that the watch has not confirmed yet.
        feeds: One for each list and watch.
        handlers: One for each handler.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     pods = informers.for_kind(Pod)
        ...     await pods.wait_synced()
        ...     print(pods.stats.objects, pods.stats.synced)
        0 True
    """

    cluster: str
    group: str
    version: str
    kind: str
    resource: str
    namespaces: tuple[str, ...]
    #: Selectors and stored parts of objects in short form; "" if the informer caches everything.
    selection: str
    description: str
    objects: int
    stored_bytes: int
    raw_bytes: int
    exact: bool
    held_bytes: int
    dictionaries: int
    by_type: Mapping[str, int]
    failures: Mapping[str, int]
    undecodable: int
    transform_failures: int
    reads: int
    own_writes: int
    queued: int
    lag: float | None
    synced: bool
    stopped: bool
    resource_version: str
    feeds: tuple[FeedStats, ...]
    handlers: tuple[HandlerStats, ...]

    @property
    def events(self) -> int:
        """Number of reported changes since the start."""
        return sum(self.by_type.values())

    @property
    def pending(self) -> int:
        """Number of events that wait for the slowest handler."""
        return max((handler.pending for handler in self.handlers), default=0)

    @property
    def ratio(self) -> float:
        """Ratio of the raw to the stored size of the objects; 1 for an empty cache."""
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0

    @property
    def lists(self) -> Mapping[str, int]:
        """Number of lists since the start, by reason."""
        return sum((Counter(feed.lists) for feed in self.feeds), Counter[str]())

    @property
    def restarts(self) -> Mapping[str, int]:
        """Number of watches that ended and were opened again, by reason."""
        return sum((Counter(feed.restarts) for feed in self.feeds), Counter[str]())

    @property
    def reconnects(self) -> int:
        """Number of watches that ended and were opened again."""
        return sum(self.restarts.values())

    @property
    def failure(self) -> str:
        """Error of the last request of a list or watch; "" if it succeeded."""
        return next((feed.failure for feed in self.feeds if feed.failure), "")

    @property
    def reason(self) -> str:
        """``failure`` in one word, such as ``Forbidden``."""
        return next((feed.reason for feed in self.feeds if feed.failure), "")


class Measured(Protocol):
    """The part of a handler's registration that is measured."""

    @property
    def name(self) -> str: ...
    @property
    def synced(self) -> bool: ...
    @property
    def meter(self) -> HandlerMeter: ...
    @property
    def pending(self) -> int: ...
    @property
    def merged(self) -> int: ...
    def oldest(self, now: float) -> float: ...


def identity(scope: InformerScope[Any], cluster: str, description: str) -> dict[str, Any]:
    """Return the fields of ``InformerStats`` that identify the informer."""
    info = kind_info(scope.kind)
    gvk = info.gvk
    return {
        "cluster": cluster,
        "group": gvk.group,
        "version": gvk.version,
        "kind": gvk.kind,
        "resource": info.plural or gvk.kind.lower(),
        "namespaces": scope.namespaces,
        "selection": _selection(scope),
        "description": description,
    }


def sizes(snapshot: Snapshot, archive: BlobStore) -> dict[str, Any]:
    """Return the fields of ``InformerStats`` about objects and bytes."""
    count = len(snapshot)
    sample = snapshot.sample(SAMPLE)
    share = count / len(sample) if sample else 1.0
    return {
        "objects": count,
        "stored_bytes": round(sum(head.stored_bytes for head in sample) * share),
        "raw_bytes": round(sum(head.raw_bytes for head in sample) * share),
        "exact": len(sample) == count,
        "held_bytes": archive.held_bytes,
        "dictionaries": archive.dictionaries,
    }


def feed_stats(feed: ReflectorTarget) -> FeedStats:
    listwatch = feed.listwatch
    return FeedStats(
        namespace=feed.namespace,
        synced=feed.synced,
        resource_version=feed.version,
        watching=listwatch.watching,
        watches=listwatch.watches,
        failure=str(feed.failure) if feed.failure is not None else "",
        lists={str(why): number for why, number in listwatch.lists.items()},
        restarts={str(why): number for why, number in listwatch.restarts.items()},
        reason=type(feed.failure).__name__ if feed.failure is not None else "",
    )


def handler_stats(handler: Measured, now: float) -> HandlerStats:
    meter = handler.meter
    return HandlerStats(
        name=handler.name,
        synced=handler.synced,
        pending=handler.pending,
        oldest=_oldest(handler, now),
        key=meter.key,
        running=meter.running(now),
        calls=meter.calls,
        failures=meter.failures,
        seconds=meter.seconds,
        longest=meter.longest,
        slow=meter.slow,
        merged=handler.merged,
    )


def _oldest(handler: Measured, now: float) -> float:
    try:
        return handler.oldest(now)
    except (RuntimeError, IndexError):  # another thread changed it meanwhile
        return 0.0


def _selection(scope: InformerScope[Any]) -> str:
    keep = scope.keep
    parts = [
        scope.label_selector or "",
        f"fields({scope.field_selector})" if scope.field_selector else "",
        "metadata only" if keep.metadata_only else "",
        f"only {', '.join(keep.fields)}" if keep.fields else "",
        f"transform {getattr(keep.transform, '__qualname__', 'function')}" if keep.transform is not None else "",
        "with managedFields" if keep.managed_fields else "",
    ]
    return "; ".join(part for part in parts if part)
