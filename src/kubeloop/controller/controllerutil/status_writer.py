"""Writes the status of objects: only the changed fields, only if there are any, through the status subresource.

Source: Kubernetes API conventions, "Spec and Status".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kubeloop.client import Client, OperationResult
from kubeloop.client.options import WriteOptions
from kubeloop.codec.encoding_checks import checked_changes
from kubeloop.controller.result import Result
from kubeloop.merge.go_text import same
from kubeloop.merge.merge_patch import create_merge_patch
from kubeloop.meta import Conflict, IncompleteObject, Invalid, KubeloopError, NotFound, Resource
from kubeloop.types import JSONObject, JSONValue

# Limits how often the status of one object is written: first immediately, then less and less often while it keeps changing.
#
# Pure: the time is an argument. The state is in memory only: a counter in the status would itself be a write.


@dataclass(slots=True)
class _Writes:
    count: int
    allowed: float


class WriteBackoff:
    """Exponential delays between the writes of one object.

    Guarantees
        The first ``burst`` writes are never delayed. After them the delay starts at ``initial`` seconds and doubles up to ``cap``.
        After ``calm`` seconds without a write, although one was allowed, the object starts over.
        Objects without recent writes are forgotten, so that memory holds only recently written ones.

    Not guaranteed
        A state across restarts: every object starts over.

    Args:
        burst: Number of writes without a delay.
        initial: First delay in seconds.
        cap: Longest delay in seconds.
        calm: Seconds without a write after which an object starts over.

    Raises:
        ValueError: a negative number, or ``cap`` below ``initial``.

    Example:
        >>> backoff = WriteBackoff(burst=0, initial=2.0)
        >>> backoff.wrote("uid-1", now=100.0)
        >>> backoff.wait("uid-1", now=100.0)
        2.0
    """

    def __init__(self, *, burst: int = 5, initial: float = 1.0, cap: float = 60.0, calm: float = 120.0) -> None:
        if burst < 0 or initial <= 0 or cap < initial or calm < 0:
            raise ValueError(
                f"write back-off wants burst and calm >= 0, initial > 0 and cap >= initial, not {burst=} {initial=} {cap=} {calm=}"
            )
        self._free = burst
        self._initial = initial
        self._cap = cap
        self._calm = calm
        self._writes: dict[str, _Writes] = {}
        self._sweep_at = 1024

    def wait(self, uid: str, now: float) -> float:
        """Return the seconds until the object may be written; 0 if it may be written now."""
        known = self._known(uid, now)
        return 0.0 if known is None else max(0.0, known.allowed - now)

    def wrote(self, uid: str, now: float) -> None:
        """Record a write of the object."""
        known = self._known(uid, now)
        if known is None:
            self._sweep(now)
            known = self._writes[uid] = _Writes(0, now)
        known.count += 1
        # Capped before the power is computed: that of a thousand writes would overflow.
        doublings = min(known.count - self._free, 64)
        known.allowed = now + (min(self._initial * 2.0 ** (doublings - 1), self._cap) if doublings > 0 else 0.0)

    def forget(self, uid: str) -> None:
        """Drop the state of a deleted object."""
        self._writes.pop(uid, None)

    def __len__(self) -> int:
        return len(self._writes)

    def _known(self, uid: str, now: float) -> _Writes | None:
        known = self._writes.get(uid)
        if known is not None and now >= known.allowed + self._calm:
            del self._writes[uid]
            return None
        return known

    def _sweep(self, now: float) -> None:
        if len(self._writes) >= self._sweep_at:
            self._writes = {uid: one for uid, one in self._writes.items() if now < one.allowed + self._calm}
            self._sweep_at = max(1024, 2 * len(self._writes))


# Merges a status that was computed from an older state into the newest: changes of only one side are preserved.
#
# Pure functions over JSON trees.


class BothChanged(Exception):
    """A list without keys was changed on both sides; ``str()`` is its path."""


def three_way(base: JSONObject, mine: JSONObject, theirs: JSONObject, path: str = "") -> JSONObject:
    """Return ``theirs`` with the changes from ``base`` to ``mine``. If both changed a scalar, ``mine`` wins.

    Lists named ``conditions`` whose items have a ``type`` are merged item by item. Other lists must be unchanged on one side.

    Args:
        base: The status that was read.
        mine: The status to write.
        theirs: The newest status.
        path: Path of these trees, for errors.

    Raises:
        BothChanged: both sides changed a list without keys.
    """
    merged: JSONObject = {}
    for name in dict.fromkeys([*theirs, *mine]):
        here = f"{path}.{name}" if path else name
        value = _value(base.get(name), mine.get(name), theirs.get(name), here, name)
        if value is not None:
            merged[name] = value
    return merged


def _value(base: JSONValue, mine: JSONValue, theirs: JSONValue, path: str, name: str) -> JSONValue:
    if same(mine, base):
        return theirs
    if same(mine, theirs) or same(theirs, base):
        return mine
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return three_way(base if isinstance(base, dict) else {}, mine, theirs, path)
    if isinstance(mine, list) and isinstance(theirs, list):
        if name != "conditions" or not all(map(_typed, [*mine, *theirs, *(base or [])])):
            raise BothChanged(path)
        by_type = three_way(_by_type(base or []), _by_type(mine), _by_type(theirs), path)
        return list(by_type.values())
    return mine


def _typed(item: JSONValue) -> bool:
    return isinstance(item, dict) and isinstance(item.get("type"), str)


def _by_type(items: list[JSONValue]) -> JSONObject:
    return {item["type"]: item for item in items}


R = TypeVar("R", bound=Resource)

_TRIES = 5


class StatusError(KubeloopError):
    """The kind's status cannot be written; the message says what its definition lacks."""


@dataclass(frozen=True, slots=True)
class StatusWrite(Generic[R]):
    """The result of ``StatusWriter.write``.

    Attributes:
        object: The server's state after a write. If nothing was written, the newest state that was read, usually the argument.
        operation: UPDATED_STATUS_ONLY, or UNCHANGED if nothing was sent.
        requeue_after: Seconds until a write that was held back is permitted; None if nothing was held back.

    Example:
        >>> write = StatusWrite(ConfigMap(), OperationResult.UNCHANGED, requeue_after=4.0)
        >>> write.result
        Result(requeue_after=4.0...)
    """

    object: R
    operation: OperationResult
    requeue_after: float | None = None

    @property
    def result(self) -> Result | None:
        """The result to return from ``reconcile`` so that a held-back write is retried; None if nothing was held back."""
        return None if self.requeue_after is None else Result(requeue_after=self.requeue_after)


class StatusWriter:
    """Writes the status of objects that were read, from a cache or a server, and changed in memory.

    Guarantees
        Nothing is sent if the status is the same as at the time of the read. Otherwise only the difference is sent, as a merge patch that
        applies to the object with this uid only; spec and metadata are never written. If a list is replaced (conditions are a list), the
        patch requires the version that was read. On conflict the newest state is read and the changes are merged into it, condition by
        condition and field by field, so that other writers' conditions stay. This is tried five times. With ``backoff`` an object that is
        written again and again is held back (``written.requeue_after`` is a number); return ``written.result`` then, and the next
        reconcile writes the state of that time.

    Not guaranteed
        A write of every intermediate status: describe the state, not the events.

    Args:
        client: The client of the cluster.
        field_manager: Field manager of the patches. Empty: the client's.
        backoff: Holds back frequent writes. None: every difference is written at once.

    Raises
        Conflict: other writers kept changing the object, or both sides changed the same list without keys.
        NotFound: the object does not exist any more; another object may have its name.
        StatusError: the kind has no status subresource.
        IncompleteObject: the object was created in memory, not read.
        ValueError: a field of the status has a value of a wrong type.

    Example:
        >>> from kubeloop.controller import set_condition
        >>> namespace = await client.create(Namespace(metadata=ObjectMeta(generate_name="status-")))
        >>> set_condition(namespace, "Checked", True, reason="Example")
        True
        >>> str((await StatusWriter(client).write(namespace)).operation)
        'updatedStatusOnly'
    """

    def __init__(self, client: Client, *, field_manager: str = "", backoff: WriteBackoff | None = None) -> None:
        self._client = client
        self._options = WriteOptions(field_manager=field_manager)
        self._backoff = backoff

    async def write(self, obj: R, *, urgent: bool = False) -> StatusWrite[R]:
        """Write the status of ``obj`` if it was changed since it was read. ``urgent``: ignore the back-off."""
        base, mine = _statuses(obj)
        if same(base, mine):
            return StatusWrite(obj, OperationResult.UNCHANGED)
        now, uid = self._client.clock.now(), obj.metadata.uid
        if self._backoff is not None and not urgent and (pause := self._backoff.wait(uid, now)) > 0:
            return StatusWrite(obj, OperationResult.UNCHANGED, pause)
        written = await self._write(obj, base, mine)
        if self._backoff is not None and written.operation is OperationResult.UPDATED_STATUS_ONLY:
            self._backoff.wrote(uid, now)
        return written

    async def _write(self, obj: R, base: dict[str, Any], mine: dict[str, Any]) -> StatusWrite[R]:
        seen, found, wanted = obj, base, mine
        for left in reversed(range(_TRIES)):
            patch = create_merge_patch({"status": found}, {"status": wanted})
            if not patch:
                return StatusWrite(seen, OperationResult.UNCHANGED)
            try:
                return StatusWrite(await self._send(seen, patch), OperationResult.UPDATED_STATUS_ONLY)
            except Conflict as error:
                if not left:
                    raise
                seen = await self._newest(obj)
                if seen.metadata.uid != obj.metadata.uid:
                    raise
                found = _statuses(seen)[0]
                try:
                    wanted = three_way(base, mine, found, "status")
                except BothChanged as both:
                    error.add_note(f"{both} was changed on both sides, and its items have no keys by which to merge them")
                    raise error from None
        raise AssertionError("the last try returns or raises")

    async def _send(self, obj: R, patch: dict[str, Any]) -> R:
        bound = {"uid": obj.metadata.uid}
        if _replaces_a_list(patch):
            bound["resourceVersion"] = obj.metadata.resource_version
        body = {"metadata": {name: value for name, value in bound.items() if value}, **patch}
        name, where = obj.metadata.name, obj.metadata.namespace or None
        try:
            return await self._client.patch(type(obj), name, body, namespace=where, subresource="status", options=self._options)
        except Invalid as error:
            # The server's message for a patch with another object's uid and without a resourceVersion.
            if any(cause.field == "metadata.uid" for cause in error.causes):
                raise NotFound(error.status, f"{error.request}; another object has its name now") from error
            raise
        except NotFound:
            await self._newest(obj)  # raises if the object does not exist; otherwise the subresource is missing
            raise StatusError(
                f'{obj.kind} "{obj.object_key()}": the kind has no status subresource, so its status cannot be written apart; '
                'add "subresources: {status: {}}" to the version in its CustomResourceDefinition'
            ) from None

    async def _newest(self, obj: R) -> R:
        return await self._client.get(type(obj), obj.metadata.name, namespace=obj.metadata.namespace or None)


def _statuses(obj: Resource) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the status at the time of the read, and the present status."""
    trees = checked_changes(obj, "status")
    if trees is None:
        raise IncompleteObject(
            f'{obj.kind} "{obj.object_key()}" was made here, not read: changes of its status are unknown. '
            "Get the object, from the lister or the client, and change that."
        )
    before, after = (tree.get("status") for tree in trees)
    return (before if isinstance(before, dict) else {}), (after if isinstance(after, dict) else {})


def _replaces_a_list(patch: dict[str, Any]) -> bool:
    return any(isinstance(value, list) or (isinstance(value, dict) and _replaces_a_list(value)) for value in patch.values())
