"""Waiting for one object to become something, or to be gone: by a watch, never by polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kubeloop.meta import DeadlineError, Resource

if TYPE_CHECKING:
    from kubeloop.client.client import Client

R = TypeVar("R", bound=Resource)


async def wait_for(client: Client, kind: type[R], name: str, predicate: Callable[[R], object], timeout: float, namespace: str | None) -> R:
    """The first state for which ``predicate`` is true.

    Raises:
        DeadlineError: none within ``timeout`` seconds.
    """
    last: R | None = None
    try:
        async with asyncio.timeout(timeout), client.watch(kind, namespace=namespace, fields={"metadata.name": name}) as events:
            async for event in events:
                last = event.object if event.type != "DELETED" else None
                if last is not None and predicate(last):
                    return last
    except TimeoutError as error:
        seen = "it was not there" if last is None else f"last seen at resourceVersion {last.metadata.resource_version}"
        raise DeadlineError(f"{_named(kind, name, namespace)}: not as wanted within {timeout:g} s: {seen}") from error
    raise AssertionError("a watch ends only by an exception")


async def wait_gone(client: Client, kind: type[Resource], name: str, timeout: float, namespace: str | None, uid: str) -> None:
    """Return when no such object is there; with ``uid`` a new one of the same name counts as gone.

    Raises:
        DeadlineError: still there after ``timeout`` seconds.
    """
    last: Resource | None = None
    try:
        async with asyncio.timeout(timeout):
            # A list, not a watch, says that nothing is there.
            there = await client.list(kind, namespace=namespace, fields={"metadata.name": name})
            last = there[0] if there else None
            if last is None or (uid and last.metadata.uid != uid):
                return
            selected = {"metadata.name": name}
            async with client.watch(kind, namespace=namespace, fields=selected, resource_version=there.resource_version) as events:
                async for event in events:
                    last = event.object
                    if event.type == "DELETED" or (uid and last.metadata.uid != uid):
                        return
    except TimeoutError as error:
        finalizers = last.metadata.finalizers if last is not None else []
        held = f"; finalizers that hold it: {', '.join(finalizers)}" if finalizers else ""
        raise DeadlineError(f"{_named(kind, name, namespace)}: still there after {timeout:g} s{held}") from error
    raise AssertionError("a watch ends only by an exception")


def _named(kind: type[Resource], name: str, namespace: str | None) -> str:
    return f'{kind.kind} "{name}"' + (f' in namespace "{namespace}"' if namespace else "")
