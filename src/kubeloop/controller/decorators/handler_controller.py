"""HandlerController: calls methods for the changes of an object, which it derives from the object's present state.

Each pass compares the object with its record, calls the due handlers, and updates the record. Source of the names: kopf's handlers.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, TypeVar

from kubeloop.client.options import WriteOptions
from kubeloop.client.waits.trees import tree_of
from kubeloop.controller.builder.controller import KeyController
from kubeloop.controller.controllerutil.finalizers import FinalizerError, add_finalizer, remove_finalizer
from kubeloop.controller.decorators.handlers import DeclaredHandler, HandlerInvoker, Handlers, handlers_of
from kubeloop.controller.decorators.progress import (
    FINALIZER,
    RECORD,
    HandlerRecord,
    ObjectProgress,
    ProgressStore,
    UnreadableRecord,
    Value,
    read_record,
    watched,
)
from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.result import PartlyFailed, Result, TerminalError
from kubeloop.meta import DecodeError, Invalid, NotFound, ObjectKey, Resource
from kubeloop.meta.names import qualified_name

R = TypeVar("R", bound=Resource)


class HandlerController(KeyController[R]):
    """Calls decorated methods when objects are created, changed and deleted, and by timers.

    Guarantees
        One handler at a time for each object: resume, create, change, timers, each group in the order of definition. Each gets a copy of
        the newest state. Change handlers wait until the create handlers are done. A handler that fails is called again with back-off, 1 s
        doubling to 300 s; the other handlers are neither repeated nor delayed, but the reconcile counts as failed. ``TerminalError`` stops
        the retries until the next change; it is logged and recorded as an event. Handled changes are recorded in the object's annotation
        ``handled.kubeloop.dev/NAME``, so that a change made while no program ran is handled by the next one, and handled changes are not
        repeated.

    Not guaranteed
        A call for each change: a change that is reverted before the next reconcile is not seen, and several changes cause one call, whose
        ``old`` is the value handled last. Exactly one call: a program that dies between a handler's end and the write of the record (one
        for all handlers of a reconcile) calls it again; make handlers idempotent. A deletion of an object whose finalizer was removed, or
        not yet added. Old values beyond 1 KiB, which are stored as digests (``UNKNOWN``). Timers and retries across a restart, which start
        over.

    The controller needs the permission to patch its kind. To have the creation of an object handled again, remove the annotation. If the
    class no longer has an ``on_delete`` handler, the finalizer of an older version is removed.

    Example:
        >>> from kubeloop.controller import every, on_change, on_create
        >>> class Scaler(HandlerController[Deployment]):
        ...     @on_create
        ...     async def begin(self, deployment: Deployment) -> None: ...
        ...     @on_change("spec.replicas")
        ...     async def scale(self, deployment: Deployment, old: int | None, new: int | None) -> None: ...
        ...     @every(60)
        ...     async def report(self, deployment: Deployment) -> None: ...
    """

    _calls_handlers: ClassVar[bool] = True
    _handlers: ClassVar[Handlers] = Handlers(())

    @classmethod
    def _check_class(cls) -> None:
        super()._check_class()
        name = cls.__name__
        if cls.reconcile is not HandlerController.reconcile:
            raise DeclarationError(f"{name} defines reconcile, which is to call the handlers; derive from Controller, or write a handler")
        if cls.metadata_only:
            raise DeclarationError(f"{name}: with metadata_only there are no objects to give to handlers")
        cls._handlers = handlers_of(cls, cls._kind)
        if cls._kind is None:
            return  # a generic base class
        if not cls._handlers.all:
            raise DeclarationError(
                f"{name} has no handler; decorate a method with @on_create, @on_change(PATH), @on_delete, @on_resume or @every(SECONDS)"
            )
        if faults := qualified_name(FINALIZER + cls._declaration().name):
            raise DeclarationError(f"{name}: its name is part of an annotation and a finalizer: {faults[0]}")

    #: Progress of the handlers of each object in this run of the program.
    _memories: ProgressStore | None = None
    _caller: HandlerInvoker | None = None

    @property
    def handler_errors(self) -> int:
        """Number of failed calls since the start, including abandoned handlers."""
        return self._caller.errors if self._caller is not None else 0

    async def reconcile(self, key: ObjectKey, /) -> Result | None:
        """Call the due handlers of one object."""
        if self._memories is None:
            self._memories = ProgressStore()
        kind = self._own_kind()
        try:
            obj = self.lister(kind).get(key.name, key.namespace)
        except DecodeError as error:
            raise TerminalError(f"it does not fit {kind.__name__}: {error}") from error
        if obj is None:
            self._memories.forget(key)
            if self._caller is not None:
                self._caller.forget(self._handlers.all, key)
            return None
        memory = self._memories.of(key, obj.metadata.uid)
        memory.take_failure()  # discards the failure of a cancelled reconcile
        try:
            if obj.metadata.deletion_timestamp is not None:
                pauses = await self._going(obj, memory)
            else:
                pauses = await self._living(obj, memory)
        except (NotFound, FinalizerError):
            return None  # deleted meanwhile; its event triggers the next reconcile
        except Invalid as error:
            if any(cause.field == "metadata.uid" for cause in error.causes):
                return None  # replaced by another object with its name
            raise
        again = max(min(pauses), 0.001) if pauses else None
        failure = memory.take_failure()
        if failure is not None:
            return PartlyFailed(again, error=failure[0], text=failure[1])
        return Result(again) if again is not None else None

    def _disconnect(self) -> None:
        if self._caller is not None:
            self._caller.close()
        self._caller = self._memories = None
        super()._disconnect()

    async def _living(self, obj: R, memory: ObjectProgress) -> list[float]:
        found = self._read(obj, memory)
        if found is None:
            found = memory.record = HandlerRecord([one.id for one in self._handlers.of("create")], {})
            self._note_new_values(found, obj)
            if self._handlers.of("create") or self._handlers.of("change"):
                obj = await self._save(obj, memory, finalizer=bool(self._handlers.of("delete")))
        obj = await self._with_finalizer(obj)
        memory.record, before = found, found.text()
        pauses: list[float] = []
        try:
            await self._resume(obj, memory, pauses)
            await self._create(obj, memory, found, pauses)
            if not found.create:
                await self._change(obj, memory, found, pauses)
            await self._timers(obj, memory, pauses)
        finally:
            # Remembered even if the reconcile is cancelled: the next one writes it.
            memory.unsaved = memory.unsaved or found.text() != before
        if memory.unsaved:
            await self._save(obj, memory)
        return pauses

    async def _going(self, obj: R, memory: ObjectProgress) -> list[float]:
        finalizer = self._finalizer()
        memory.timers.clear()
        if finalizer not in obj.metadata.finalizers:
            return []
        record = memory.record = self._read(obj, memory) or HandlerRecord()
        before, pauses = record.text(), list[float]()
        left = [one for one in self._handlers.of("delete") if one.id not in record.gone]
        try:
            for handler in left:
                if await self._called(handler, memory, obj, pauses):
                    record.gone.append(handler.id)
        finally:
            memory.unsaved = memory.unsaved or record.text() != before
        if not pauses:
            await remove_finalizer(self.client, obj, finalizer, options=self._options())
        elif memory.unsaved:
            await self._save(obj, memory)
        return pauses

    async def _resume(self, obj: R, memory: ObjectProgress, pauses: list[float]) -> None:
        for handler in self._handlers.of("resume"):
            if handler.id not in memory.resumed and await self._called(handler, memory, obj, pauses):
                memory.resumed.add(handler.id)

    async def _create(self, obj: R, memory: ObjectProgress, record: HandlerRecord, pauses: list[float]) -> None:
        known = {one.id: one for one in self._handlers.of("create")}
        for name in list(record.create):
            # Drop handlers that only an older version of the program had.
            if name not in known or await self._called(known[name], memory, obj, pauses):
                record.create.remove(name)

    async def _change(self, obj: R, memory: ObjectProgress, record: HandlerRecord, pauses: list[float]) -> None:
        self._note_new_values(record, obj)
        tree = watched(tree_of(obj), self._finalizer())
        handlers = self._handlers.of("change")
        for handler in handlers:
            new = handler.value(tree)
            seen = record.seen[handler.id]
            if seen.is_of(new):
                memory.succeeded(handler.id)  # the state that it could not handle has changed
            elif await self._called(handler, memory, obj, pauses, seen.value_or_unknown, new):
                record.seen[handler.id] = Value.of(new, len(handlers))

    def _note_new_values(self, record: HandlerRecord, obj: R) -> None:
        """Record the present value for each new change handler, and remove the values of handlers that no longer exist."""
        handlers = self._handlers.of("change")
        tree = watched(tree_of(obj), self._finalizer())
        record.seen = {one.id: record.seen.get(one.id) or Value.of(one.value(tree), len(handlers)) for one in handlers}

    async def _timers(self, obj: R, memory: ObjectProgress, pauses: list[float]) -> None:
        for handler in self._handlers.of("timer"):
            started = self.clock.now()
            due = memory.timers.setdefault(handler.id, started + handler.terms.initial_delay)
            if due > started:
                pauses.append(due - started)
                continue
            failed: list[float] = []
            done = await self._called(handler, memory, obj, failed)
            now, period = self.clock.now(), handler.terms.every
            # From start to start; periods that passed while it ran are skipped.
            pause = started + period * max(1, math.ceil((now - started) / period)) - now
            pause = pause if done else min([pause, *failed])
            if not done and handler.id in memory.retries:
                memory.retries[handler.id].not_before = now + pause
            memory.timers[handler.id] = now + pause
            pauses.append(pause)

    async def _called(self, handler: DeclaredHandler, memory: ObjectProgress, obj: R, pauses: list[float], *values: Any) -> bool:
        """Call a handler. Return whether it is done; otherwise append its delay to ``pauses``."""
        if self._caller is None:
            self._caller = HandlerInvoker(self, type(self)._declaration().name, self.clock, self.events)
        pause = await self._caller.call(handler, memory, obj, *values)
        if pause is not None:
            pauses.append(pause)
        return pause is None

    def _read(self, obj: R, memory: ObjectProgress) -> HandlerRecord | None:
        """Return the record of handled changes; None for an object that was never handled."""
        name = self._annotation()
        text = obj.metadata.annotations.get(name)
        if memory.record is not None and memory.unsaved:
            return memory.record
        if text is not None and text == memory.written:
            memory.stale.clear()
        elif memory.record is not None and text in memory.stale:
            return memory.record  # written, but not in the cache yet
        if text is None:
            return None
        try:
            return read_record(text)
        except UnreadableRecord as error:
            self.log.warning("annotation %s is unreadable (%s): treating all changes so far as handled", name, error)
            return HandlerRecord()

    async def _save(self, obj: R, memory: ObjectProgress, *, finalizer: bool = False) -> R:
        """Write the record, and return the new state of the object. ``finalizer``: add the finalizer in the same write."""
        assert memory.record is not None  # set by the callers
        name, text = self._annotation(), memory.record.text()
        metadata: dict[str, Any] = {"uid": obj.metadata.uid, "annotations": {name: text}}
        if finalizer and self._finalizer() not in obj.metadata.finalizers:
            metadata["finalizers"] = [*obj.metadata.finalizers, self._finalizer()]
            metadata["resourceVersion"] = obj.metadata.resource_version  # otherwise a finalizer that another program adds now would be lost
        memory.unsaved = True
        memory.stale |= {obj.metadata.annotations.get(name), memory.written} - {text}
        where = obj.metadata.namespace or None
        saved = await self.client.patch(type(obj), obj.metadata.name, {"metadata": metadata}, namespace=where, options=self._options())
        memory.unsaved, memory.written = False, text
        return saved

    async def _with_finalizer(self, obj: R) -> R:
        finalizer = self._finalizer()
        if self._handlers.of("delete"):
            return await add_finalizer(self.client, obj, finalizer, options=self._options())
        if finalizer in obj.metadata.finalizers:
            return await remove_finalizer(self.client, obj, finalizer, options=self._options()) or obj
        return obj

    def _own_kind(self) -> type[R]:
        kind: Any = type(self)._declaration().kind
        own: type[R] = kind
        return own

    def _annotation(self) -> str:
        return RECORD + type(self)._declaration().name

    def _finalizer(self) -> str:
        return FINALIZER + type(self)._declaration().name

    def _options(self) -> WriteOptions:
        return WriteOptions(field_manager=type(self)._declaration().name)
