"""Readiness of children: computed without requests as a state for ``reconcile``, or awaited with watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

from kubeloop.cache import Informer
from kubeloop.client.waits.conditions import WaitCondition, condition_for, ready, require_seconds
from kubeloop.controller.children.lookup import ChildReader
from kubeloop.controller.result import Result
from kubeloop.meta import DeadlineError, Resource, WaitFailed
from kubeloop.timing import TimeLimit

#: Kind -> condition to wait for instead of readiness: a function of the object, or a text as in ``kubectl wait --for``.
Until: TypeAlias = Mapping[Any, "Callable[[Any], object] | str"]


@dataclass(frozen=True, slots=True)
class ChildrenState:
    """Readiness of a set of children.

    ``waiting`` maps the title of a child (``Deployment shop/web``) to the condition that it does not meet yet, ``failed`` to the reason of
    its failure.

    Example:
        >>> state = ChildrenState(waiting={"Deployment shop/web": "1 of 3 replicas are available"}, failed={})
        >>> state.ready
        False
    """

    waiting: Mapping[str, str]
    failed: Mapping[str, str]

    @property
    def ready(self) -> bool:
        return not self.waiting and not self.failed

    def result(self, again: float | None = None) -> Result | None:
        """Return the result of a reconcile that waits for children: a requeue after ``again`` seconds, or None if all are ready.

        Changes of owned kinds trigger the next reconcile anyway, so ``again`` is for children of other kinds; None requests no requeue.
        """
        return None if self.ready or again is None else Result(requeue_after=again)

    def __str__(self) -> str:
        """Return the state in words for a condition's message: ``Deployment shop/web: 1 of 2 updated replicas are available...``."""
        parts = [f"{title}: {text}" for title, text in [*self.failed.items(), *self.waiting.items()]]
        return "; ".join(parts) or "all are ready"


def state_of(objects: Iterable[Resource], until: Until | None = None) -> ChildrenState:
    """Return the readiness of ``objects``, computed from their content. No request is sent.

    "Ready" means the same as in ``Client.wait_ready``: a Deployment is rolled out, a StatefulSet's replicas are ready, a Job is complete,
    a Pod is ready or has succeeded, a PersistentVolumeClaim is bound; another kind has the condition Ready or Available.
    """
    waiting: dict[str, str] = {}
    failed: dict[str, str] = {}
    for obj in objects:
        want = _want(type(obj), until)
        try:
            if not want.met(obj):
                waiting[_title(obj)] = want.seen(obj)
        except WaitFailed as error:
            failed[_title(obj)] = str(error)
    return ChildrenState(waiting, failed)


async def wait_for_children(reader: ChildReader, objects: Sequence[Resource], *, timeout: float, until: Until | None = None) -> None:
    """Wait until all of these children are ready, or match ``until``.

    The function waits on the controller's informers, or on a watch for each child of a kind without an informer; it does not poll. A
    reconcile that waits occupies its worker: prefer ``state_of``, and return.

    Args:
        reader: ``Children.reader``.
        objects: The children.
        timeout: Seconds.
        until: Kind -> condition to wait for instead of readiness: a function of the object, or a text as in ``kubectl wait --for``.

    Raises:
        DeadlineError: the timeout expired; the message has the missing condition of each child.
        WaitFailed: a child failed permanently.
    """
    cached = [obj for obj in objects if reader.informer(type(obj)) is not None]
    others = [obj for obj in objects if reader.informer(type(obj)) is None]
    missing: list[str] = []

    async def watched(obj: Resource) -> None:
        want = _want(type(obj), until)
        where = obj.metadata.namespace or None
        try:
            await reader.client.wait_for(type(obj), obj.metadata.name, want, timeout=timeout, namespace=where)
        except DeadlineError as error:
            missing.append(str(error))

    async def held() -> None:
        if cached:
            missing.extend(await _wait_in_caches(reader, cached, timeout, until))

    failure: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(held())
            for obj in others:
                group.create_task(watched(obj))
    except* WaitFailed as errors:
        failure = _first(errors)  # Raised here, Python 3.11.2 would put it into an ExceptionGroup (CPython issue 103590).
    if failure is not None:
        raise failure from None
    if missing:
        raise DeadlineError(f"after {timeout:g} s {len(missing)} of {len(objects)} children are not ready: {'; '.join(missing)}")


async def _wait_in_caches(reader: ChildReader, objects: Sequence[Resource], timeout: float, until: Until | None) -> list[str]:
    """Wait on the informers until the children are ready. Return a text for each child that is not ready at the timeout."""
    require_seconds(timeout)
    changed = asyncio.Event()
    names = {(type(obj), obj.metadata.namespace, obj.metadata.name) for obj in objects}
    with ExitStack() as stack:
        for kind in dict.fromkeys(type(obj) for obj in objects):
            informer = reader.informer(kind)
            assert informer is not None  # the caller has checked it
            here = {(namespace, name) for of, namespace, name in names if of is kind}
            stack.callback(_told(informer, here, changed))
        missing = await _missing(reader, objects, until)
        try:
            async with TimeLimit(reader.client.clock, timeout):
                while missing:
                    await changed.wait()
                    changed.clear()
                    missing = await _missing(reader, objects, until)
        except DeadlineError:
            raise
        except TimeoutError:
            return [f"{title}: {text}" for title, text in missing.items()]
        return []


def _told(informer: Informer[Any], names: set[tuple[str, str]], changed: asyncio.Event) -> Callable[[], object]:
    def handle(_: object) -> None:
        changed.set()

    registration = informer.on_event(
        added=handle, updated=handle, deleted=handle, predicate=lambda head: (head.namespace, head.name) in names, name="children"
    )
    return registration.remove


async def _missing(reader: ChildReader, objects: Sequence[Resource], until: Until | None) -> dict[str, str]:
    missing: dict[str, str] = {}
    for obj in objects:
        found = await reader.get(type(obj), obj.metadata.namespace, obj.metadata.name)
        if found is None:
            missing[_title(obj)] = "it is not there"
            continue
        state = state_of([found], until)
        if state.failed:
            raise WaitFailed(str(state))
        missing.update(state.waiting)
    return missing


def _want(kind: type[Resource], until: Until | None) -> WaitCondition[Any]:
    said = (until or {}).get(kind)
    return ready() if said is None else condition_for(said)


def _title(obj: Resource) -> str:
    return f"{obj.kind} {obj.metadata.namespace}/{obj.metadata.name}" if obj.metadata.namespace else f"{obj.kind} {obj.metadata.name}"


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
