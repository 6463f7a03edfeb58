"""Waiting for one object to become something, or to be gone: by a watch, never by polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from kubeloop.meta import DeadlineError, Gone, Resource

if TYPE_CHECKING:
    from kubeloop.client.client import Client

R = TypeVar("R", bound=Resource)

# Seconds between two attempts where the server forgets at once.
_PAUSE = 0.05


async def wait_for(client: Client, kind: type[R], name: str, predicate: Callable[[R], object], timeout: float, namespace: str | None) -> R:
    """The first state for which ``predicate`` is true.

    Raises:
        DeadlineError: none within ``timeout`` seconds.
    """
    last: R | None = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                last = None
                with suppress(Gone):  # the server has forgotten where the watch was: begin anew with what is there
                    async with client.watch(kind, namespace=namespace, field_selector={"metadata.name": name}) as events:
                        async for event in events:
                            last = event.object if event.type != "DELETED" else None
                            if last is not None and predicate(last):
                                return last
                await asyncio.sleep(_PAUSE)
    except TimeoutError as error:
        seen = "it was not there" if last is None else f"last seen at resourceVersion {last.metadata.resource_version}"
        raise DeadlineError(f"{_named(kind, name, namespace)}: not as wanted within {timeout:g} s: {seen}") from error


async def wait_gone(client: Client, kind: type[Resource], name: str, timeout: float, namespace: str | None, uid: str) -> None:
    """Return when no such object is there; with ``uid`` a new one of the same name counts as gone.

    Raises:
        DeadlineError: still there after ``timeout`` seconds.
    """
    last: Resource | None = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                # A list, not a watch, says that nothing is there.
                there = await client.list(kind, namespace=namespace, field_selector={"metadata.name": name})
                last = there[0] if there else None
                if last is None or (uid and last.metadata.uid != uid):
                    return
                selected = {"metadata.name": name}
                with suppress(Gone):
                    async with client.watch(
                        kind, namespace=namespace, field_selector=selected, resource_version=there.resource_version
                    ) as events:
                        async for event in events:
                            last = event.object
                            if event.type == "DELETED" or (uid and last.metadata.uid != uid):
                                return
                await asyncio.sleep(_PAUSE)
    except TimeoutError as error:
        finalizers = last.metadata.finalizers if last is not None else []
        held = f"; finalizers that hold it: {', '.join(finalizers)}" if finalizers else ""
        raise DeadlineError(f"{_named(kind, name, namespace)}: still there after {timeout:g} s{held}") from error


def _named(kind: type[Resource], name: str, namespace: str | None) -> str:
    return f'{kind.kind} "{name}"' + (f' in namespace "{namespace}"' if namespace else "")
