"""Write listeners: they get the client's own writes, so that caches see them before the watch delivers them."""

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

_LOG = logging.getLogger("kubeloop.client")

Verb: TypeAlias = Literal["create", "update", "patch", "delete"]


class Write(msgspec.Struct, frozen=True, gc=False):
    """One write that the server has confirmed.

    >>> writes = []
    >>> remove = client.on_write(writes.append)
    >>> settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
    >>> writes[0].verb, writes[0].name, writes[0].gone
    ('create', 'settings', False)
    >>> remove()

    Guarantees
        The server stored it: it was not a dry run, not refused, and its response arrived.
        ``document`` is the whole object from the response; None if the response was a ``Status`` (most deletions).
        ``uid`` and ``resource_version`` are empty if the response does not contain them.

    Not guaranteed
        That the object is still in this state, since others may write too. That the object exists: see ``gone``.
        Writes whose response is not the object: scale, eviction, binding, patches with metadata-only responses, deletion of a collection.
        Listeners do not get these. Listeners get an apply as a patch.
    """

    mapping: ResourceMapping
    verb: Verb
    namespace: str
    name: str
    uid: str
    resource_version: str
    document: bytes | None
    #: When the request was sent, on ``time.perf_counter``. A state that was received before then is older than the write. None: unknown.
    sent: float | None = None

    @property
    def gone(self) -> bool:
        """Whether the object no longer exists: the write deleted it at once, or removed its last finalizer.

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
    """Return whether an object in the response to a write no longer exists. ``deleted``: the write was a deletion.

    A server deletes an object that is marked for deletion as soon as it has no finalizer and no grace period left
    (k8s.io/apiserver pkg/registry/generic/registry/store.go, deletionFinalizersForGarbageCollection and deleteWithoutFinalizers);
    a namespace, as soon as ``spec`` has no finalizer either (pkg/registry/core/namespace/storage, ShouldDeleteNamespaceDuringUpdate).
    """
    metadata = _MARKS.decode(document).metadata
    if not metadata.deletion_timestamp:
        return deleted
    if gvk == _NAMESPACE and _NAMESPACE_MARKS.decode(document).spec.finalizers:
        return False
    return not metadata.finalizers and not metadata.deletion_grace_period_seconds


Listener: TypeAlias = Callable[[Write], object]


class WriteListeners:
    """The write listeners of one client, in the order of their registration. Its truth value is False if there are none."""

    __slots__ = ("_counts", "_failures", "_listeners")

    def __init__(self) -> None:
        #: Number of failures of each listener, by the ``id`` of the listener, since a callable may have no hash.
        self._counts: dict[int, int] = {}
        self._failures: FailureLog[int] = FailureLog(_LOG)
        self._listeners: list[Listener] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; return a function that removes it and may be called twice."""
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
        """Return the time for ``Write.sent``. It is from the clock of this process, because it only orders writes and watch events."""
        return time.perf_counter()

    def stored(self, mapping: ResourceMapping, verb: Verb, obj: Resource, sent: float | None = None) -> None:
        """Notify the listeners of a write to which the server responded with ``obj``.

        Args:
            mapping: The kind's location.
            verb: The verb of the request.
            obj: The object in the response.
            sent: When the request was sent (``now()``). None: unknown.
        """
        source = source_of(obj)
        if source is not None:
            metadata = obj.metadata
            place = (metadata.namespace, metadata.name, metadata.uid, metadata.resource_version)
            self._tell(Write(mapping, verb, *place, source.document, sent))

    def deleted(self, mapping: ResourceMapping, namespace: str, name: str, uid: str, answer: Resource | Status) -> None:
        """Notify the listeners of a deletion.

        Args:
            mapping: The kind's location.
            namespace: The object's namespace; empty for a cluster-scoped kind.
            name: The object's name.
            uid: The uid in the request's precondition; empty without one.
            answer: The object or the ``Status`` in the response.
        """
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
        """Log the first failure, and each different one, with its traceback. Repeated failures are logged in one line with their count."""
        count = self._counts[id(listener)] = self._counts.get(id(listener), 0) + 1
        trace = self._failures.failed(id(listener), error)
        again = f" ({type(error).__name__}); it has failed {count} times" if count > 1 else ""
        place = (write.verb, write.mapping.kind, write.namespace, write.name)
        _LOG.error("a listener failed on %s of %s %s/%s%s", *place, again, exc_info=trace)


def is_dry_run(options: WriteOptions | None) -> bool:
    """Return whether a write is a dry run."""
    return options is not None and options.dry_run
