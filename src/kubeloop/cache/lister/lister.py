"""Lister: reads the cache. It never sends a request, waits only in ``wait_fresh``, and yields to other tasks only in ``stream``."""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Generic, TypeVar

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.lister.changes import ChangeSet, Deletion, Deletions, newer
from kubeloop.cache.lister.freshness import Freshness
from kubeloop.cache.lister.query import Labels, Predicate, Value, Where, both, by_field, by_labels, field, selector_of
from kubeloop.cache.lister.view import CacheView
from kubeloop.cache.store.index import index_key
from kubeloop.cache.store.index_sources import ByLabel
from kubeloop.cache.store.sorted_index import Bound
from kubeloop.codec.gc_pause import gc_paused
from kubeloop.meta import KubeloopError, ObjectKey, Resource, Selector, Unstructured, kind_info
from kubeloop.meta.type_checks import described, described_word

__all__ = ["Labels", "Lister", "OutsideScope"]

R = TypeVar("R", bound=Resource)

#: Seconds of work after which ``stream`` yields to other tasks.
SLICE = 0.005
#: Number of heads that ``stream`` checks before it reads the clock again.
STRIDE = 64


class OutsideScope(KubeloopError):
    """A query about a namespace that the informer does not watch; an empty result would be wrong."""


class Lister(Generic[R]):
    """Reads the cache of one informer.

    Guarantees
        Each read decodes new objects, which belong to the caller: changing them does not change the cache.
        One call reads one moment of the cache. Only returned objects are decoded: queries read indexes, labels and heads.
        After a write through the informers' client has returned, no result is older than that write (limits: see ``MutationCache``).
        Every method that is not ``async`` may be called from any thread.

    Queries
        ``namespace``: one namespace, or None for all that are cached. ``label_selector``: a selector. ``field_selector``: values at paths
        that heads carry, all of which must match (``{"status.phase": "Running"}``), or a predicate of the head. A query uses an index over
        a label or path if there is one.

    Objects that do not fit their type
        They are left out of results with several objects, and logged once for each of their states; ``get`` of such an object raises.
        They are in the cache, in ``heads`` and in events; ``unstructured`` reads them.

    Cost
        About 25 us for each Pod returned; ``head`` and ``heads`` decode nothing. For results of many thousands of objects use ``stream``.

    Raises
        OutsideScope: a namespace that the informer does not watch. UnreadPath: a path that heads do not carry.
        UnknownIndex: no index of that name. ValueError: a malformed selector or path.
        TypeError: an argument has a wrong type; the message names the argument and valid values.

    Args:
        view: The cache.
        scope: The namespaces that the informer watches. Empty: all.
        version: Returns the resourceVersion of the cache.
        deletions: The recorded deletions, for ``changed_since``.
        freshness: Waits until the cache reaches a version.

    Example:
        >>> web = await client.create(ConfigMap(metadata=ObjectMeta(name="web", labels={"team": "shop"})))
        >>> async with InformerFactory(client) as informers:
        ...     lister = informers.for_kind(ConfigMap).lister
        ...     await informers.wait_synced()
        ...     print([found.metadata.name for found in lister.list(label_selector="team=shop")], lister.get("db"))
        ['web'] None
    """

    __slots__ = ("_deletions", "_freshness", "_scope", "_version", "_view")

    def __init__(
        self, view: CacheView[R], scope: tuple[str, ...], version: Callable[[], str], deletions: Deletions, freshness: Freshness
    ) -> None:
        self._view = view
        self._scope = scope
        self._version = version
        self._deletions = deletions
        self._freshness = freshness

    # ----------------------------------------------------------------------------------------------------------------- objects

    def get(self, name: str, namespace: str | None = None) -> R | None:
        """Return one object; None if it is not cached. Cluster-scoped kinds and informers of one namespace need no ``namespace``.

        Raises:
            DecodeError: the object does not fit its type.
        """
        head = self.head(name, namespace)
        return None if head is None else self._view.decode(head)

    def unstructured(self, name: str, namespace: str | None = None) -> Unstructured | None:
        """Return one object as a tree, even if it does not fit its type. None if it is not in the cache."""
        head = self.head(name, namespace)
        return None if head is None else self._view.unstructured(head)

    def by_key(self, key: ObjectKey) -> R | None:
        """Return the object with this key; None if it is not cached. The cluster of the key is ignored."""
        if not isinstance(key, ObjectKey):
            raise TypeError(f"key={described_word(key)} is not an ObjectKey; give one, as event.key is, or use get(name, namespace)")
        return self.get(key.name, key.namespace)

    def decoded(self, head: Head) -> R:
        """Return the object of a head, decoded in the state that the head describes.

        Raises:
            DecodeError: the object does not fit its type.
        """
        return self._view.decode(head)

    def list(
        self, namespace: str | None = None, label_selector: Labels | None = None, field_selector: Where | None = None
    ) -> builtins.list[R]:
        """Return all objects that match."""
        return self._decoded(self.heads(namespace, label_selector, field_selector))

    def each(self, namespace: str | None = None, label_selector: Labels | None = None, field_selector: Where | None = None) -> Iterator[R]:
        """Iterate over the objects of ``list``, as of the moment of the call; each is decoded when it is reached."""
        return self._decoding(self.heads(namespace, label_selector, field_selector))

    async def stream(
        self, namespace: str | None = None, label_selector: Labels | None = None, field_selector: Where | None = None
    ) -> AsyncIterator[R]:
        """Iterate like ``each``, but yield to other tasks after each 5 ms of work, including the caller's work between two objects.

        All objects are in their state at the request for the first one, however long the iteration takes.
        """
        decodable = self._view.decodable
        async for head in self.stream_heads(namespace, label_selector, field_selector):
            obj = decodable(head)
            if obj is not None:
                yield obj

    async def stream_heads(
        self, namespace: str | None = None, label_selector: Labels | None = None, field_selector: Where | None = None
    ) -> AsyncIterator[Head]:
        """Iterate over heads as ``stream`` does over objects, without decoding."""
        candidates, matches = self._candidates(namespace, label_selector, field_selector)
        heads = iter(candidates)
        clock = time.perf_counter
        until = clock() + SLICE
        while stride := builtins.list(islice(heads, STRIDE)):
            for head in stride if matches is None else filter(matches, stride):
                yield head
                if clock() >= until:
                    await asyncio.sleep(0)
                    until = clock() + SLICE
            if clock() >= until:
                await asyncio.sleep(0)
                until = clock() + SLICE

    def by_index(self, name: str, value: str | int | bool) -> builtins.list[R]:
        """Return the objects with this value in an index over a path, label or function; "" finds objects without a value at the path."""
        return self._decoded(self.heads_by_index(name, value))

    def by_field(self, path: str, value: Value, namespace: str | None = None) -> builtins.list[R]:
        """Return the objects with this value at a path that heads carry: ``list(field_selector={path: value})``."""
        return self.list(namespace, field_selector={path: value})

    def range(
        self, name: str, low: Bound | None = None, high: Bound | None = None, *, reverse: bool = False, limit: int | None = None
    ) -> builtins.list[R]:
        """Return objects in the order of a ``Sorted`` index, from ``low`` (included) to ``high`` (excluded).

        Args:
            name: Name of the index.
            low: Lowest sort value. None: no bound.
            high: The values end before this one. None: no bound.
            reverse: From the highest value down.
            limit: Maximum number of objects. None: all.

        Returns:
            The objects; one with several values is in the list once for each value.

        Raises:
            UnknownIndex: no index of that name, or one without order. ValueError: a negative limit.
            TypeError: the bounds cannot be compared with each other or with the values of the index, or an argument has a wrong type.
        """
        return self._decoded(self.heads_in_range(name, low, high, reverse=reverse, limit=limit))

    # ------------------------------------------------------------------------------------------------------ without decoding

    def head(self, name: str, namespace: str | None = None) -> Head | None:
        """Return the head of one object; None if it is not cached.

        Raises:
            ValueError: the kind is namespaced, the informer watches several namespaces, and ``namespace`` is missing.
            TypeError: the name or the namespace is not a string.
        """
        if not isinstance(name, str):
            raise TypeError(f"name={described(name)} is not a name; give the text that names the object, as head.name is")
        if namespace is None:
            if len(self._scope) != 1 and kind_info(self._view.kind).namespaced:
                watched = f"this informer watches {', '.join(self._scope) or 'all of them'}"
                raise ValueError(f'a namespace is needed to name one {self._view.kind.__name__} ("{name}"): {watched}')
            namespace = self._scope[0] if self._scope else ""
        self._check_text(namespace)
        return self._view.get(namespace, name)

    def heads(
        self, namespace: str | None = None, label_selector: Labels | None = None, field_selector: Where | None = None
    ) -> builtins.list[Head]:
        """Return the heads of all objects that match, without decoding."""
        if label_selector is None and field_selector is None:
            self._check_text(namespace)
            return self._view.heads(namespace)
        heads, matches = self._candidates(namespace, label_selector, field_selector)
        return builtins.list(heads if matches is None else filter(matches, heads))

    def heads_by_index(self, name: str, value: str | int | bool) -> builtins.list[Head]:
        """Return the heads of the objects that ``by_index`` finds, without decoding."""
        if not isinstance(name, str):
            raise TypeError(f"name={described(name)} is not an index; give the name that it has in informers.for_kind(..., indexes=...)")
        if not isinstance(value, str | int | float):
            raise TypeError(
                f'value={described(value)} of index "{name}": give one text, number or boolean; "" finds what has nothing at its path'
            )
        return self._view.by_index(name, index_key(value))

    def heads_in_range(
        self, name: str, low: Bound | None = None, high: Bound | None = None, *, reverse: bool = False, limit: int | None = None
    ) -> builtins.list[Head]:
        """Return the heads of the objects that ``range`` finds, without decoding.

        Args:
            name: See ``range``.
            low: See ``range``.
            high: See ``range``.
            reverse: See ``range``.
            limit: See ``range``.

        Raises:
            UnknownIndex, ValueError, TypeError: as ``range``.
        """
        for bound, value in (("low", low), ("high", high)):
            if value is not None and not isinstance(value, str | int | float | datetime):
                raise TypeError(
                    f"{bound}={described(value)} is not a bound; give a text, a number, a boolean, a time, or None for no bound"
                )
        if limit is not None and not isinstance(limit, int):
            raise TypeError(f"limit={described_word(limit)} is not a number; give at most how many objects are wanted, or None for all")
        return self._view.range(name, low, high, reverse, limit)

    def values(
        self, path: str, namespace: str | None = None, label_selector: Labels | None = None, field_selector: Where | None = None
    ) -> builtins.list[Any]:
        """Return the value of each object at a path that heads carry, in the order of ``heads``; None for an object without a value there.

        Args:
            path: The path, such as ``status.phase``.
            namespace: See ``list``.
            label_selector: See ``list``.
            field_selector: See ``list``.
        """
        read = field(path, self._view.attributes)
        return builtins.list(map(read, self.heads(namespace, label_selector, field_selector)))

    def index_values(self, name: str) -> builtins.list[str]:
        """Return the values of an index that at least one object has."""
        return self._view.index_values(name)

    def __len__(self) -> int:
        return len(self._view)

    # --------------------------------------------------------------------------------------------------------------------- time

    @property
    def resource_version(self) -> str:
        """The resourceVersion that the watch has reached; "" before the first list. Own writes may be newer."""
        return self._version()

    def changed_since(self, version: str) -> ChangeSet:
        """Return new, changed and deleted objects since a version: an earlier ``resource_version`` or ``ChangeSet.version`` of this lister.

        The result has ``heads`` of new and changed objects, in their present state; ``deleted`` objects with their uids; and
        ``version``, the argument of the next call.

        No change is left out, but a change may be returned again. A write of this process is returned before and after the watch shows it.
        With several namespaces, ``version`` is the lowest version of their watches. Changes in the other namespaces are then returned again
        until the slowest watch advances, at the latest with its bookmark each minute. Compare versions and uids to detect repetitions.

        The method checks every head (30 ms for 100,000).

        Raises:
            ChangesForgotten: more than the 10,000 recorded deletions lie between, or the cache has not reached the version, because it is
                of another cache or the server lost its history. List everything. A server that lost its history and has caught up is not
                detected.
            ValueError: the version, or that of the server, is not a number, so they cannot be compared. TypeError: it is not a string.
        """
        if not isinstance(version, str):
            raise TypeError(
                f"version={described(version)} is not text; give the version of a lister or ChangeSet (resourceVersions are texts)"
            )
        now = self._version()
        # An object that left the selector and returned is not deleted.
        deleted = [each for each in self._deletions.since(version, now) if not self._shows(each)]
        return ChangeSet(newer(self._view.heads(None), str(int(version))), deleted, now)

    async def wait_fresh(self, min_resource_version: str | None = None, timeout: float = 10.0) -> None:
        """Wait until the cache has reached ``min_resource_version`` or, if it is None, contains all earlier writes of this process.

        Readers see own writes immediately without this method. Use it for a version that another process names, and before reading
        something that only the watch updates, such as handlers. The version advances with each event, and without events once a minute
        (bookmark).

        Args:
            min_resource_version: The lowest version to wait for. None: the versions of this process's own writes.
            timeout: Seconds.

        Raises:
            DeadlineError: the timeout expired; the message names the missing version or writes. InformerStopped: the informer has stopped.
            ValueError: the version is not a number. TypeError: it is not a string.
        """
        if min_resource_version is not None and not isinstance(min_resource_version, str):
            raise TypeError(
                f"min_resource_version={described(min_resource_version)} is not text; resourceVersions are texts, or None for own writes"
            )
        await self._freshness.wait(min_resource_version, timeout)

    # ------------------------------------------------------------------------------------------------------------------- finding

    def _shows(self, deletion: Deletion) -> bool:
        head = self._view.get(deletion.namespace, deletion.name)
        return head is not None and head.uid == deletion.uid

    def _candidates(
        self, namespace: str | None, label_selector: Labels | None, field_selector: Where | None
    ) -> tuple[Iterable[Head], Predicate | None]:
        """Return heads that include all matches, read at one moment and from an index if possible, and a predicate (None: all match)."""
        self._check_text(namespace)
        if field_selector is not None and not isinstance(field_selector, Mapping) and not callable(field_selector):
            raise TypeError(
                f"field_selector={described(field_selector)} selects nothing; "
                'give paths with values, {"status.phase": "Running"}, or a predicate of the head'
            )
        selector = None if label_selector is None else selector_of(label_selector)
        matches: Predicate | None = None if selector is None or selector.everything else by_labels(selector)
        if isinstance(field_selector, Mapping):
            for path, value in field_selector.items():
                matches = both(matches, by_field(path, value, self._view.attributes))
        else:
            matches = both(matches, field_selector)
        heads = self._indexed(selector, field_selector)
        if heads is None:
            return self._view.moment(namespace), matches
        if namespace is not None:
            heads = [head for head in heads if head.namespace == namespace]
        return heads, matches

    def _indexed(self, selector: Selector | None, field_selector: Where | None) -> builtins.list[Head] | None:
        """Return the heads that an index yields for the query; None if no index fits."""
        if isinstance(field_selector, Mapping):
            for path, value in field_selector.items():
                name = self._view.index_over(path)
                if name is not None:
                    return self._view.by_index(name, index_key(value))
        for requirement in selector.requirements if selector is not None else ():
            value = selector.exact_value(requirement.key) if selector is not None else None
            name = None if value is None else self._view.index_over(ByLabel(requirement.key))
            if name is not None and value is not None:
                return self._view.by_index(name, value)
        return None

    def _decoded(self, heads: builtins.list[Head]) -> builtins.list[R]:
        with gc_paused():
            return [obj for obj in map(self._view.decodable, heads) if obj is not None]

    def _decoding(self, heads: Iterable[Head]) -> Iterator[R]:
        return (obj for obj in map(self._view.decodable, heads) if obj is not None)

    def _check_text(self, namespace: str | None) -> None:
        if namespace is not None and not isinstance(namespace, str):
            raise TypeError(f"namespace={described(namespace)} is not a name; give one, or None for all that the informer watches")
        self._check(namespace)

    def _check(self, namespace: str | None) -> None:
        if self._scope and namespace is not None and namespace not in self._scope:
            watched = ", ".join(f'"{name}"' for name in self._scope)
            raise OutsideScope(
                f'this informer watches {self._view.kind.__name__} objects of namespace {watched} only, not of "{namespace}"; '
                "make one with informers.for_kind(..., namespace=...)"
            )
