"""Waits for one object by a watch, never by polling, and never without a deadline.

Network failures and overload of the server do not end a wait; refusals (401, 403, 404 of the kind) end it at once.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from kubeloop.client.waits.conditions import WaitCondition, require_seconds
from kubeloop.client.waits.readiness import rollout_of
from kubeloop.client.waits.trees import tree_of
from kubeloop.client.watches import Event, Watch
from kubeloop.meta import ApiError, DeadlineError, Gone, Resource, TransportError, UntrustedCertificate
from kubeloop.timing import TimeLimit

if TYPE_CHECKING:
    from kubeloop.client.lists import ListCall
    from kubeloop.client.selector_text import Fields
    from kubeloop.timing import Clock
    from kubeloop.transport import Transport

R = TypeVar("R", bound=Resource)

# Seconds between two attempts: after a watch ended or its version expired, and after a failure.
_PAUSE = 0.05
_PAUSE_AFTER_FAULT = 1.0


class WaitClient(Protocol):
    """The methods of a client that waits use."""

    transport: Transport
    clock: Clock

    def list(self, kind: type[R], *, namespace: str | None = ..., field_selector: Fields | None = ...) -> ListCall[R]: ...

    def watch(
        self, kind: type[R], *, namespace: str | None = ..., field_selector: Fields | None = ..., resource_version: str | None = ...
    ) -> Watch[R]:
        """Watch objects; the declaration of ``Client.watch``, which lists the arguments."""
        ...


class _Faults:
    """Records the last failure, for the message of a deadline."""

    def __init__(self, client: WaitClient) -> None:
        self._transport = client.transport
        self._clock = client.clock
        self.last = ""

    @asynccontextmanager
    async def waited_out(self) -> AsyncIterator[None]:
        try:
            yield
            self.last = ""
            await self._clock.sleep(_PAUSE)
        except UntrustedCertificate:
            raise
        except Gone:
            await self._clock.sleep(_PAUSE)  # the server no longer has the watch's version: start again with a list
        except (TransportError, DeadlineError) as error:
            if self._transport.closed:
                raise
            self.last = f"; the server could not be asked: {error}"
            await self._clock.sleep(_PAUSE_AFTER_FAULT)
        except ApiError as error:
            if error.status.code < 500 and error.status.code != 429:
                raise
            self.last = f"; the server could not answer: {error}"
            await self._clock.sleep(error.retry_after or _PAUSE_AFTER_FAULT)


async def wait_for(client: WaitClient, kind: type[R], name: str, want: WaitCondition[R], timeout: float, namespace: str | None) -> R:
    """Return the first state of an object that meets a condition.

    Args:
        client: The client to watch with.
        kind: The class of the object.
        name: The object's name.
        want: The condition.
        timeout: Seconds.
        namespace: None: the client's.

    Raises:
        DeadlineError: No state met the condition within ``timeout`` seconds.
    """
    require_seconds(timeout)
    last: R | None = None
    faults = _Faults(client)
    try:
        async with TimeLimit(client.clock, timeout):
            while True:
                async with faults.waited_out(), aclosing(_states(client, kind, name, namespace)) as states:
                    async for last in states:
                        faults.last = ""
                        if last is not None and want.met(last):
                            return last
    except TimeoutError as error:
        seen = "it was not there" if last is None else want.seen(last)
        text = f"{named(kind, name, namespace)}: not {want.text_for(kind)} within {timeout:g} s: {seen}{faults.last}"
        raise DeadlineError(text) from error


async def wait_gone(client: WaitClient, kind: type[Resource], name: str, timeout: float, namespace: str | None, uid: str) -> None:
    """Wait until the object does not exist.

    Args:
        client: The client to watch with.
        kind: The class of the object.
        name: The object's name.
        timeout: Seconds.
        namespace: None: the client's.
        uid: Wait only for the object with this uid. Empty: any object of that name.

    Raises:
        DeadlineError: The object still exists after ``timeout`` seconds.
    """
    require_seconds(timeout)
    last: Resource | None = None
    faults = _Faults(client)
    try:
        async with TimeLimit(client.clock, timeout):
            while True:
                async with faults.waited_out():
                    # Only a list shows that the object does not exist.
                    there = await client.list(kind, namespace=namespace, field_selector={"metadata.name": name})
                    last = there[0] if there else None
                    if last is None or (uid and last.metadata.uid != uid):
                        return
                    selected = {"metadata.name": name}
                    async with client.watch(
                        kind, namespace=namespace, field_selector=selected, resource_version=there.resource_version
                    ) as events:
                        async for event in events:
                            last = event.object
                            if event.type == "DELETED" or (uid and last.metadata.uid != uid):
                                return
    except TimeoutError as error:
        finalizers = last.metadata.finalizers if last is not None else []
        held = f"; finalizers that hold it: {', '.join(finalizers)}" if finalizers else ""
        raise DeadlineError(f"{named(kind, name, namespace)}: still there after {timeout:g} s{held}{faults.last}") from error


async def rollout(client: WaitClient, kind: type[R], name: str, timeout: float, namespace: str | None) -> AsyncGenerator[str, None]:
    """Yield the lines of ``kubectl rollout status`` as they change, until the rollout is complete.

    Args:
        client: The client to watch with.
        kind: The class of the object.
        name: The object's name.
        timeout: Seconds.
        namespace: None: the client's.

    Raises:
        DeadlineError: The rollout is not complete within ``timeout`` seconds. WaitFailed: its progress deadline passed.
        ValueError: The kind, or its update strategy, has no rollouts.
    """
    require_seconds(timeout)
    ends = client.clock.now() + timeout
    text = ""
    while True:
        changed: WaitCondition[Resource] = WaitCondition("rolled out", functools.partial(_moved, before=text), _text)
        left = max(0.0, ends - client.clock.now())
        try:
            found = await wait_for(client, kind, name, changed, left, namespace)
        except DeadlineError as error:
            seen = text or str(error).rpartition(" s: ")[2]
            raise DeadlineError(f"{named(kind, name, namespace)}: not rolled out within {timeout:g} s: {seen}") from error
        text, done = rollout_of(tree_of(found))
        yield text
        if done:
            return


def _text(obj: Resource) -> str:
    return rollout_of(tree_of(obj)).text


def _moved(obj: Resource, before: str) -> bool:
    return _text(obj) != before


async def wait_for_events(events: AsyncIterator[Event[R]], conditions: tuple[Callable[[Event[R]], object], ...]) -> Event[R] | None:
    """Return the event that met the last of ``conditions``, or None if the events end before. The conditions are met one after the other.

    The event that meets a condition is also the first event for the next condition (client-go tools/watch, UntilWithoutRetry).
    """
    left = list(conditions)
    async for event in events:
        while left and left[0](event):
            left.pop(0)
        if not left:
            return event
    return None


async def _states(client: WaitClient, kind: type[R], name: str, namespace: str | None) -> AsyncGenerator[R | None, None]:
    """Yield the states of one object, and None while it does not exist."""
    yield None
    async with client.watch(kind, namespace=namespace, field_selector={"metadata.name": name}) as events:
        async for event in events:
            yield event.object if event.type != "DELETED" else None


def named(kind: type[Resource], name: str, namespace: str | None) -> str:
    """Return kind, namespace and name of an object, for messages."""
    return f'{kind.kind} "{name}"' + (f' in namespace "{namespace}"' if namespace else "")
