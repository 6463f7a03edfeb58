"""The cache of one resource: one list and watch of the API server, and the watches of clients that it feeds."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from kubeloop.cache.reflector.event_decoder import ReflectorStore
from kubeloop.cache.reflector.listwatch import ListWatch
from kubeloop.cache.scope import InformerScope
from kubeloop.client import Client
from kubeloop.endpoints import api_errors
from kubeloop.meta import Unstructured
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.proxy.cached.event_log import EventLog
from kubeloop.proxy.cached.objects import CachedObjects
from kubeloop.proxy.cached.progress import CacheProgress
from kubeloop.proxy.cached.watch_group import GroupMember, WatchGroup
from kubeloop.proxy.cached.watchers import CachedWatch
from kubeloop.proxy.upstream import Upstream, parsed
from kubeloop.tasks import Supervisor, close_all
from kubeloop.timing import Clock

_LOG = logging.getLogger("kubeloop.proxy")

#: Seconds that the first request waits for the first list. Later the request is forwarded.
START: Final = 30.0
#: Watches from a version before the log that are forwarded in a minute. Such a watch ends after some minutes, and its client then resumes
#: from a version that the log has. More of them, as after the restart of a proxy with many clients, get 410: their clients list again, from
#: the cache, and the API server does not get a watch for each client.
EARLY_WATCHES: Final = 100
_EARLY_SECONDS: Final = 60.0
#: Clients that are written to before other connections get their turn: 2 to 4 ms.
_TURN: Final = 128

ResourceKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class CacheableResource:
    """A resource that the API server serves, with the names in its lists.

    Attributes:
        gvk: The kind of the objects.
        resource: The name in paths.
        namespaced: Objects have a namespace.
        list_kind: The kind of a list.
        is_custom: The API server knows no type of the objects: lists have ``continue`` in their metadata, and items their kind.
    """

    gvk: GroupVersionKind
    resource: str
    namespaced: bool
    list_kind: str
    is_custom: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.gvk.group}/{self.gvk.version}" if self.gvk.group else self.gvk.version

    @property
    def path(self) -> str:
        """The path of all objects."""
        return f"{_prefix(self.gvk.group, self.gvk.version)}/{self.resource}"

    @property
    def is_pods(self) -> bool:
        return (self.gvk.group, self.gvk.version, self.resource) == ("", "v1", "pods")


async def find_resource(upstream: Upstream, key: ResourceKey) -> CacheableResource | None:
    """Return a resource by group, version and name; None if the API server does not serve it, or not for list and watch.

    Raises:
        ApiError: The API server sent no response, or refused the proxy's own user.
    """
    group, version, resource = key
    accept = [("Accept", "application/json")]
    try:
        found = parsed(await upstream.read(_prefix(group, version), accept))
        served = next((each for each in found.get("resources") or () if each.get("name") == resource), None)
        if served is None or not {"list", "watch"}.issubset(served.get("verbs") or ()):
            return None
        gvk = GroupVersionKind(served.get("group") or group, served.get("version") or version, served["kind"])
        if (gvk.group, gvk.version) != (group, version):
            return None
        result = CacheableResource(gvk, resource, bool(served.get("namespaced")), "")
        listed = parsed(await upstream.read(f"{result.path}?limit=1", accept))
    except ApiError as error:
        if error.status.code in (403, 404, 405):
            return None
        raise
    is_custom = "continue" in (listed.get("metadata") or {}) if not listed.get("items") else "kind" in listed["items"][0]
    return CacheableResource(gvk, resource, result.namespaced, str(listed.get("kind") or ""), is_custom)


class ReflectorSource(Protocol):
    """A list and watch that fills a store until it is cancelled."""

    @property
    def watching(self) -> bool:
        """Whether a watch is open."""

    async def run(self, store: ReflectorStore) -> None:
        """Fill a store."""


def list_watch(client: Client, served: CacheableResource, clock: Clock) -> ListWatch:
    """Return the list and watch of all objects of a resource."""
    kind = Unstructured.for_kind(served.api_version, served.gvk.kind, plural=served.resource, namespaced=served.namespaced)
    return ListWatch(client, InformerScope(kind=kind), None, clock, random.Random())


class CachedResource:
    """The cache of one resource.

    Guarantees
        The API server has at most one list and watch, for any number of clients. When its connection breaks it is continued, and the
        watches of clients stay.

    Args:
        source: The list and watch at the API server.
        upstream: The API server, for confirmations.
        served: The resource.
        clock: Measures all times.
        tasks: Owns the list and watch.
        log: The log of changes; None: a log of the default size.
    """

    def __init__(
        self,
        source: ReflectorSource,
        upstream: Upstream,
        served: CacheableResource,
        clock: Clock,
        tasks: Supervisor,
        log: EventLog | None = None,
    ) -> None:
        self.served = served
        self.kind = served.gvk
        self._clock = clock
        self.objects = CachedObjects(served.gvk, self.distribute, lambda: self.expire(_restarted()), log)
        self.progress = CacheProgress(upstream, served.path, self.objects, clock)
        self._watchers: set[CachedWatch] = set()
        self._groups: dict[object, WatchGroup] = {}
        self._behind: dict[WatchGroup, None] = {}
        self._distributing = False
        #: Number of watches from a version before the log, by what became of them: forwarded or expired.
        self.early_watches: Counter[str] = Counter()
        self._early_begin, self._early_number = clock.now(), 0
        self.used = clock.now()
        self._source = source
        self._tasks = tasks.child()
        name = f"{served.resource}.{served.gvk.group}" if served.gvk.group else served.resource
        self._tasks.start(partial(self._source.run, self.objects), name="proxy-cache", subject=name)

    @property
    def watchers(self) -> int:
        """Number of watches of clients."""
        return len(self._watchers)

    @property
    def watching(self) -> bool:
        """Whether a watch at the API server is open."""
        return self._source.watching

    @property
    def connected(self) -> bool:
        """Whether the last request of the list and watch succeeded."""
        return self.objects.error is None

    async def ready(self) -> bool:
        """Wait for the first list. Return False if it failed or takes too long; then requests are forwarded."""
        self.used = self._clock.now()
        objects = self.objects
        if objects.synced:
            return True
        await objects.wait(self._clock, START, lambda: objects.synced or objects.unusable or objects.error is not None)
        return objects.synced

    def forwards_early_watch(self, version: int) -> bool:
        """Return whether a watch has to be forwarded because it continues from a version before the log.

        The API server may have the changes since: a client may have got the version from it, by a page or a Table, before this cache began.
        """
        if self.objects.log.after(version) is not None:
            return False
        now = self._clock.now()
        if now - self._early_begin >= _EARLY_SECONDS:
            self._early_begin, self._early_number = now, 0
        self._early_number += 1
        forwarded = self._early_number <= EARLY_WATCHES
        self.early_watches["forwarded" if forwarded else "expired"] += 1
        return forwarded

    async def close(self) -> None:
        """End the list and watch, and all watches of clients."""
        self.expire(_restarted())
        await close_all(self._tasks.stop, self.progress.close)

    # ------------------------------------------------------------------------------------------------------------ watchers

    def group(self, key: object, make: Callable[[], WatchGroup]) -> WatchGroup:
        """Return the watches that see the same, by a key that is equal for them. ``make`` creates the first one's group."""
        found = self._groups.get(key)
        if found is None or found.failure is not None:
            found = self._groups[key] = make()
        return found

    def add(self, watcher: CachedWatch, group: WatchGroup) -> None:
        """Add a watch."""
        self._watchers.add(watcher)
        group.watchers += 1

    def remove(self, watcher: CachedWatch) -> None:
        """Remove a watch, and its group after the last one."""
        if watcher not in self._watchers:
            return
        self._watchers.discard(watcher)
        self.used = self._clock.now()
        group = watcher.group
        group.watchers -= 1
        if not group.watchers:
            for key in [key for key, each in self._groups.items() if each is group]:
                del self._groups[key]

    def expire(self, error: ApiError | None = None) -> int:
        """End all watches of clients with an error, by default because the rules have changed. Return their number."""
        ended = list(self._watchers)
        for watcher in ended:
            watcher.expire(error)
        return len(ended)

    def distribute(self) -> None:
        """Evaluate the new changes for each group, and begin to write them to the clients."""
        for group in [*self._groups.values()]:
            if group.evaluate():
                self._behind[group] = None
        if self._behind and not self._distributing:
            self._distributing = True
            asyncio.get_running_loop().call_soon(self._next_turn, [])

    def _next_turn(self, waiting: list[GroupMember]) -> None:
        """Write to the next clients, and leave other connections their turn."""
        for _ in range(_TURN):
            if not waiting:
                group = next(iter(self._behind), None)
                if group is None:
                    self._distributing = False
                    return
                del self._behind[group]
                waiting = [*group.idle]
                if not waiting:
                    group.settle()
                    continue
            watcher = waiting.pop()
            watcher.deliver()
            if not waiting and watcher.group not in self._behind:
                watcher.group.settle()
        asyncio.get_running_loop().call_soon(self._next_turn, waiting)


def _restarted() -> ApiError:
    return api_errors.gone("the proxy's cache has begun again; list the objects again")


def _prefix(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"
