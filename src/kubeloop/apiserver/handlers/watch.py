"""Watches: changes of a selection of objects as a stream of frames.

Source: Kubernetes API concepts, "Efficient detection of changes", "Watch bookmarks", "Streaming lists"; KEP-956, KEP-3157.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from msgspec.structs import replace

from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.options import ListParameters, resource_version_number
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage import KeyValue, StorageEvent, prefix_end
from kubeloop.apiserver.storage.watch_cache import ResourceVersionTooOld, Subscription, WatchCache, WatchEvent
from kubeloop.apiserver.store.reader import Reader, Selection
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.encoding import encode, encode_sorted, event_frame
from kubeloop.endpoints.responses import status_object
from kubeloop.meta.errors import ApiError
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

#: Seconds between bookmarks, and seconds before the end of a watch for the last bookmark, as upstream.
BOOKMARK_EVERY = 60.0
_BOOKMARK_BEFORE_END = 2.0
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class FormMissing(Exception):
    """An event cannot be sent in any accepted form. As upstream, the watch ends without an error."""


@dataclass(frozen=True, slots=True)
class WatchForm:
    """The form of the objects of a watch.

    Watchers with the same ``name`` share rendered frames. ``render`` returns the object to send, and may raise FormMissing; its second
    argument is True for the first object of the watch. If it is None, objects are sent unchanged. ``pack`` encodes event type and object
    as a frame; if it is None, frames are JSON. ``stored`` encodes a frame directly from the stored bytes, if that is possible.
    """

    name: str = ""
    render: Callable[[JSONObject, bool], JSONObject] | None = None
    pack: Callable[[str, JSONObject], bytes] | None = None
    stored: Callable[[str, KeyValue], bytes] | None = None

    def frame(self, type_: str, obj: JSONObject) -> bytes:
        """Return the frame of an event."""
        return event_frame(type_, encode(obj)) if self.pack is None else self.pack(type_, obj)


class Watcher:
    """One watch. ``frames`` may be iterated once.

    Guarantees
        The watch yields each change after the requested version once, in order, if the object matches the selectors before or after the
        change. If an object begins to match, the event is ADDED. If it no longer matches, the event is DELETED, with the state and version
        of the change.
        If the version was compacted, the watch sends one ERROR frame (410) and ends.
    """

    def __init__(
        self,
        resource: ServedResource,
        namespace: str,
        options: ListParameters,
        selection: Selection,
        form: WatchForm,
        parts: WatchDependencies,
    ) -> None:
        """Create the watch. It starts when ``frames`` is iterated.

        Args:
            resource: The resource.
            namespace: Namespace; empty: all namespaces.
            options: Options of the request.
            selection: Label and field selectors.
            form: Form of the events.
            parts: Parts of the server that all watches share.
        """
        self._resource = resource
        self._options = options
        self._selection = selection
        self._form = form
        self._parts = parts
        self._prefix = parts.objects.prefix(resource, namespace)
        self._first = True
        #: Changes up to ``_sent`` are processed. The client knows versions up to ``_told``, because it does not get unselected objects.
        self._sent = 0
        self._told = 0

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield the frames of the watch until it ends."""
        subscription = self._parts.cache.subscribe(self._prefix)
        try:
            async for frame in self._frames(subscription):
                yield frame
        except FormMissing:
            return
        except ResourceVersionTooOld as passed:
            yield self._error(api_errors.too_old(passed.revision, passed.oldest))
        except ApiError as refusal:
            yield self._error(refusal)
        finally:
            subscription.close()

    async def _frames(self, subscription: Subscription) -> AsyncIterator[bytes]:
        options, cache = self._options, self._parts.cache
        start = resource_version_number(options.resource_version or "0") or 0
        if self._wants_state(start):
            if start:
                await self._parts.reader.at_least(start)
            async for frame in self._state():
                yield frame
            # Also for watches that get initial events without requesting them, as in kube-apiserver.
            if options.allow_bookmarks:
                yield self._bookmark(self._sent, {_INITIAL_EVENTS_END: "true"})
        else:
            self._sent = self._told = start or cache.revision
            events = await self._presented(cache.since(self._prefix, self._sent))
            try:
                history = self._pass(events)
            except ApiError:
                # An object is stored in an undefined version. Upstream has lost all earlier changes.
                raise ResourceVersionTooOld(start, cache.revision) from None
            if history:
                yield history
        async for frame in self._live(subscription):
            yield frame

    def _wants_state(self, start: int) -> bool:
        """Return whether the watch begins with the current objects: it has no resourceVersion, has "0", or requests them."""
        requested = self._options.send_initial_events
        return start == 0 if requested is None else requested

    async def _state(self) -> AsyncIterator[bytes]:
        storage = self._parts.objects.storage
        result = await storage.range(self._prefix, prefix_end(self._prefix))
        self._sent = self._told = result.revision
        for kv in await self._parts.objects.to_requested_version(self._resource, result.items):
            if self._selection.everything or self._selection.matches(self._parts.objects.tree(self._resource, kv)):
                first, self._first = self._first, False
                self._parts.cache.events_sent[self._resource.gvr] += 1
                yield self._frame("ADDED", kv, first=first)

    async def _live(self, subscription: Subscription) -> AsyncIterator[bytes]:
        clock = self._parts.clock
        end = clock.now() + (self._options.timeout_seconds or self._parts.default_timeout())
        # A bookmark is repeated each minute, because clients take silence for a broken connection. There is none for the start version.
        begun = self._told
        bookmark = self._next_bookmark(end)
        timer = clock.call_later(max(min(bookmark, end) - clock.now(), 0), subscription.wake)
        try:
            while True:
                events = await subscription.receive()
                if events:
                    frame = self._pass(await self._presented(events))
                    if frame:
                        yield frame
                elif subscription.ended:
                    return
                now = clock.now()
                if now >= end:
                    return
                if now >= bookmark:
                    # More changes may have arrived while the client read the last frame; they come before a bookmark.
                    newest = self._sent if subscription.waiting else max(self._sent, self._parts.cache.revision)
                    if self._options.allow_bookmarks and newest > (self._told if subscription.waiting else begun):
                        yield self._bookmark(newest)
                    bookmark = self._next_bookmark(end)
                    timer.cancel()
                    timer = clock.call_later(max(min(bookmark, end) - now, 0), subscription.wake)
        finally:
            timer.cancel()

    def _next_bookmark(self, end: float) -> float:
        now = self._parts.clock.now()
        last = end - _BOOKMARK_BEFORE_END
        return min(now + BOOKMARK_EVERY, last) if last > now else end

    async def _presented(self, events: list[WatchEvent]) -> list[WatchEvent]:
        """Return the changes with objects in the requested version, converted by a webhook if necessary."""
        if self._resource.converter is None:
            return events
        raw = [event.event for event in events if event.revision > self._sent]
        states = [kv for one in raw for kv in (_state_after(one), one.previous) if kv is not None]
        view = iter(await self._parts.objects.to_requested_version(self._resource, states))
        result = []
        for one in raw:
            after = None if one.value is None else next(view).value
            before = None if one.previous is None else next(view)
            result.append(WatchEvent(replace(one, value=after, previous=before)))
        return result

    def _pass(self, events: list[WatchEvent]) -> bytes:
        """Return the joined frames of the changes that have not been sent yet."""
        frames = []
        for event in events:
            if event.revision <= self._sent:
                continue
            self._sent = event.revision
            frame = self._frame_of(event)
            if frame is not None:
                self._told = event.revision
                frames.append(frame)
        if frames:
            self._parts.cache.events_sent[self._resource.gvr] += len(frames)
        return b"".join(frames)

    def _frame_of(self, event: WatchEvent) -> bytes | None:
        raw = event.event
        before = raw.previous is not None
        after = raw.value is not None
        if not self._selection.everything:
            before = raw.previous is not None and self._selection.matches(self._parts.objects.tree(self._resource, raw.previous))
            after = after and self._selection.matches(self._tree(event))
        if not (before or after):
            return None
        type_ = "DELETED" if not after else "MODIFIED" if before else "ADDED"
        # An object that leaves the selection is sent in its last selected state, with the version of the change.
        kv = event.current()
        if type_ == "DELETED" and raw.value is not None:
            assert raw.previous is not None
            kv = replace(raw.previous, mod_revision=raw.revision)
        first, self._first = self._first, False
        key = (type_, self._resource.gvr, self._form.name, kv.value is raw.value, first and self._form.render is not None)
        return event.cached(key, lambda: self._frame(type_, kv, first=first))

    def _tree(self, event: WatchEvent) -> JSONObject:
        return self._parts.objects.tree(self._resource, event.current())

    def _frame(self, type_: str, kv: KeyValue, *, first: bool) -> bytes:
        objects = self._parts.objects
        if self._form.stored is not None:
            return self._form.stored(type_, kv)
        if self._form.render is None:
            return event_frame(type_, objects.wire(self._resource, kv))
        return self._form.frame(type_, self._form.render(objects.tree(self._resource, kv), first))

    def _bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        self._told = revision
        metadata: JSONObject = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        obj: JSONObject = {"kind": self._resource.kind, "apiVersion": self._resource.gvk.api_version, "metadata": metadata}
        obj = self._parts.empty(self._resource, obj)
        if self._form.render is not None:
            first, self._first = self._first, False
            obj = self._form.render(obj, first)
        if self._resource.custom and self._form.pack is None and self._form.render is None:
            return event_frame("BOOKMARK", encode_sorted(obj))
        return self._form.frame("BOOKMARK", obj)

    def _error(self, refusal: ApiError) -> bytes:
        return self._form.frame("ERROR", status_object(refusal.status))


@dataclass(frozen=True, slots=True)
class WatchDependencies:
    """The parts of the server that all watches share. ``default_timeout`` returns the timeout in seconds for watches without one."""

    objects: Objects
    cache: WatchCache
    reader: Reader
    clock: Clock
    default_timeout: Callable[[], float]

    @staticmethod
    def empty(resource: ServedResource, obj: JSONObject) -> JSONObject:
        """Return an object that has only metadata, with the empty fields that Go writes for the kind (such as ``status: {}``)."""
        from kubeloop.schema import strict

        if resource.custom or not strict.is_builtin(resource.gvk):
            return obj
        conformed = strict.conform(obj, resource.gvk).obj
        conformed["metadata"] = obj["metadata"]
        return conformed


def _state_after(event: StorageEvent) -> KeyValue | None:
    """Return the state of the object after a change, or None for a deletion."""
    return None if event.value is None else KeyValue(event.key, event.value, event.revision, event.revision)
