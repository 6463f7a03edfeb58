"""Own writes: tells who asked what this client has just written, so that caches need not wait for the watch to bring it back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from kubeloop.client.mapper import ResourceMapping
from kubeloop.client.options import WriteOptions
from kubeloop.meta import GroupVersionKind, Resource, Status
from kubeloop.meta.failure_log import FailureLog
from kubeloop.meta.resource import source_of

log = logging.getLogger("kubeloop.client")

Verb: TypeAlias = Literal["create", "update", "patch", "delete"]


class Write(msgspec.Struct, frozen=True, gc=False):
    """One write that the server has confirmed.

    Guarantees
        It was stored: no dry run, nothing that was refused, nothing whose answer was lost.
        ``document`` is the whole object as the server answered, None if the answer was a ``Status`` (most deletions).
        ``uid`` and ``resource_version`` are "" where the answer does not say them.

    Not guaranteed
        That it is still so: somebody else may have written since. That the object exists: see ``gone``.
        Writes that answer something else than the object are not told: scale, eviction, binding, patches of which only the metadata
        is read, deletion of a collection. An apply is told as a patch.
    """

    mapping: ResourceMapping
    verb: Verb
    namespace: str
    name: str
    uid: str
    resource_version: str
    document: bytes | None
    #: When it was sent, on ``time.perf_counter``: what somebody had seen of the server before then is older. None: not known.
    sent: float | None = None

    @property
    def gone(self) -> bool:
        """Whether the write ended the object's life: a deletion that waits for nothing, or a change that took its last finalizer.

        See ``is_gone``.
        """
        return self.document is None or is_gone(self.mapping.gvk, self.document, deleted=self.verb == "delete")


class _Marks(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: list[str] | None = None


class _Marked(msgspec.Struct):
    metadata: _Marks


class _Finalized(msgspec.Struct):
    finalizers: list[str] | None = None


class _MarkedNamespace(msgspec.Struct):
    spec: _Finalized


_MARKS = msgspec.json.Decoder(_Marked)
_NAMESPACE_MARKS = msgspec.json.Decoder(_MarkedNamespace)
_NAMESPACE = GroupVersionKind("", "v1", "Namespace")


def is_gone(gvk: GroupVersionKind, document: bytes, *, deleted: bool) -> bool:
    """Whether an object that a server sent as the answer to a write exists no more. ``deleted``: the write was a deletion.

    A server deletes an object that is marked for deletion as soon as it has no finalizer and no grace period left
    (k8s.io/apiserver pkg/registry/generic/registry/store.go, deletionFinalizersForGarbageCollection and deleteWithoutFinalizers);
    a namespace, as soon as it has none in ``spec`` either (pkg/registry/core/namespace/storage, ShouldDeleteNamespaceDuringUpdate).
    """
    metadata = _MARKS.decode(document).metadata
    if not metadata.deletion_timestamp:
        return deleted
    if gvk == _NAMESPACE and _NAMESPACE_MARKS.decode(document).spec.finalizers:
        return False
    return not metadata.finalizers and not metadata.deletion_grace_period_seconds


Listener: TypeAlias = Callable[[Write], object]


class WriteListeners:
    """Who hears of the writes of one client, in the order in which they asked. False while there is nobody."""

    __slots__ = ("_counts", "_failures", "_listeners")

    def __init__(self) -> None:
        #: How often each failed, and with what, by its id: a callable may have no hash.
        self._counts: dict[int, int] = {}
        self._failures: FailureLog[int] = FailureLog(log)
        self._listeners: list[Listener] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Listener) -> Callable[[], None]:
        """Returns what removes it again; twice does nothing."""
        listeners = self._listeners
        listeners.append(listener)

        def remove() -> None:
            if listener in listeners:
                listeners.remove(listener)
                if listener not in listeners:
                    self._counts.pop(id(listener), None)
                    self._failures.succeeded(id(listener))

        return remove

    @staticmethod
    def now() -> float:
        """The clock of ``Write.sent``: of the process, since it orders a write and what other parts heard, and measures nothing."""
        return time.perf_counter()

    def stored(self, mapping: ResourceMapping, verb: Verb, obj: Resource, sent: float | None = None) -> None:
        """The server answered a write with ``obj``."""
        source = source_of(obj)
        if source is not None:
            metadata = obj.metadata
            place = (metadata.namespace, metadata.name, metadata.uid, metadata.resource_version)
            self._tell(Write(mapping, verb, *place, source.document, sent))

    def deleted(self, mapping: ResourceMapping, namespace: str, name: str, uid: str, answer: Resource | Status) -> None:
        """The server answered a deletion. ``uid`` is what the deletion was bound to, "" if to nothing."""
        if isinstance(answer, Status):
            named = answer.details.uid if answer.details else ""
            self._tell(Write(mapping, "delete", namespace, name, named or uid, "", None))
        else:
            self.stored(mapping, "delete", answer)

    def _tell(self, write: Write) -> None:
        for listener in list(self._listeners):
            try:
                listener(write)
            except Exception as error:  # noqa: BLE001 - the write is done: its caller must not take it for failed
                self._log_failure(listener, write, error)

    def _log_failure(self, listener: Listener, write: Write, error: Exception) -> None:
        """The first failure, and each of another kind, with its traceback; the others in a line with their number."""
        count = self._counts[id(listener)] = self._counts.get(id(listener), 0) + 1
        trace = self._failures.failed(id(listener), error)
        again = f" ({type(error).__name__}); it has failed {count} times" if count > 1 else ""
        place = (write.verb, write.mapping.kind, write.namespace, write.name)
        log.error("a listener failed on %s of %s %s/%s%s", *place, again, exc_info=trace)


def dry(options: WriteOptions | None) -> bool:
    """Whether a write was only tried."""
    return options is not None and options.dry_run
